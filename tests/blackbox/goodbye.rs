//! What becomes of the requests on a connection of HTTP/2 whose engine says goodbye, before, in and after each.

use serde_json::json;

use crate::harness::goaway_engine::GoawayEngine;
use crate::harness::*;

const ANSWER: &[u8] = br#"{"id": "a"}"#;

/// In one conversation, which lives at the engine that is listed first. Its body takes two frames.
fn turn() -> Ask {
    Ask::chat("m", &"0123456789".repeat(2_500)).session("conversation-a")
}

async fn balancer(engine: &GoawayEngine, other: &Engine) -> Balancer {
    let replicas = json!([{"url": format!("http://{}", engine.address), "http2": true}, {"url": other.url()}]);
    Balancer::start(json!({"models": [{"name": "m", "replicas": replicas, "admission": "off"}]})).await
}

#[tokio::test]
async fn between_requests_nobody_notices() {
    let (mut engine, other) = (GoawayEngine::start().await, Engine::start().await);
    let balancer = balancer(&engine, &other).await;
    let mut client = balancer.client().await;
    for nth in 0..3 {
        client.send(&turn()).await;
        let mut turn = engine.turn().await;
        turn.answer(ANSWER, true).await;
        client.response("POST").await.is(if nth == 0 { "placed" } else { "sticky" });
        turn.goodbye(turn.stream).await;
        // It is used no more; the next turn comes on another.
        turn.ended().await;
    }
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
    assert!(other.last().body == turn().body, "the body differs");
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

/// As over HTTP/1: what was closed without a byte is tried again, what was not is broken off.
#[tokio::test]
async fn an_answer_that_was_begun_is_not() {
    let (mut engine, other) = (GoawayEngine::start().await, Engine::start().await);
    let balancer = balancer(&engine, &other).await;
    let mut client = balancer.client().await;
    client.send(&turn()).await;
    let begun = engine.turn().await;
    begun.answer(b"{", false).await;
    assert_eq!(client::status(&client.head().await), 200);
    begun.goodbye(begun.stream).await;
    begun.close().await;
    within("the end", client.wire.closed()).await;
    assert_eq!((other.turns(), engine.is_quiet(), balancer.idle().await.total("failed_over")), (0, true, 0));

    let mut client = balancer.client().await;
    client.send(&turn()).await;
    let unanswered = engine.turn().await;
    unanswered.goodbye(unanswered.stream).await;
    unanswered.close().await;
    client.response("POST").await.from(&other);
}
