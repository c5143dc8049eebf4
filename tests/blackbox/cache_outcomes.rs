//! What became of each conversation's cache, told by what the engine says of the tokens of its turns.

use serde_json::{Value, json};

use crate::harness::ask::DIALECTS;
use crate::harness::vllm::Usage;
use crate::harness::*;

fn json_line(line: &str) -> Option<Value> {
    serde_json::from_str::<Value>(line).ok().filter(Value::is_object)
}

#[tokio::test]
async fn each_turn_says_what_became_of_its_cache() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({"kv_cache_tokens": 1_000_000}));
    config["server"] = json!({"access_log": "json"});
    let balancer = Balancer::start(config).await;
    let turns = [
        (Usage { prompt: 1000, cached: Some(0), completion: 50 }, "first_turn"),
        (Usage { prompt: 1200, cached: Some(1040), completion: 50 }, "kept"),
        // Nothing needs the room, so it is the prompt that is another.
        (Usage { prompt: 1400, cached: Some(0), completion: 50 }, "prompt_changed"),
        (Usage { prompt: 1600, cached: None, completion: 50 }, "unmeasured"),
    ];
    let mut lines = 0;
    for (way, (path, streamed)) in DIALECTS.iter().flat_map(|path| [(path, false), (path, true)]).enumerate() {
        for (usage, outcome) in turns {
            engine.reports(usage);
            let ask = Ask::turn(path, "m", "Hello.").session(&format!("conversation-{way}"));
            assert_eq!(balancer.ask(&if streamed { ask.streamed() } else { ask }).await.status, 200);
            lines += 1;
            let logged = balancer.output.count("the access log", lines, json_line).await;
            assert_eq!(logged[lines - 1]["cache"], outcome, "{path}, streamed: {streamed}, {}", logged[lines - 1]);
            let labels = [("model", "m"), ("cache", outcome)];
            balancer.metric_becomes("homing_turns_total", &labels, way as f64 + 1.0).await;
        }
    }
    let metrics = balancer.metrics().await;
    let tokens = |name: &str| metrics.sum(&format!("homing_cache_{name}_tokens_total"), &[("model", "m")]);
    // Of the second turns 1050 tokens were expected, of the third 1250.
    assert_eq!([tokens("expected"), tokens("found"), tokens("error")], [4.0 * 2300.0, 4.0 * 1040.0, 4.0 * 1260.0]);
    let cache = balancer.routing().await.0["cache"].clone();
    assert_eq!((&cache["turns"]["kept"], &cache["expected_tokens"]), (&json!(4), &json!(9200)));
}

#[tokio::test]
async fn a_turn_that_was_not_answered_says_nothing_of_its_cache() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({}));
    config["server"] = json!({"access_log": "json"});
    let balancer = Balancer::start(config).await;
    engine.answers(|_| vllm::error("400 Bad Request"));
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.status, 400);
    let line = balancer.output.line("the access log", json_line).await;
    assert!(line["cache"].is_null() && line["parked_s"].is_null(), "{line}");
    assert_eq!(balancer.metrics().await.sum("homing_turns_total", &[]), 0.0);
}

/// What is likely wrong is said once in the log, and stands in /routing.
#[tokio::test]
async fn an_engine_that_says_nothing_of_cached_tokens_is_noticed() {
    let engine = Engine::start().await;
    engine.reports(Usage { prompt: 1000, cached: None, completion: 50 });
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    assert!(balancer.routing().await.0["advice"].is_null());
    let mut client = balancer.client().await;
    for _ in 0..60 {
        assert_eq!(client.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.status, 200);
    }
    let advice = |routing: &routing::Routing| routing.0["advice"]["name"] == "no_cached_tokens";
    let routing = balancer.routing_when("the advice", advice).await;
    let sentence = routing.0["advice"]["sentence"].as_str().expect("a sentence").to_string();
    assert!(sentence.contains("--enable-prompt-tokens-details"), "{sentence}");
    let warning = |line: &str| (line.contains("WARN") && line.contains(&sentence)).then_some(());
    balancer.output.line("the warning", warning).await;
    // A few readings later it still stands there once.
    let probes = engine.probes();
    until("later readings", async || (engine.probes() > probes + 6).then_some(())).await;
    assert_eq!(balancer.output.lines().iter().filter_map(|line| warning(line)).count(), 1);
}
