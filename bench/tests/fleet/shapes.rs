//! The same keys as in the answers of a real vLLM 0.32, event for event.

use std::collections::{BTreeMap, BTreeSet};

use homing_bench::fleet::FleetConfig;
use serde_json::{Value, json};

use crate::support::{MODEL, chat, config, events, get, post, post_with, start, streamed};

macro_rules! capture {
    ($name:literal) => {
        include_str!(concat!("../samples/", $name))
    };
}

/// The keys of a value and the types of what they hold. A list has the shapes of its elements, each once.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
        Value::Array(elements) => {
            let mut shapes: Vec<_> = elements.iter().map(shape).collect();
            shapes.dedup();
            shapes.into()
        }
        Value::String(_) => "string".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "bool".into(),
        Value::Null => "null".into(),
    }
}

fn same_json(ours: &Value, captured: &str) {
    assert_eq!(shape(ours), shape(&serde_json::from_str(captured).unwrap()));
}

/// Names and shapes of the events, those in a row that are alike once; and whether the stream ended with `[DONE]`.
fn stream_shape(text: &str) -> (Vec<String>, Vec<Value>, bool) {
    let mut names: Vec<_> = text.lines().filter(|line| line.starts_with("event: ")).map(str::to_owned).collect();
    names.dedup();
    let mut shapes: Vec<_> = events(text).iter().map(shape).collect();
    shapes.dedup();
    (names, shapes, text.ends_with("data: [DONE]\n\n"))
}

async fn same_stream(config: FleetConfig, path: &str, body: Value, captured: &str) {
    let fleet = start(config).await;
    let ours = post(fleet.replicas()[0], path, &body).await.text().await;
    assert_eq!(stream_shape(&ours), stream_shape(captured));
}

fn messages() -> Value {
    json!({"model": MODEL, "max_tokens": 8, "system": [{"type": "text", "text": "You help."}],
           "messages": [{"role": "user", "content": "Hello there"}]})
}

#[tokio::test]
async fn answers_in_one_piece() {
    let fleet = start(config()).await;
    let replica = fleet.replicas()[0];
    same_json(
        &post(replica, "/v1/chat/completions", &chat(8)).await.json().await,
        capture!("openai-chat-nonstream.body"),
    );
    let message = post(replica, "/v1/messages", &messages()).await.json().await;
    same_json(&message, capture!("anthropic-messages-nonstream.body"));
    let count = post(replica, "/v1/messages/count_tokens", &messages()).await.json().await;
    same_json(&count, capture!("anthropic-count-tokens.body"));
    same_json(&get(replica, "/v1/models").await.json().await, capture!("get-v1-models.body"));
    same_json(&get(replica, "/load").await.json().await, capture!("get-load.body"));
    let version: Value = serde_json::from_str(capture!("get-version.body")).unwrap();
    assert_eq!(get(replica, "/version").await.json().await, version);
    for path in ["/health", "/ping"] {
        let answer = get(replica, path).await;
        assert_eq!((answer.status, answer.text().await.as_str()), (200, ""));
    }
}

#[tokio::test]
async fn a_chat_stream_with_usage() {
    let mut body = streamed(chat(8));
    body["stream_options"] = json!({"include_usage": true});
    same_stream(config(), "/v1/chat/completions", body, capture!("openai-chat-stream-turn2.body")).await;
}

#[tokio::test]
async fn a_chat_stream_without_usage() {
    let body = streamed(chat(8));
    same_stream(config(), "/v1/chat/completions", body, capture!("openai-chat-stream-nousage.body")).await;
}

#[tokio::test]
async fn a_chat_stream_that_the_model_ends_with_usage_in_every_chunk() {
    let config = FleetConfig { answer_tokens: Some(8), ..config() };
    let mut body = streamed(chat(100));
    body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    // The captured model ended with a token that its configuration lists as a stop; ours ends with its end token.
    let captured = capture!("openai-chat-stream-contusage.body").replace("\"stop_reason\":0", "\"stop_reason\":null");
    same_stream(config, "/v1/chat/completions", body, &captured).await;
}

#[tokio::test]
async fn a_message_stream() {
    same_stream(config(), "/v1/messages", streamed(messages()), capture!("anthropic-messages-stream-turn2.body")).await;
}

#[tokio::test]
async fn a_completion_stream() {
    let body = json!({"model": MODEL, "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 8,
                      "prompt": "Once upon a time"});
    same_stream(config(), "/v1/completions", body, capture!("openai-completions-stream.body")).await;
}

#[tokio::test]
async fn a_response_stream() {
    let body = json!({"model": MODEL, "stream": true, "max_output_tokens": 8, "input": "Hello there", "store": false});
    same_stream(config(), "/v1/responses", body, capture!("openai-responses-stream.body")).await;
}

#[tokio::test]
async fn a_response_in_one_piece_is_the_one_a_stream_ends_with() {
    let fleet = start(config()).await;
    let mut body = json!({"model": MODEL, "max_output_tokens": 8, "input": "Hello there"});
    let whole = post(fleet.replicas()[0], "/v1/responses", &body).await.json().await;
    body["stream"] = true.into();
    let stream = post(fleet.replicas()[0], "/v1/responses", &body).await.text().await;
    let last = &events(&stream).pop().unwrap()["response"];
    assert_eq!(shape(&whole), shape(last));
    assert_eq!(whole["output"][0]["content"], last["output"][0]["content"]);
}

#[tokio::test]
async fn a_completion_in_one_piece_says_what_its_stream_says() {
    let fleet = start(config()).await;
    let mut body = json!({"model": MODEL, "max_tokens": 8, "prompt": "Once upon a time"});
    let whole = post(fleet.replicas()[0], "/v1/completions", &body).await.json().await;
    body["stream"] = true.into();
    let stream = post(fleet.replicas()[0], "/v1/completions", &body).await.text().await;
    let text: String =
        events(&stream).iter().map(|event| event["choices"][0]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(whole["choices"][0]["text"], text.as_str());
    assert_eq!(whole["usage"]["completion_tokens"], 8);
}

#[tokio::test]
async fn errors_are_vllms_in_both_dialects() {
    let fleet = start(config()).await;
    let replica = fleet.replicas()[0];
    let long = "four".repeat(32_768);
    let wrong_model = json!({"model": "nope", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]});
    let too_long = json!({"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": long}]});
    let cases = [
        ("/v1/chat/completions", &wrong_model, 404, capture!("err-openai-wrong-model.body")),
        ("/v1/messages", &wrong_model, 404, capture!("err-anthropic-wrong-model.body")),
        ("/v1/chat/completions", &too_long, 400, capture!("err-openai-too-long.body")),
        ("/v1/messages", &too_long, 400, capture!("err-anthropic-too-long.body")),
    ];
    for (path, body, status, captured) in cases {
        let answer = post(replica, path, body).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.json().await, serde_json::from_str::<Value>(captured).unwrap());
    }
    // The words of a JSON error are the parser's; the rest is vLLM's.
    let cases = [
        ("/v1/chat/completions", capture!("err-openai-bad-json.body")),
        ("/v1/messages", capture!("err-anthropic-bad-json.body")),
    ];
    for (path, captured) in cases {
        let answer = post_with(replica, path, &[], "{\"model\":").await;
        assert_eq!(answer.status, 400);
        let (error, captured) = (answer.json().await, serde_json::from_str::<Value>(captured).unwrap());
        assert_eq!(shape(&error), shape(&captured));
        assert_eq!(
            (&error["error"]["type"], &error["error"]["param"]),
            (&captured["error"]["type"], &captured["error"]["param"])
        );
    }
    for (path, body) in [("/v1/chat/completions", json!({})), ("/v1/messages", json!({"messages": []}))] {
        assert_eq!(post(replica, path, &body).await.status, 400, "{path} {body}");
    }
    assert_eq!(get(replica, "/v1/responses/resp_1").await.status, 404);
    assert_eq!(get(replica, "/no/such/route").await.status, 404);
}

#[tokio::test]
async fn an_answer_has_the_identifier_of_its_request() {
    let fleet = start(config()).await;
    let headers = [("x-request-id", "req-1")];
    let body = chat(1).to_string();
    let answer = post_with(fleet.replicas()[0], "/v1/chat/completions", &headers, &body).await.json().await;
    assert_eq!(answer["id"], "chatcmpl-req-1");
}

#[tokio::test]
async fn tokenize_counts_what_a_prompt_will_cost() {
    let fleet = start(config()).await;
    let replica = fleet.replicas()[0];
    let tokens = post(replica, "/tokenize", &chat(1)).await.json().await;
    let usage = &post(replica, "/v1/chat/completions", &chat(1)).await.json().await["usage"];
    assert_eq!(tokens["count"], usage["prompt_tokens"]);
    assert_eq!(tokens["tokens"].as_array().unwrap().len() as u64, tokens["count"]);
    assert_eq!(tokens["max_model_len"], 32_768);
}

/// The type of each family, and the label names and bucket bounds of each sample.
type Page = (BTreeMap<String, String>, BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>);

fn parse_metrics(text: &str) -> Page {
    let (mut types, mut samples) = (BTreeMap::new(), BTreeMap::<_, (BTreeSet<_>, BTreeSet<_>)>::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            types.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let labels = rest.rsplit_once(' ').unwrap().0.trim_matches(['{', '}']);
            let (names, bounds) = samples.entry(name.to_owned()).or_default();
            for (label, value) in labels.split("\",").filter_map(|label| label.split_once("=\"")) {
                names.insert(label.to_owned());
                bounds.extend((label == "le").then(|| value.trim_matches('"').to_owned()));
            }
        }
    }
    (types, samples)
}

#[tokio::test]
async fn metrics_have_vllms_names_types_labels_and_buckets() {
    let fleet = start(config()).await;
    let page = get(fleet.replicas()[0], "/metrics").await.text().await;
    let ((types, samples), (real_types, real_samples)) = (parse_metrics(&page), parse_metrics(capture!("metrics.txt")));
    for (name, kind) in &types {
        assert_eq!(Some(kind), real_types.get(name), "{name}");
    }
    for (name, (labels, bounds)) in &samples {
        let (real_labels, real_bounds) = real_samples.get(name).unwrap_or_else(|| panic!("vLLM has no {name}"));
        assert_eq!(bounds, real_bounds, "{name}");
        if name == "vllm:cache_config_info" {
            assert!(labels.is_subset(real_labels), "{labels:?}");
        } else {
            assert_eq!(labels, real_labels, "{name}");
        }
    }
    assert!(page.contains("block_size=\"16\"") && page.contains("num_gpu_blocks=\"2625\""));
}
