//! What /metrics counts.

use serde_json::json;

use crate::harness::routing::DECISIONS;
use crate::harness::vllm::{USAGE, Usage, error, turn};
use crate::harness::*;

/// Family, kind, and the labels that each of its series carries.
const PROMISED: &[(&str, &str, &[&str])] = &[
    ("homing_requests_total", "counter", &["model", "replica", "decision", "status"]),
    ("homing_time_to_first_byte_seconds", "histogram", &["model"]),
    ("homing_request_duration_seconds", "histogram", &["model"]),
    ("homing_prompt_tokens_total", "counter", &["model", "source"]),
    ("homing_completion_tokens_total", "counter", &["model"]),
    ("homing_retries_total", "counter", &["model", "reason", "replica"]),
    ("homing_reloads_total", "counter", &["outcome"]),
    ("homing_limits_hit_total", "counter", &["limit"]),
    ("homing_errors_total", "counter", &["code"]),
    ("homing_build_info", "gauge", &["version"]),
    ("homing_model_in_flight", "gauge", &["model"]),
    ("homing_replica_in_flight", "gauge", &["model", "replica"]),
    ("homing_conversations", "gauge", &["model", "replica"]),
    ("homing_replica_load", "gauge", &["model", "replica"]),
    ("homing_replica_up", "gauge", &["model", "replica"]),
    ("homing_replica_state", "gauge", &["model", "replica", "state"]),
    ("homing_replica_circuit_opened_total", "counter", &["model", "replica"]),
    ("homing_replica_returning", "gauge", &["model", "replica"]),
    ("homing_replica_kv_cache_usage_ratio", "gauge", &["model", "replica"]),
    ("homing_replica_running", "gauge", &["model", "replica"]),
    ("homing_replica_waiting", "gauge", &["model", "replica"]),
    ("homing_replica_prefix_cache_hit_ratio", "gauge", &["model", "replica"]),
    ("homing_replica_reading_age_seconds", "gauge", &["model", "replica"]),
    ("homing_ready", "gauge", &[]),
    ("homing_parked", "gauge", &["model"]),
    ("homing_parked_total", "counter", &["model"]),
    ("homing_parked_outcomes_total", "counter", &["model", "outcome"]),
    ("homing_would_park_total", "counter", &["model"]),
    ("homing_linger_seconds", "gauge", &["model"]),
    ("homing_replica_held_tokens", "gauge", &["model", "replica"]),
    ("homing_replica_capacity_tokens", "gauge", &["model", "replica"]),
    ("homing_turns_total", "counter", &["model", "cache"]),
    ("homing_cache_expected_tokens_total", "counter", &["model"]),
    ("homing_cache_found_tokens_total", "counter", &["model"]),
    ("homing_cache_error_tokens_total", "counter", &["model"]),
];

#[tokio::test]
async fn all_that_is_promised_is_there() {
    let engines = engines::<2>().await;
    let mut config = one_model(&engines, json!({"kv_cache_tokens": 100_000}));
    config["server"] = json!({"limits": {"body": "1 KiB"}});
    let balancer = Balancer::start(config.clone()).await;
    balancer.scraped().await;
    // One of each thing that is counted.
    engines[0].answers(|_| error("503 Service Unavailable"));
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.").session("session-1")).await.status, 200);
    assert_eq!(balancer.ask(&Ask::chat("m", &"x".repeat(2000))).await.status, 413);
    assert_eq!(balancer.reload(&config).await.status, 200);
    balancer.idle().await;
    let metrics = balancer.metrics().await;
    for &(family, kind, labels) in PROMISED {
        assert_eq!(metrics.kinds.get(family).map(String::as_str), Some(kind), "{family}");
        let series: Vec<_> = metrics.samples.iter().filter(|s| metrics.family(&s.name) == family).collect();
        assert!(!series.is_empty(), "{family} has no series");
        for sample in series {
            let carried = sample.labels.keys().filter(|label| *label != "le").map(String::as_str);
            let mut expected = labels.to_vec();
            expected.sort_unstable();
            assert_eq!(carried.collect::<Vec<_>>(), expected, "{}", sample.name);
        }
    }
    for (family, kind) in &metrics.kinds {
        assert!(family.starts_with("homing_"), "{family}");
        assert_eq!(family.ends_with("_total"), kind == "counter", "{family} is a {kind}");
    }
}

#[tokio::test]
async fn requests_are_counted_by_what_became_of_them() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let statuses = ["200 OK", "400 Bad Request", "404 Not Found", "500 Internal Server Error", "503 Busy"];
    for (n, status) in statuses.into_iter().enumerate() {
        engines.iter().for_each(|engine| {
            engine.answers(move |request| if status == "200 OK" { turn(request, USAGE) } else { error(status) });
        });
        for id in 0..=n {
            balancer.ask(&Ask::chat("m", "Hello.").session(&format!("session-{id}"))).await;
        }
    }
    let routing = balancer.idle().await;
    assert_eq!(routing.decided(), 15);
    balancer.metric_becomes("homing_requests_total", &[], 15.0).await;
    let metrics = balancer.metrics().await;
    for (class, count) in [("2xx", 1.0), ("4xx", 5.0), ("5xx", 9.0)] {
        assert_eq!(metrics.sum("homing_requests_total", &[("status", class)]), count, "{class}");
    }
    for decision in DECISIONS {
        let counted = metrics.sum("homing_requests_total", &[("decision", decision)]);
        assert_eq!(counted, routing.total(decision) as f64, "{decision}");
    }
    assert_eq!(metrics.sum("homing_retries_total", &[]), routing.total("failed_over") as f64);
    assert_eq!(metrics.sum("homing_request_duration_seconds_count", &[]), 15.0);
    assert_eq!(metrics.sum("homing_time_to_first_byte_seconds_count", &[]), 15.0);
    assert_eq!(metrics.sum("homing_conversations", &[]), 5.0);
}

#[tokio::test]
async fn gauges_show_what_was_scraped() {
    let engine = Engine::start().await;
    engine.vitals(|vitals| {
        let rank = &mut vitals.ranks[0];
        (rank.running, rank.waiting, rank.kv_cache_usage) = (3.0, 2.0, Some(0.25));
        (rank.prefix_queries, rank.prefix_hits) = (1000.0, 600.0);
    });
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    balancer.scraped().await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let held = ask_all(balancer.listen, [Ask::chat("m", "Hello.").session("session-1")]);
    engine.saw_turns(1).await;
    let metrics = balancer.metrics().await;
    let (name, mut labels) = (engine.name(), vec![("model", "m")]);
    assert_eq!(metrics.sum("homing_model_in_flight", &labels), 1.0);
    labels.push(("replica", &name));
    for (gauge, value) in [
        ("homing_replica_in_flight", 1.0),
        ("homing_conversations", 1.0),
        ("homing_replica_load", 4.0), // 1 in flight, 8 x 0.25, 1 live
        ("homing_replica_up", 1.0),
        ("homing_replica_running", 3.0),
        ("homing_replica_waiting", 2.0),
        ("homing_replica_kv_cache_usage_ratio", 0.25),
        ("homing_replica_prefix_cache_hit_ratio", 0.6),
    ] {
        assert_eq!(metrics.sum(gauge, &labels), value, "{gauge}");
    }
    assert!(metrics.sum("homing_replica_reading_age_seconds", &labels) < 15.0);
    gate.open();
    for answer in held {
        answer.await.unwrap().is("placed");
    }
}

/// Prompt tokens cached, computed and unmeasured, and completion tokens.
type Tokens = [f64; 4];

#[tokio::test]
async fn tokens_are_read_in_both_dialects_streamed_or_not() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let cases: [(Usage, Tokens); 3] = [
        (Usage { prompt: 1000, cached: Some(896), completion: 16 }, [896.0, 104.0, 0.0, 16.0]),
        (Usage { prompt: 500, cached: Some(0), completion: 1 }, [0.0, 500.0, 0.0, 1.0]),
        (Usage { prompt: 70, cached: None, completion: 5 }, [0.0, 0.0, 70.0, 5.0]),
    ];
    let mut expected: Tokens = [0.0; 4];
    for (usage, tokens) in cases {
        engine.reports(usage);
        for path in ask::DIALECTS {
            for ask in [Ask::turn(path, "m", "Hello."), Ask::turn(path, "m", "Hello.").streamed()] {
                assert_eq!(balancer.ask(&ask).await.status, 200);
                std::iter::zip(&mut expected, tokens).for_each(|(sum, tokens)| *sum += tokens);
                balancer.metric_becomes("homing_completion_tokens_total", &[("model", "m")], expected[3]).await;
                let metrics = balancer.metrics().await;
                let prompt = ["cached", "computed", "unmeasured"]
                    .map(|source| metrics.sum("homing_prompt_tokens_total", &[("source", source)]));
                assert_eq!(prompt, expected[..3], "{path}, streamed: {}", ask.body.len() > 100);
            }
        }
    }
}

/// A hostile or careless client must not be able to fill a database with series, nor read itself in one.
#[tokio::test]
async fn no_label_holds_what_a_client_says() {
    let engine = Engine::start().await;
    let mut nameless = model("", [&engine], json!({}));
    nameless.as_object_mut().unwrap().remove("name");
    let named = model("m", [&engine], json!({}));
    for model in [nameless, named] {
        let balancer = Balancer::start(json!({"models": [model]})).await;
        let asks = [
            Ask::chat("marker-model", "marker-text").session("marker-session"),
            Ask::chat("m", "marker-text").session("marker-session").header("authorization", "Bearer marker-key"),
            Ask::messages("m", "marker-text").header("x-request-id", "marker-request").header("user-agent", "marker"),
            Ask::get("/marker-path?marker=marker"),
            Ask::new("MARKER", "/v1/messages").body("{}"),
            Ask::chat("m", "marker-text").header("x-data-parallel-rank", "marker"),
            Ask::turn("/v1/messages/count_tokens?marker=1", "m", "marker-text"),
        ];
        for ask in asks {
            balancer.ask(&ask).await;
        }
        let text = balancer.ask_admin(&Ask::get("/metrics")).await.text();
        assert!(!text.to_lowercase().contains("marker"), "{text}");
        let shown = balancer.ask_admin(&Ask::get("/routing")).await.text();
        assert!(!shown.contains("marker"), "{shown}");
    }
}
