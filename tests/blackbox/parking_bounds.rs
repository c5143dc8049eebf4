//! What bounds the wait: its length, how many wait, and the bytes that they hold.

use serde_json::json;

use crate::harness::ask::DIALECTS;
use crate::harness::full::{Full, turn, turn_on};
use crate::harness::*;

/// Refused as each dialect has it: with what its clients know as "come again".
#[track_caller]
fn is_refused(answer: &Response, path: &str, code: &str) {
    let body = answer.json();
    let (status, kind) = match path {
        "/v1/messages" => (529, "overloaded_error"),
        _ => (503, "service_unavailable_error"),
    };
    assert_eq!((answer.status, answer.header("x-homing-error")), (status, Some(code)), "{body}");
    assert_eq!((&body["error"]["type"], &body["error"]["code"]), (&json!(kind), &json!(code)));
    assert_eq!(body["type"] == "error", path == "/v1/messages", "{body}");
    let seconds: u64 = answer.header("retry-after").and_then(|value| value.parse().ok()).expect("a number of seconds");
    assert!((1..=1800).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn one_who_waited_for_too_long_is_told_to_come_back() {
    let mut full = Full::start(json!({"max_wait": "0 s"})).await;
    for (n, path) in DIALECTS.into_iter().enumerate() {
        let ask = turn_on(path, "waits");
        // The connection stays good.
        let mut client = full.balancer.client().await;
        for _ in 0..2 {
            let answer = client.ask(&ask).await;
            is_refused(&answer, path, "admission_overdue");
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        let refused = 2.0 * (n as f64 + 1.0);
        full.balancer.metric_becomes("homing_parked_outcomes_total", &[("outcome", "overdue")], refused).await;
        full.balancer.metric_becomes("homing_errors_total", &[("code", "admission_overdue")], refused).await;
    }
    assert_eq!(full.engine.turns(), 2);
    full.empties().await;
}

#[tokio::test]
async fn one_who_comes_back_finds_its_place_in_line() {
    let mut full = Full::start(json!({"max_wait": "0 s"})).await;
    is_refused(&full.balancer.ask(&turn("early")).await, "/v1/chat/completions", "admission_overdue");
    full.reload(json!({})).await;
    // So does one whose connection was lost.
    drop(full.park(&turn("second"), 1).await);
    full.parked(0).await;
    let mut late = full.park(&turn("late"), 1).await;
    let mut second = full.park(&turn("second"), 2).await;
    let mut early = full.park(&turn("early"), 3).await;
    for (n, pair) in ["held-1", "early", "second", "late"].windows(2).enumerate() {
        full.end(pair[0]);
        full.came(3 + n, pair[1]).await;
    }
    full.end("late");
    for client in [&mut early, &mut second, &mut late] {
        client.response("POST").await.is("placed");
    }
    full.empties().await;
}

#[tokio::test]
async fn one_who_waited_for_too_long_is_sent_on_where_that_is_wanted() {
    let mut full = Full::start(json!({"max_wait": "0 s", "overdue": "admit"})).await;
    full.end("waits");
    full.balancer.ask(&turn("waits")).await.is("placed");
    full.balancer.metric_becomes("homing_parked_outcomes_total", &[("outcome", "forced")], 1.0).await;
    full.balancer.metric_becomes("homing_parked_outcomes_total", &[("outcome", "admitted")], 0.0).await;
    full.empties().await;
}

#[tokio::test]
async fn no_more_wait_than_may() {
    let mut full = Full::start(json!({"parked_max": 1})).await;
    let mut waits = full.park(&turn("waits"), 1).await;
    for (n, path) in DIALECTS.into_iter().enumerate() {
        let ask = turn_on(path, "too-many");
        is_refused(&full.balancer.ask(&ask).await, path, "admission_full");
        full.balancer.metric_becomes("homing_limits_hit_total", &[("limit", "parked")], n as f64 + 1.0).await;
        full.balancer.metric_becomes("homing_parked_outcomes_total", &[("outcome", "full")], n as f64 + 1.0).await;
    }
    full.reload(json!({"parked_max": 0})).await;
    assert_eq!(full.balancer.routing().await.parked(), 1, "who waits already goes on waiting");
    full.end("held-1");
    full.came(3, "waits").await;
    is_refused(&full.balancer.ask(&turn("too-many")).await, "/v1/chat/completions", "admission_full");
    full.end("waits");
    waits.response("POST").await.is("placed");
    full.empties().await;
}

/// A body that waits is held, and counts as one.
#[tokio::test]
async fn bodies_that_wait_count_towards_the_bytes_held() {
    let top = json!({"server": {"limits": {"body": "1 MiB", "buffered": "1 MiB"}}});
    let mut full = Full::start_with(top, json!({})).await;
    let large = |id: &str| turn(id).with(json!({"padding": "x".repeat(600_000)}));
    let mut waits = full.park(&large("waits"), 1).await;
    let bytes = large("waits").body.len() as f64;
    full.balancer.metric_becomes("homing_buffered_bytes", &[], bytes).await;
    let refused = full.balancer.ask(&large("too-many")).await;
    assert_eq!((refused.status, refused.header("x-homing-error")), (503, Some("overloaded")));
    drop(full.park(&turn("leaves"), 2).await);
    full.parked(1).await;
    full.balancer.metric_becomes("homing_buffered_bytes", &[], bytes).await;
    // It is larger than the cache: a replica that holds nothing takes anyone.
    for id in ["held-1", "held-2"] {
        full.end(id);
    }
    full.came(3, "waits").await;
    assert!(full.engine.last().body == large("waits").body);
    full.end("waits");
    waits.response("POST").await.is("placed");
    full.empties().await;
}
