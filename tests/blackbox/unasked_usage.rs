//! Token counts of streams whose clients did not ask for them.

use serde_json::{Value, json};

use crate::harness::vllm::USAGE;
use crate::harness::*;

const ROUTES: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

fn streamed(path: &str, more: Value) -> Ask {
    Ask::turn(path, "m", "Hello.").with(json!({"stream": true})).with(more)
}

#[tokio::test]
async fn they_are_counted_and_kept_from_the_client() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({"usage_injection": "on"}))).await;
    let silent = [
        json!({}),
        json!({"stream_options": null}),
        json!({"stream_options": {}}),
        json!({"stream_options": {"include_usage": false}}),
    ];
    let mut client = balancer.client().await;
    let mut asked = 0.0;
    for path in ROUTES {
        let all = client.ask(&streamed(path, json!({"stream_options": {"include_usage": true}}))).await.text();
        assert!(all.contains("\"usage\":{"), "{all}");
        asked += 1.0;
        let without: String = all.split_inclusive("\n\n").filter(|event| !event.contains("\"choices\":[],")).collect();
        assert_ne!(all, without);
        for more in &silent {
            let answer = client.ask(&streamed(path, more.clone())).await;
            asked += 1.0;
            assert_eq!((answer.status, answer.text()), (200, without.clone()), "{path} {more}");
            let heard = engine.last().json().expect("JSON");
            assert_eq!(heard["stream_options"], json!({"include_usage": true}), "{path} {more}");
            let length = engine.last().body.len().to_string();
            assert_eq!(engine.last().header("content-length"), Some(length.as_str()));
        }
    }
    let prompt = USAGE.prompt as f64 * asked;
    balancer.metric_becomes("homing_prompt_tokens_total", &[("model", "m")], prompt).await;
}

#[tokio::test]
async fn nothing_else_changes() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({"usage_injection": "on"}))).await;
    let asks = [
        streamed(ROUTES[0], json!({"stream_options": {"include_usage": true}})),
        streamed(ROUTES[0], json!({"stream_options": {"continuous_usage_stats": true}})),
        streamed("/v1/messages", json!({})),
        streamed("/v1/responses", json!({})),
        Ask::chat("m", "Hello."),
        Ask::chat("m", "Hello.").with(json!({"stream": false})),
    ];
    for ask in asks {
        let answer = balancer.ask(&ask).await;
        assert_eq!(answer.status, 200);
        assert_eq!(engine.last().body, ask.body);
        assert!(answer.text().contains("usage"), "{}", answer.text());
    }
    // An error is no stream.
    engine.answers(|_| vllm::error("400 Bad Request"));
    let refused = balancer.ask(&streamed(ROUTES[0], json!({}))).await;
    assert_eq!((refused.status, refused.json()["error"]["code"].as_u64()), (400, Some(400)));
}

#[tokio::test]
async fn it_is_off_unless_it_is_turned_on() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for path in ROUTES {
        let ask = streamed(path, json!({}));
        assert!(balancer.ask(&ask).await.text().contains("\"choices\":[],"), "{path}");
        assert_eq!(engine.last().body, ask.body);
    }
}

/// The first words come before the last chunk does, and a nameless model whose session stands in a header is no exception.
#[tokio::test]
async fn the_stream_flows_as_it_comes() {
    let engine = Engine::start().await;
    let mut nameless = one_model([&engine], json!({"usage_injection": "on", "aliases": []}));
    nameless["models"][0].as_object_mut().expect("a model").remove("name");
    let balancer = Balancer::start(nameless).await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut client = balancer.client().await;
    client.send(&streamed(ROUTES[0], json!({})).session("conversation-a")).await;
    let head = client.head().await;
    assert!(client.piece().await.is_some_and(|piece| piece.contains("\"Do\"")));
    gate.open();
    let rest = client.rest(head, "POST").await.text();
    assert!(rest.contains("\"ne.\"") && rest.contains("[DONE]") && !rest.contains("usage"), "{rest}");
}

/// Both changes at once, each where it belongs.
#[tokio::test]
async fn it_goes_with_another_name() {
    let engine = Engine::start().await;
    let settings = json!({"usage_injection": "on", "aliases": ["gpt-*"], "rewrite": "on"});
    let balancer = Balancer::start(one_model([&engine], settings)).await;
    let body = r#"{"model":"gpt-x","stream":true,"messages":[]}"#;
    let answer = balancer.ask(&Ask::new("POST", ROUTES[0]).body(body)).await.text();
    let heard = r#"{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}"#;
    assert_eq!(String::from_utf8_lossy(&engine.last().body), heard);
    assert!(answer.contains("\"model\":\"gpt-x\"") && !answer.contains("\"model\":\"m\""), "{answer}");
    assert!(!answer.contains("usage") && answer.ends_with("data: [DONE]\n\n"), "{answer}");
}
