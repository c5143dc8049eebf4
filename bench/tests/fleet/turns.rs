//! What a conversation finds in the cache.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::{MODEL, config, events, get, metric, post, sample, start, streamed};

const QUESTION: &str =
    "Please read these files one after another and tell me what they have in common, at some length.";

/// Cached tokens of a second turn whose first had a prompt of `prompt` tokens and an answer of `output`: full blocks of
/// all that was computed, which is everything but the last token of the answer.
fn expected(prompt: u64, output: u64) -> u64 {
    (prompt + output - 1) / 16 * 16
}

fn turn(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

#[tokio::test]
async fn a_second_chat_turn_finds_the_first_and_its_answer() {
    let fleet = start(config()).await;
    let mut body =
        json!({"model": MODEL, "max_tokens": 30, "messages": [turn("system", QUESTION), turn("user", QUESTION)]});
    let first = post(fleet.replicas()[0], "/v1/chat/completions", &body).await.json().await;
    let usage = &first["usage"];
    let prompt = usage["prompt_tokens"].as_u64().unwrap();
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(usage["prompt_tokens_details"]["created_cache_tokens"], prompt / 16 * 16);
    let said = first["choices"][0]["message"]["content"].as_str().unwrap();
    body["messages"].as_array_mut().unwrap().extend([turn("assistant", said), turn("user", "And now?")]);
    // Another replica knows nothing of it.
    for (replica, cached) in [(0, expected(prompt, 30)), (1, 0)] {
        let second = post(fleet.replicas()[replica], "/v1/chat/completions", &body).await.json().await;
        assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], cached);
    }
}

/// The text and the final usage of a streamed message.
async fn message(replica: SocketAddr, body: &Value) -> (String, Value) {
    let events = events(&post(replica, "/v1/messages", body).await.text().await);
    let text = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    let delta = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    (text, delta["usage"].clone())
}

#[tokio::test]
async fn a_second_message_turn_counts_the_cached_tokens_apart() {
    let fleet = start(config()).await;
    let replica = fleet.replicas()[0];
    let mut body =
        streamed(json!({"model": MODEL, "max_tokens": 30, "system": QUESTION, "messages": [turn("user", QUESTION)]}));
    let (said, first) = message(replica, &body).await;
    let count = |usage: &Value, field: &str| usage[field].as_u64().unwrap();
    let prompt = count(&first, "input_tokens") + count(&first, "cache_creation_input_tokens");
    assert_eq!(first["cache_read_input_tokens"], 0);
    body["messages"].as_array_mut().unwrap().extend([turn("assistant", &said), turn("user", "And now?")]);
    let total = post(replica, "/v1/messages/count_tokens", &body).await.json().await;
    let (_, second) = message(replica, &body).await;
    assert_eq!(second["cache_read_input_tokens"], expected(prompt, 30));
    let fields = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
    assert_eq!(fields.iter().map(|field| count(&second, field)).sum::<u64>(), count(&total, "input_tokens"));
}

#[tokio::test]
async fn a_second_response_finds_the_first() {
    let fleet = start(config()).await;
    let replica = fleet.replicas()[0];
    let mut body =
        json!({"model": MODEL, "max_output_tokens": 30, "instructions": QUESTION, "input": [turn("user", QUESTION)]});
    let first = post(replica, "/v1/responses", &body).await.json().await;
    let prompt = first["usage"]["input_tokens"].as_u64().unwrap();
    let input = body["input"].as_array_mut().unwrap();
    input.extend([first["output"][0].clone(), turn("user", "And now?")]);
    let second = post(replica, "/v1/responses", &body).await.json().await;
    assert_eq!(second["usage"]["input_tokens_details"]["cached_tokens"], expected(prompt, 30));
}

#[tokio::test]
async fn a_model_that_ends_its_answer_itself_leaves_the_same_prefix() {
    let fleet = start(homing_bench::fleet::FleetConfig { answer_tokens: Some(20), ..config() }).await;
    let mut body = json!({"model": MODEL, "max_tokens": 100, "messages": [turn("user", QUESTION)]});
    let first = post(fleet.replicas()[0], "/v1/chat/completions", &body).await.json().await;
    assert_eq!(
        (&first["choices"][0]["finish_reason"], &first["usage"]["completion_tokens"]),
        (&json!("stop"), &json!(20))
    );
    let said = first["choices"][0]["message"]["content"].as_str().unwrap();
    body["messages"].as_array_mut().unwrap().extend([turn("assistant", said), turn("user", "And now?")]);
    let second = post(fleet.replicas()[0], "/v1/chat/completions", &body).await.json().await;
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], expected(prompt, 20));
}

#[tokio::test]
async fn the_counters_tell_what_the_answers_told() {
    let fleet = start(config()).await;
    let replica = fleet.replicas()[0];
    let body = json!({"model": MODEL, "max_tokens": 5, "messages": [turn("user", QUESTION)]});
    let usage = post(replica, "/v1/chat/completions", &body).await.json().await["usage"].clone();
    let again = post(replica, "/v1/chat/completions", &body).await.json().await["usage"].clone();
    let prompt = usage["prompt_tokens"].as_f64().unwrap();
    let cached = again["prompt_tokens_details"]["cached_tokens"].as_f64().unwrap();
    assert!(cached > 0.0);
    let page = get(replica, "/metrics").await.text().await;
    assert_eq!(sample(&page, "vllm:prefix_cache_queries_total", ""), 2.0 * prompt);
    assert_eq!(sample(&page, "vllm:prefix_cache_hits_total", ""), cached);
    assert_eq!(sample(&page, "vllm:prompt_tokens_by_source_total", "local_cache_hit"), cached);
    assert_eq!(sample(&page, "vllm:generation_tokens_total", ""), 10.0);
    assert_eq!(sample(&page, "vllm:request_success_total", "length"), 2.0);
    assert_eq!(sample(&page, "vllm:time_to_first_token_seconds_count", ""), 2.0);
    assert_eq!(sample(&page, "vllm:inter_token_latency_seconds_count", ""), 8.0);
    assert_eq!(metric(fleet.replicas()[1], "vllm:prompt_tokens_total").await, 0.0);
}
