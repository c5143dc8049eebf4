//! Heads have a limit in bytes, in headers and in time; what is over it is told so.

use serde_json::{Value, json};

use crate::harness::*;

async fn balancer(engine: &Engine, limits: Value) -> Balancer {
    let mut config = one_model([engine], json!({}));
    config["server"] = json!({"limits": limits});
    Balancer::start(config).await
}

/// A head of exactly so many bytes and headers, with nothing behind it.
fn head(path: &str, bytes: usize, headers: usize) -> String {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n");
    head += &"x: 1\r\n".repeat(headers - 3);
    let rest = bytes - head.len() - "y: \r\n\r\n".len();
    format!("{head}y: {}\r\n\r\n", "y".repeat(rest))
}

#[tokio::test]
async fn a_head_at_the_limit_is_taken_and_one_beyond_is_not() {
    let engine = Engine::start().await;
    let balancer = balancer(&engine, json!({"header_bytes": "8 KiB", "headers": 20})).await;
    let mut refused = 0;
    for (path, anthropic) in [("/v1/messages", true), ("/v1/chat/completions", false)] {
        for (bytes, headers, limit) in [
            (8192, 20, None),
            (8193, 20, Some("header_bytes")),
            (200_000, 10, Some("header_bytes")),
            (4000, 21, Some("headers")),
        ] {
            let mut client = balancer.client().await;
            let _ = client.wire.send(head(path, bytes, headers).as_bytes()).await;
            let answer = client.response("POST").await;
            match limit {
                // An empty body names no model.
                None => assert_eq!(answer.header("x-homing-error"), Some("body_not_json"), "{bytes}, {headers}"),
                Some(limit) => {
                    refused += 1;
                    assert_eq!(answer.status, 431, "{bytes}, {headers}: {}", answer.text());
                    assert_eq!(answer.header("x-homing-error"), Some("headers_too_large"));
                    assert_eq!(answer.json()["type"] == "error", anthropic);
                    assert!(balancer.metrics().await.sum("homing_limits_hit_total", &[("limit", limit)]) >= 1.0);
                }
            }
        }
    }
    balancer.metric_becomes("homing_errors_total", &[("code", "headers_too_large")], f64::from(refused)).await;
    assert_eq!(engine.turns(), 0);
}

/// One that never ends is cut off at the limit, whatever its pieces.
#[tokio::test]
async fn a_head_without_an_end_is_cut_off() {
    let engine = Engine::start().await;
    let balancer = balancer(&engine, json!({"header_bytes": "4 KiB"})).await;
    for piece in ["x: 1\r\n".to_string(), "x".repeat(100), "y".repeat(3000)] {
        let mut client = balancer.client().await;
        client.send_bytes(b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: ").await;
        let endless = async {
            loop {
                if client.wire.send(piece.as_bytes()).await.is_err() {
                    return;
                }
            }
        };
        // The balancer answers, closes and lets the rest go unread.
        within("the end of the connection", endless).await;
    }
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "header_bytes")], 3.0).await;
    assert_eq!(balancer.metrics().await.sum("homing_connections", &[]), 0.0);
}

/// The same for every request of a connection, from its first byte.
#[tokio::test]
async fn a_head_that_comes_too_slowly_is_told_so() {
    let engine = Engine::start().await;
    let balancer = balancer(&engine, json!({"header_read": "300 ms"})).await;
    let mut client = balancer.client().await;
    for whole_before in [0, 1, 2] {
        for _ in 0..whole_before {
            assert_eq!(client.ask(&Ask::chat("m", "Hello.")).await.status, 200);
        }
        client.send_bytes(b"POST /v1/messages HTTP/1.1\r\nhost: a\r\n").await;
        let answer = client.response("POST").await;
        assert_eq!((answer.status, answer.header("x-homing-error")), (408, Some("header_timeout")));
        assert_eq!(answer.json()["error"]["type"], "timeout_error");
        within("the end of the connection", client.wire.closed()).await;
        client = balancer.client().await;
    }
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "header_read")], 3.0).await;
    // One that has sent nothing is closed without a word, which it could take for the answer to its next request.
    assert!(within("the end", client.wire.closed_or_head()).await.is_none());
}

/// What 300 clients that never end their heads may hold, half of whom never stop sending either.
#[tokio::test]
async fn unfinished_heads_hold_little_memory() {
    const KIB_EACH_MAX: u64 = 256;
    let engine = Engine::start().await;
    let balancer = balancer(&engine, json!({"header_read": "5 min"})).await;
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.")).await.status, 200);
    let before = balancer.resident_bytes();
    let mut clients = Vec::new();
    for n in 0..300 {
        let mut client = balancer.client().await;
        let size = if n % 2 == 0 { 60_000 } else { 1_000_000 };
        // The larger one is refused before all of it is sent.
        let head = format!("GET /v1/models HTTP/1.1\r\nhost: a\r\nx: {}", "x".repeat(size));
        let _ = client.wire.send(head.as_bytes()).await;
        clients.push(client);
    }
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "header_bytes")], 150.0).await;
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.")).await.status, 200);
    let held = balancer.resident_bytes().saturating_sub(before);
    assert!(held < 300 * KIB_EACH_MAX * 1024, "{} KiB each", held / 300 / 1024);
}
