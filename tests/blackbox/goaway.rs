//! Engines of HTTP/2 that say goodbye: what they have not begun is tried again, what they have is not.

use serde_json::json;

use crate::harness::goaway_engine::GoawayEngine;
use crate::harness::*;

const ANSWER: &[u8] = br#"{"id": "a"}"#;

/// In one conversation, which lives at the engine that is listed first.
fn turn() -> Ask {
    Ask::chat("m", "Hello.").session("conversation-a")
}

async fn balancer(engine: &GoawayEngine, other: &Engine) -> Balancer {
    let replicas = json!([{"url": format!("http://{}", engine.address), "http2": true}, {"url": other.url()}]);
    Balancer::start(json!({"models": [{"name": "m", "replicas": replicas, "admission": "off"}]})).await
}

#[tokio::test]
async fn between_requests_nobody_notices() {
    let (mut engine, other) = (GoawayEngine::start().await, Engine::start().await);
    let balancer = balancer(&engine, &other).await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        let [answer] = <[_; 1]>::try_from(ask_all(balancer.listen, [turn()])).unwrap();
        let turn = engine.turn().await;
        turn.answer(ANSWER, true).await;
        assert_eq!(answer.await.unwrap().status, 200);
        turn.goodbye(turn.stream).await;
        connections.push(turn.connection);
    }
    connections.dedup();
    assert_eq!(connections.len(), 3, "each came on another connection");
    assert_eq!((other.turns(), balancer.idle().await.total("failed_over")), (0, 0));
}

#[tokio::test]
async fn a_request_that_was_not_begun_is_tried_again() {
    let (mut engine, other) = (GoawayEngine::start().await, Engine::start().await);
    let balancer = balancer(&engine, &other).await;
    let mut first = balancer.client().await;
    first.send(&turn()).await;
    let begun = engine.turn().await;
    let mut second = balancer.client().await;
    second.send(&turn()).await;
    let not_begun = engine.turn().await;
    assert_eq!(begun.connection, not_begun.connection);
    begun.goodbye(begun.stream).await;
    second.response("POST").await.from(&other);
    begun.answer(ANSWER, true).await;
    let answer = first.response("POST").await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, ANSWER));
    assert_eq!((other.turns(), engine.is_quiet()), (1, true));
    assert_eq!(balancer.idle().await.total("failed_over"), 1);
    // It said that it goes, not that it is gone: the conversation stays.
    second.send(&turn()).await;
    let next = engine.turn().await;
    next.answer(ANSWER, true).await;
    assert_eq!(second.response("POST").await.decision(), "sticky");
}

#[tokio::test]
async fn a_request_that_was_begun_is_not() {
    for answered in [false, true] {
        let (mut engine, other) = (GoawayEngine::start().await, Engine::start().await);
        let balancer = balancer(&engine, &other).await;
        let mut client = balancer.client().await;
        client.send(&turn()).await;
        let begun = engine.turn().await;
        if answered {
            begun.answer(b"{", false).await;
            assert_eq!(client::status(&client.head().await), 200);
        }
        begun.goodbye(begun.stream).await;
        begun.close().await;
        if answered {
            within("the end", client.wire.closed()).await;
        } else {
            assert_eq!(client.response("POST").await.status, 502);
        }
        assert_eq!((other.turns(), engine.is_quiet(), balancer.idle().await.total("failed_over")), (0, true, 0));
    }
}
