//! A client that goes away takes its request with it.

use homing_bench::fleet::FleetConfig;

use crate::support::{chat, config, eventually_metric, get, post, sample, start, streamed};

/// Real time, so that the answers would take minutes.
fn unhurried() -> FleetConfig {
    FleetConfig { speed: 1.0, ..config() }
}

async fn is_idle_after_an_abort(replica: std::net::SocketAddr) {
    eventually_metric(replica, "vllm:num_requests_running", 0.0).await;
    let page = get(replica, "/metrics").await.text().await;
    assert_eq!(sample(&page, "vllm:kv_cache_usage_perc", ""), 0.0);
    assert_eq!(sample(&page, "vllm:request_success_total", "abort"), 1.0);
}

#[tokio::test]
async fn a_dropped_stream_frees_its_blocks() {
    let fleet = start(unhurried()).await;
    let replica = fleet.replicas()[0];
    let mut answer = post(replica, "/v1/chat/completions", &streamed(chat(10_000))).await;
    answer.read_until("content").await;
    let page = get(replica, "/metrics").await.text().await;
    assert_eq!(sample(&page, "vllm:num_requests_running", ""), 1.0);
    assert!(sample(&page, "vllm:kv_cache_usage_perc", "") > 0.0);
    drop(answer);
    is_idle_after_an_abort(replica).await;
}

#[tokio::test]
async fn a_dropped_request_that_is_not_streamed_frees_its_blocks() {
    let fleet = start(unhurried()).await;
    let replica = fleet.replicas()[0];
    let request = tokio::spawn(async move { post(replica, "/v1/chat/completions", &chat(10_000)).await });
    eventually_metric(replica, "vllm:num_requests_running", 1.0).await;
    request.abort();
    is_idle_after_an_abort(replica).await;
}
