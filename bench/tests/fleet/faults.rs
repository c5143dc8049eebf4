//! Each fault, asked for at the control address, and the way back.

use std::net::SocketAddr;
use std::time::Duration;

use homing_bench::fleet::{Fleet, FleetConfig};
use serde_json::{Value, json};

use crate::support::{
    Answer, MODEL, chat, config, events, eventually, eventually_metric, get, metric, post, start, streamed, try_get,
};

/// How long to watch for something that must not come.
const SILENCE: Duration = Duration::from_millis(200);

/// Answers that are minutes long in real time.
async fn unhurried() -> (Fleet, SocketAddr) {
    let fleet = start(FleetConfig { speed: 1.0, ..config() }).await;
    let replica = fleet.replicas()[0];
    (fleet, replica)
}

async fn set(fleet: &Fleet, fault: Value) {
    let mut body = fault;
    body["replica"] = 0.into();
    assert_eq!(post(fleet.control(), "/_fault", &body).await.status, 200);
}

async fn stream(replica: SocketAddr, max_tokens: u32) -> Answer {
    post(replica, "/v1/chat/completions", &streamed(chat(max_tokens))).await
}

async fn is_silent(answer: &mut Answer) -> bool {
    tokio::time::timeout(SILENCE, answer.next_piece()).await.is_err()
}

async fn eventually_refuses(replica: SocketAddr) {
    eventually("connections are refused", async || try_get(replica, "/health").await.is_err()).await;
}

async fn eventually_healthy(replica: SocketAddr) {
    let healthy = async || matches!(try_get(replica, "/health").await, Ok(answer) if answer.status == 200);
    eventually("the replica is healthy", healthy).await;
}

#[tokio::test]
async fn refuse_turns_new_connections_away_and_keeps_the_open_ones() {
    let (fleet, replica) = unhurried().await;
    let mut open = stream(replica, 10_000).await;
    open.read_until("content").await;
    set(&fleet, json!({"kind": "refuse"})).await;
    eventually_refuses(replica).await;
    open.read_until("content").await;
    assert_eq!(get(fleet.replicas()[1], "/health").await.status, 200);
    set(&fleet, json!({"kind": "ok"})).await;
    eventually_healthy(replica).await;
}

#[tokio::test]
async fn hang_stops_the_engine_behind_a_healthy_server() {
    let (fleet, replica) = unhurried().await;
    set(&fleet, json!({"kind": "hang"})).await;
    let mut answer = stream(replica, 5).await;
    assert_eq!(answer.status, 200);
    assert!(is_silent(&mut answer).await);
    assert_eq!(get(replica, "/health").await.status, 200);
    eventually_metric(replica, "vllm:num_requests_waiting", 1.0).await;
    set(&fleet, json!({"kind": "ok"})).await;
    assert!(answer.text().await.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn stall_stops_a_stream_in_its_middle() {
    let (fleet, replica) = unhurried().await;
    set(&fleet, json!({"kind": "stall", "after_tokens": 3})).await;
    let mut answer = stream(replica, 8).await;
    for _ in 0..3 {
        answer.read_until("\"content\":\"").await;
    }
    assert!(is_silent(&mut answer).await);
    // The engine knows nothing of it.
    eventually_metric(replica, "vllm:generation_tokens_total", 8.0).await;
    assert!(is_silent(&mut answer).await);
    set(&fleet, json!({"kind": "ok"})).await;
    assert!(answer.text().await.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn fail_ends_each_answer_with_an_error_at_an_engine_that_is_well() {
    let (fleet, replica) = unhurried().await;
    let message =
        json!({"model": MODEL, "max_tokens": 8, "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    for after_tokens in [0, 3] {
        set(&fleet, json!({"kind": "fail", "after_tokens": after_tokens})).await;
        let text = stream(replica, 8).await.text().await;
        assert_eq!(text.matches("\"content\":\"").count(), if after_tokens == 0 { 0 } else { 4 }, "{text}");
        assert_eq!(events(&text).pop().unwrap()["error"]["code"], json!(500));
        let text = post(replica, "/v1/messages", &message).await.text().await;
        assert_eq!(text.matches("text_delta").count(), after_tokens, "{text}");
        assert_eq!(events(&text).pop().unwrap()["type"], json!("error"));
        assert_eq!(post(replica, "/v1/chat/completions", &chat(8)).await.status, 500);
        assert_eq!(get(replica, "/health").await.status, 200);
    }
    set(&fleet, json!({"kind": "ok"})).await;
    assert!(stream(replica, 8).await.text().await.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn die_cuts_every_connection_and_the_next_process_is_new() {
    let (fleet, replica) = unhurried().await;
    post(replica, "/v1/chat/completions", &chat(1)).await.json().await;
    let started = metric(replica, "process_start_time_seconds").await;
    let mut answer = stream(replica, 10_000).await;
    answer.read_until("content").await;
    set(&fleet, json!({"kind": "die"})).await;
    let (_, complete) = answer.rest().await;
    assert!(!complete, "the stream was cut");
    eventually_refuses(replica).await;
    set(&fleet, json!({"kind": "ok"})).await;
    eventually_healthy(replica).await;
    assert!(metric(replica, "process_start_time_seconds").await > started);
    assert_eq!(metric(replica, "vllm:prompt_tokens_total").await, 0.0);
}

#[tokio::test]
async fn restart_empties_the_cache_and_counts_from_zero() {
    let (fleet, replica) = unhurried().await;
    let cached = async || {
        let answer = post(replica, "/v1/chat/completions", &chat(1)).await.json().await;
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached().await, 0);
    assert!(cached().await > 0);
    set(&fleet, json!({"kind": "restart"})).await;
    let back = async || {
        let page = match try_get(replica, "/metrics").await {
            Ok(answer) => answer.rest().await.0,
            Err(_) => return false,
        };
        page.contains("vllm:prompt_tokens_total{engine=\"0\",model_name=\"tiny\"} 0.0")
    };
    eventually("a new process serves", back).await;
    assert_eq!(cached().await, 0);
}

#[tokio::test]
async fn a_dead_engine_ends_its_streams_with_an_error_and_fails_its_health() {
    let (fleet, replica) = unhurried().await;
    let message =
        json!({"model": MODEL, "max_tokens": 10_000, "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    let (mut chat_stream, mut message_stream) =
        (stream(replica, 10_000).await, post(replica, "/v1/messages", &message).await);
    chat_stream.read_until("content").await;
    message_stream.read_until("text_delta").await;
    set(&fleet, json!({"kind": "engine_dead"})).await;
    let text = chat_stream.text().await;
    let error = events(&text).pop().unwrap();
    assert_eq!((&error["error"]["type"], &error["error"]["code"]), (&json!("InternalServerError"), &json!(500)));
    assert!(text.ends_with("data: [DONE]\n\n"));
    let error = events(&message_stream.text().await).pop().unwrap();
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("internal_error")));
    assert_eq!(get(replica, "/health").await.status, 503);
    assert_eq!(post(replica, "/v1/chat/completions", &chat(1)).await.status, 500);
    set(&fleet, json!({"kind": "ok"})).await;
    eventually_healthy(replica).await;
    assert_eq!(post(replica, "/v1/chat/completions", &chat(1)).await.status, 200);
}

/// The process after it is new, whatever was before it.
#[tokio::test]
async fn an_engine_that_is_dead_from_the_start_is_replaced_too() {
    let (fleet, replica) = unhurried().await;
    set(&fleet, json!({"kind": "die"})).await;
    eventually_refuses(replica).await;
    set(&fleet, json!({"kind": "engine_dead"})).await;
    eventually(
        "it is there and dead",
        async || matches!(try_get(replica, "/health").await, Ok(answer) if answer.status == 503),
    )
    .await;
    set(&fleet, json!({"kind": "ok"})).await;
    eventually_healthy(replica).await;
    assert_eq!(post(replica, "/v1/chat/completions", &chat(1)).await.status, 200);
}

#[tokio::test]
async fn slow_stretches_every_step() {
    let (fleet, _) = unhurried().await;
    set(&fleet, json!({"kind": "slow", "factor": 4})).await;
    let mut seconds = Vec::new();
    for replica in fleet.replicas() {
        post(*replica, "/v1/chat/completions", &chat(2)).await.json().await;
        seconds.push(metric(*replica, "vllm:request_inference_time_seconds_sum").await);
    }
    let ratio = seconds[0] / seconds[1];
    assert!((3.999..4.001).contains(&ratio), "{ratio}");
}

#[tokio::test]
async fn stale_metrics_do_not_move() {
    let (fleet, replica) = unhurried().await;
    set(&fleet, json!({"kind": "stale_metrics"})).await;
    let before = get(replica, "/metrics").await.text().await;
    post(replica, "/v1/chat/completions", &chat(1)).await.json().await;
    assert_eq!(get(replica, "/metrics").await.text().await, before);
    set(&fleet, json!({"kind": "ok"})).await;
    assert!(metric(replica, "vllm:prompt_tokens_total").await > 0.0);
}

#[tokio::test]
async fn a_starting_server_answers_503_in_both_dialects() {
    let (fleet, replica) = unhurried().await;
    set(&fleet, json!({"kind": "starting"})).await;
    for path in ["/health", "/metrics", "/v1/models"] {
        assert_eq!(get(replica, path).await.status, 503, "{path}");
    }
    let openai = post(replica, "/v1/chat/completions", &chat(1)).await;
    assert_eq!((openai.status, openai.json().await["error"]["code"].clone()), (503, json!(503)));
    let anthropic = post(replica, "/v1/messages", &chat(1)).await;
    assert_eq!((anthropic.status, anthropic.json().await["type"].clone()), (503, json!("error")));
    set(&fleet, json!({"kind": "ok"})).await;
    assert_eq!(get(replica, "/health").await.status, 200);
}

#[tokio::test]
async fn without_a_replica_the_fault_is_everyones() {
    let fleet = start(config()).await;
    post(fleet.control(), "/_fault", &json!({"kind": "starting"})).await;
    for replica in fleet.replicas() {
        assert_eq!(get(*replica, "/health").await.status, 503);
    }
}

#[tokio::test]
async fn what_is_no_fault_is_refused_with_a_reason() {
    let fleet = start(config()).await;
    let cases = [
        (json!({"kind": "explode"}), "explode"),
        (json!({"kind": "hang", "replica": 2}), "replica"),
        (json!({"kind": "slow", "factor": 0.0}), "factor"),
        (json!({"kind": "restart", "down_s": -1.0}), "down_s"),
        (json!({"kind": "hang", "seconds": 3}), "seconds"),
        (json!(["hang"]), "object"),
    ];
    for (body, named) in cases {
        let answer = post(fleet.control(), "/_fault", &body).await;
        assert_eq!(answer.status, 400, "{body}");
        let error = answer.json().await;
        assert!(error["error"].as_str().unwrap().contains(named), "{body}: {error}");
    }
}
