//! Traces: what a client says of its own passes and is logged; where a collector is configured it is told how a request went.

use serde_json::{Value, json};

use crate::harness::collector::{Collector, Span};
use crate::harness::full::{Full, turn};
use crate::harness::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

async fn with_collector(engine: &Engine, collector: &Collector) -> Balancer {
    let mut config = one_model([engine], json!({}));
    config["traces"] = collector.setting();
    Balancer::start(config).await
}

fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span {name} in {spans:?}"))
}

#[tokio::test]
async fn a_traceparent_passes_as_it_came_and_stands_in_the_log_if_it_is_one() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({}));
    config["server"] = json!({"access_log": "json"});
    let balancer = Balancer::start(config).await;
    let good = [traceparent("01"), traceparent("00"), format!("01-{TRACE}-{PARENT}-01-what-comes-later")];
    let bad = [
        "marker".to_owned(),
        format!("00-{TRACE}-{PARENT}-01-more"),
        format!("ff-{TRACE}-{PARENT}-01"),
        format!("00-{}-{PARENT}-01", "0".repeat(32)),
        format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
        format!("00-{TRACE}-{PARENT}-é1"),
    ];
    for (value, valid) in good.iter().map(|value| (value, true)).chain(bad.iter().map(|value| (value, false))) {
        let ask = Ask::chat("m", "Hello.").header("traceparent", value).header("tracestate", "vendor=a-state");
        assert_eq!(balancer.ask(&ask).await.status, 200, "{value}");
        let came = engine.last();
        assert_eq!(
            (came.header("traceparent"), came.header("tracestate")),
            (Some(value.as_str()), Some("vendor=a-state"))
        );
        let id = came.header("x-request-id").expect("an id").to_owned();
        let line = balancer.output.line("its line", |line| line.contains(&id).then(|| line.to_owned())).await;
        let line: Value = serde_json::from_str(&line).expect("JSON");
        let logged = if valid { json!(value[..55]) } else { Value::Null };
        assert_eq!(line["traceparent"], logged, "{value}");
    }
}

#[tokio::test]
async fn spans_tell_how_a_request_went_under_the_span_it_was_sent_in() {
    let (engine, collector) = (Engine::start().await, Collector::start().await);
    let balancer = with_collector(&engine, &collector).await;
    let ask = Ask::messages("m", "a-secret-text")
        .header("x-session-id", "a-secret-session")
        .header("authorization", "Bearer a-secret-key")
        .header("traceparent", &traceparent("01"));
    balancer.ask(&ask).await.is("placed");
    assert_eq!(engine.last().header("traceparent"), Some(traceparent("01").as_str()));
    let spans = collector.saw(4).await;
    assert_eq!(spans.len(), 4, "{spans:?}");
    let whole = named(&spans, "POST /v1/messages");
    assert_eq!((whole.trace.as_str(), whole.parent.as_str()), (TRACE, PARENT));
    for (name, value) in [("http.response.status_code", "200"), ("homing.model", "m"), ("http.route", "/v1/messages")] {
        assert_eq!(whole.attributes.get(name).map(String::as_str), Some(value), "{name}");
    }
    let id = &whole.attributes["homing.request_id"];
    assert_eq!(engine.last().header("x-request-id"), Some(id.as_str()));
    for name in ["decide", "upstream", "first byte"] {
        let span = named(&spans, name);
        assert_eq!((&span.trace, &span.parent), (&whole.trace, &whole.id), "{name}");
        assert!(
            whole.start_ns <= span.start_ns && span.start_ns <= span.end_ns && span.end_ns <= whole.end_ns,
            "{spans:?}"
        );
    }
    assert_eq!(named(&spans, "decide").attributes["homing.decision"], "placed");
    assert_eq!(named(&spans, "upstream").attributes["homing.replica"], engine.name());
    let bytes = collector.bytes();
    assert!(!bytes.windows(8).any(|part| part == b"a-secret"), "spans tell nothing of who asked or what");
    balancer.metric_becomes("homing_spans_total", &[("outcome", "sent")], 4.0).await;
}

#[tokio::test]
async fn a_trace_that_is_not_kept_is_not_sent_and_without_one_a_new_one_begins() {
    let (engine, collector) = (Engine::start().await, Collector::start().await);
    let balancer = with_collector(&engine, &collector).await;
    let ask = |value: &str| Ask::chat("m", "Hello.").header("traceparent", value);
    assert_eq!(balancer.ask(&ask(&traceparent("00"))).await.status, 200);
    assert_eq!(balancer.ask(&Ask::get("/health")).await.status, 200);
    assert_eq!(balancer.ask(&Ask::chat("other", "Hello.")).await.status, 404);
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.")).await.status, 200);
    engine.answers(|_| vllm::error("500 Internal Server Error"));
    assert_eq!(balancer.ask(&ask("no trace")).await.status, 500);
    let spans = collector.saw(8).await;
    let wholes: Vec<&Span> = spans.iter().filter(|span| span.parent.is_empty()).collect();
    assert_eq!((spans.len(), wholes.len()), (8, 2), "{spans:?}");
    assert_ne!(wholes[0].trace, wholes[1].trace);
    assert!(!spans.iter().any(|span| span.trace == TRACE), "{spans:?}");
    let statuses: Vec<&str> = wholes.iter().map(|span| span.attributes["http.response.status_code"].as_str()).collect();
    assert_eq!(statuses, ["200", "500"]);
}

#[tokio::test]
async fn a_wait_for_room_is_a_span() {
    let collector = Collector::start().await;
    let mut full = Full::start_with(json!({"traces": collector.setting()}), json!({})).await;
    let mut client = full.park(&turn("waits").header("traceparent", &traceparent("01")), 1).await;
    full.end("waits");
    full.end("held-1");
    client.response("POST").await.is("placed");
    full.empties().await;
    let of_trace = async || {
        let spans: Vec<Span> = collector.spans().into_iter().filter(|span| span.trace == TRACE).collect();
        Some(spans).filter(|spans| spans.len() == 5)
    };
    let spans = until("the spans of the request that waited", of_trace).await;
    let (decide, park, upstream) = (named(&spans, "decide"), named(&spans, "park"), named(&spans, "upstream"));
    assert_eq!((decide.end_ns, park.end_ns), (park.start_ns, upstream.start_ns), "{spans:?}");
    assert!(park.end_ns > park.start_ns);
}

/// A collector that hangs or is gone costs spans, and no request waits for it.
#[tokio::test]
async fn a_collector_that_is_slow_or_gone_costs_spans_alone() {
    let (engine, mut collector) = (Engine::start().await, Collector::start().await);
    let balancer = with_collector(&engine, &collector).await;
    let gate = Gate::shut();
    let held = gate.clone();
    collector.0.answers(move |_| Collector::takes().after(&held));
    let mut client = balancer.client().await;
    let dropped = async || balancer.metrics().await.sum("homing_spans_total", &[("outcome", "dropped")]);
    within("a queue that is full", async {
        while dropped().await == 0.0 {
            for _ in 0..100 {
                assert_eq!(client.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.status, 200);
            }
        }
    })
    .await;
    assert!(balancer.metrics().await.sum("homing_limits_hit_total", &[("limit", "traces")]) > 0.0);
    collector.0.refuse();
    gate.open();
    until("spans that did not arrive", async || {
        let failed = balancer.metrics().await.sum("homing_spans_total", &[("outcome", "failed")]);
        (failed > 0.0).then_some(())
    })
    .await;
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.")).await.status, 200);
}
