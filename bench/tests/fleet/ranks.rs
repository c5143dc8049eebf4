//! Data-parallel ranks behind one port.

use homing_bench::fleet::FleetConfig;
use serde_json::{Value, json};

use crate::support::{MODEL, chat, config, get, post, post_with, sample, start, streamed};

fn two_ranks() -> FleetConfig {
    FleetConfig { data_parallel: true, ..config() }
}

#[tokio::test]
async fn the_header_chooses_the_rank_and_with_it_the_cache() {
    let fleet = start(two_ranks()).await;
    assert_eq!(fleet.replicas().len(), 1);
    let replica = fleet.replicas()[0];
    let body = chat(4).to_string();
    let mut cached = Vec::new();
    for rank in ["1", "1", "0"] {
        let headers = [("X-data-parallel-rank", rank)];
        let answer = post_with(replica, "/v1/chat/completions", &headers, &body).await.json().await;
        cached.push(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap());
    }
    assert!(cached[0] == 0 && cached[1] > 0 && cached[2] == 0, "{cached:?}");
    let page = get(replica, "/metrics").await.text().await;
    let finished = |rank| sample(&page, "vllm:e2e_request_latency_seconds_count", rank);
    assert_eq!((finished("engine=\"0\""), finished("engine=\"1\"")), (1.0, 2.0));
}

#[tokio::test]
async fn requests_without_the_header_take_idle_ranks_in_turn() {
    let fleet = start(two_ranks()).await;
    for _ in 0..4 {
        assert_eq!(
            post(fleet.replicas()[0], "/v1/chat/completions", &chat(2)).await.json().await["object"],
            "chat.completion"
        );
    }
    let page = get(fleet.replicas()[0], "/metrics").await.text().await;
    for rank in ["engine=\"0\"", "engine=\"1\""] {
        assert_eq!(sample(&page, "vllm:e2e_request_latency_seconds_count", rank), 2.0);
    }
}

#[tokio::test]
async fn requests_without_the_header_avoid_a_busy_rank() {
    let fleet = start(FleetConfig { speed: 1.0, ..two_ranks() }).await;
    let replica = fleet.replicas()[0];
    let headers = [("X-data-parallel-rank", "0")];
    let mut busy = post_with(replica, "/v1/chat/completions", &headers, &streamed(chat(10_000)).to_string()).await;
    busy.read_until("content").await;
    for _ in 0..3 {
        post(replica, "/v1/chat/completions", &chat(1)).await.json().await;
    }
    let page = get(replica, "/metrics").await.text().await;
    assert_eq!(sample(&page, "vllm:e2e_request_latency_seconds_count", "engine=\"1\""), 3.0);
}

#[tokio::test]
async fn a_rank_that_does_not_exist_is_an_error_and_one_that_is_no_number_is_none() {
    let fleet = start(two_ranks()).await;
    let replica = fleet.replicas()[0];
    let error = json!({"error": {"message": "data_parallel_rank 7 is out of range [0, 2).", "type": "BadRequestError",
                                 "param": null, "code": 400}});
    let headers = [("X-data-parallel-rank", "7")];
    let answer = post_with(replica, "/v1/chat/completions", &headers, &chat(1).to_string()).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json().await, error);
    // A stream has begun by then, so the error is inside.
    let answer = post_with(replica, "/v1/chat/completions", &headers, &streamed(chat(1)).to_string()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(crate::support::events(&answer.text().await), [error]);
    let headers = [("X-data-parallel-rank", "first")];
    assert_eq!(post_with(replica, "/v1/chat/completions", &headers, &chat(1).to_string()).await.status, 200);
}

#[tokio::test]
async fn responses_do_not_look_at_the_header() {
    let fleet = start(two_ranks()).await;
    let body = json!({"model": MODEL, "max_output_tokens": 1, "input": "Hello"}).to_string();
    let answer = post_with(fleet.replicas()[0], "/v1/responses", &[("X-data-parallel-rank", "7")], &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json().await["status"], Value::from("incomplete"));
}
