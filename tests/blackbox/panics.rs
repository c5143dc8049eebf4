//! A fault of the balancer's own, rehearsed: it ends what it happened in, gives back what that held, and harms nothing else.

use homing::config::KeyHash;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::*;

/// In the words of every rehearsed panic.
const MARKER: &str = "m4rker";

/// One request at once: what a panic did not give back would be missed at once.
fn config(engine: &Engine, more: Value) -> Value {
    let mut config = one_model([engine], more);
    config["callers"] = json!([{"name": "ann", "keys": [KeyHash::of(b"key-m4rker").to_string()], "in_flight": 1}]);
    config
}

fn turn(path: &str) -> Ask {
    Ask::turn(path, "m", "prompt-m4rker").session("conversation-m4rker").header("x-api-key", "key-m4rker")
}

async fn start(config: Value, places: &str) -> Balancer {
    Balancer::start_with(config, &[("HOMING_REHEARSE_PANIC", places)]).await
}

async fn nothing_is_held(balancer: &Balancer) {
    balancer.idle().await;
    balancer.metric_becomes("homing_buffered_bytes", &[], 0.0).await;
    balancer.metric_becomes("homing_caller_in_flight", &[], 0.0).await;
}

/// So many panics, each told of by its place, and with nothing of what it said.
async fn told(balancer: &mut Balancer, panics: usize) {
    balancer.metric_becomes("homing_panics_total", &[], panics as f64).await;
    balancer.output.count("places", panics, |line| line.contains("a panic at src/").then_some(())).await;
    balancer.signal(Signal::SIGTERM);
    assert!(balancer.exit().await.success());
    let lines = balancer.output.lines();
    let found: Vec<&String> = lines.iter().filter(|line| line.contains(MARKER)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

fn is_internal_error(answer: &Response, path: &str) {
    assert_eq!((answer.status, answer.header("x-homing-error")), (500, Some("internal_error")), "{}", answer.text());
    let id = answer.header("x-request-id").expect("an id to look for in the log");
    match path {
        "/v1/messages" => assert_eq!(
            (answer.json()["type"].as_str(), answer.json()["request_id"].as_str()),
            (Some("error"), Some(id))
        ),
        _ => assert_eq!(answer.json()["error"]["type"], "server_error"),
    }
}

#[tokio::test]
async fn a_request_is_answered_with_a_500_of_its_dialect_and_gives_back_what_it_held() {
    let engine = Engine::start().await;
    let places = ["intake", "routing", "upstream", "header", "first byte"];
    let twice: Vec<&str> = places.iter().flat_map(|place| [*place; 2]).collect();
    let mut balancer = start(config(&engine, json!({"admission": "off"})), &twice.join(",")).await;
    for place in places {
        for path in ask::DIALECTS {
            let answer = balancer.ask(&turn(path)).await;
            is_internal_error(&answer, path);
            let id = answer.header("x-request-id").unwrap().to_owned();
            let told = |line: &str| (line.contains(&id) && line.contains("ended by the panic at src/")).then_some(());
            balancer.output.line(place, told).await;
            nothing_is_held(&balancer).await;
        }
    }
    for path in ask::DIALECTS {
        assert_eq!(balancer.ask(&turn(path)).await.status, 200);
        nothing_is_held(&balancer).await;
    }
    told(&mut balancer, twice.len()).await;
}

#[tokio::test]
async fn over_http2_and_before_a_request_is_known_too() {
    let engine = Engine::start().await;
    let mut balancer = start(config(&engine, json!({})), "head,intake,ending").await;
    let answer = balancer.ask(&turn("/v1/messages")).await;
    assert_eq!((answer.status, answer.header("x-homing-error")), (500, Some("internal_error")));
    let mut client = H2Client::connect(balancer.listen).await;
    is_internal_error(&client.ask(&turn("/v1/messages")).await, "/v1/messages");
    // The same connection serves on. One that ends in a panic has answered all the same, and is counted out.
    assert_eq!(client.ask(&turn("/v1/messages")).await.status, 200);
    nothing_is_held(&balancer).await;
    assert_eq!(client.ask(&turn("/v1/messages")).await.status, 200);
    told(&mut balancer, 3).await;
}

#[tokio::test]
async fn a_stream_that_has_begun_ends_with_an_error_event() {
    let engine = Engine::start().await;
    let mut balancer = start(config(&engine, json!({})), "later bytes").await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut client = balancer.client().await;
    client.send(&turn("/v1/messages").streamed()).await;
    let head = client.head().await;
    assert!(client.piece().await.is_some_and(|piece| piece.contains("message_start")));
    gate.open();
    let rest = client.rest(head, "POST").await.text();
    assert!(rest.contains("event: error") && rest.contains("internal_error"), "{rest}");
    nothing_is_held(&balancer).await;
    told(&mut balancer, 1).await;
}

#[tokio::test]
async fn one_that_waits_for_room_leaves_the_line() {
    let engine = Engine::start().await;
    let mut balancer = start(one_model([&engine], json!({"kv_cache_tokens": 1})), "parked").await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let turn = |id: &str| Ask::messages("m", "Hello.").session(id);
    let mut first = balancer.client().await;
    first.send(&turn("conversation-1")).await;
    engine.saw_turns(1).await;
    is_internal_error(&balancer.ask(&turn("conversation-2")).await, "/v1/messages");
    assert_eq!(balancer.routing().await.parked(), 0);
    // The next one waits, and goes on when there is room.
    let mut third = balancer.client().await;
    third.send(&turn("conversation-3")).await;
    balancer.routing_when("the one that waits", |routing| routing.parked() == 1).await;
    gate.open();
    assert_eq!(first.response("POST").await.status, 200);
    assert_eq!(third.response("POST").await.status, 200);
    balancer.idle().await;
    told(&mut balancer, 1).await;
}

#[tokio::test]
async fn what_runs_in_the_background_goes_on() {
    let engine = Engine::start().await;
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), json!([{"url": engine.url()}]).to_string()).unwrap();
    let config = json!({"models": [{
        "name": "m",
        "kv_cache_tokens": 1,
        "admission": {"max_wait": "300 ms"},
        "replicas": {"file": list.path(), "every": "100 ms"},
    }]});
    let mut balancer = start(config, "discovery,scrape,wake,reload").await;
    balancer.routing_when("the replica", |routing| routing.replicas().len() == 1).await;
    balancer.scraped().await;
    // A wait that ends by time alone.
    engine.holds(&Gate::shut());
    let mut client = balancer.client().await;
    client.send(&Ask::chat("m", "Hello.").session("conversation-1")).await;
    engine.saw_turns(1).await;
    let refused = balancer.ask(&Ask::chat("m", "Hello.").session("conversation-2")).await;
    assert_eq!(refused.header("x-homing-error"), Some("admission_overdue"));
    drop(client);
    // A reload that is asked for says that it failed; the next one works, by signal too.
    assert_eq!(balancer.ask_admin(&Ask::new("POST", "/reload")).await.status, 500);
    balancer.signal(Signal::SIGHUP);
    balancer.metric_becomes("homing_reloads_total", &[("outcome", "ok")], 1.0).await;
    told(&mut balancer, 4).await;
}
