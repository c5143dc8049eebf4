//! The harness proved on itself: its client asks its engine, with nothing between.

use crate::harness::ask::DIALECTS;
use crate::harness::vllm::{Usage, error, turn};
use crate::harness::wire::Framing;
use crate::harness::*;

#[tokio::test]
async fn a_request_arrives_as_it_was_sent() {
    let engine = Engine::start().await;
    let mut client = Client::connect(engine.address).await;
    let body: Vec<u8> = (0..200_000u32).map(|i| i.to_le_bytes()[1]).collect();
    let ask = Ask::new("POST", "/pooling?x=1").header("x-tag", "one").body(body.clone());
    for (nth, (ask, framing)) in
        [(ask.clone(), Framing::Length(body.len())), (ask.chunked(977), Framing::Chunked)].into_iter().enumerate()
    {
        assert_eq!(client.ask(&ask).await.status, 200);
        let seen = engine.last();
        assert_eq!((seen.method(), seen.target(), seen.path()), ("POST", "/pooling?x=1", "/pooling"));
        assert_eq!(seen.header("X-Tag"), Some("one"));
        assert_eq!((seen.framing, seen.nth_on_connection), (Some(framing), nth));
        assert!(seen.body == body, "the body differs");
    }
}

#[tokio::test]
async fn it_answers_in_both_dialects() {
    let engine = Engine::start().await;
    engine.reports(Usage { prompt: 50, cached: Some(20), completion: 3 });
    let mut client = Client::connect(engine.address).await;
    for path in DIALECTS {
        let whole = client.ask(&Ask::turn(path, "m", "Hello.")).await;
        let streamed = client.ask(&Ask::turn(path, "m", "Hello.").streamed()).await;
        let read = |json: &serde_json::Value| match path {
            "/v1/messages" => (json["input_tokens"].as_u64(), json["cache_read_input_tokens"].as_u64()),
            _ => (json["prompt_tokens"].as_u64(), json["prompt_tokens_details"]["cached_tokens"].as_u64()),
        };
        let expected = if path == "/v1/messages" { (Some(30), Some(20)) } else { (Some(50), Some(20)) };
        assert_eq!(read(&whole.json()["usage"]), expected);
        let text = streamed.text();
        let last =
            text.lines().rev().filter_map(|line| line.strip_prefix("data: {")).find(|line| line.contains("usage"));
        let last: serde_json::Value = serde_json::from_str(&format!("{{{}", last.expect("usage"))).unwrap();
        assert_eq!(read(&last["usage"]), expected);
    }
}

#[tokio::test]
async fn it_holds_and_lets_go() {
    let engine = Engine::start().await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut client = Client::connect(engine.address).await;
    client.send(&Ask::chat("m", "Hello.").streamed()).await;
    let head = client.head().await;
    assert!(client.piece().await.unwrap().contains("Do"));
    gate.open();
    assert!(client.rest(head, "POST").await.text().ends_with("[DONE]\n\n"));
}

#[tokio::test]
async fn it_sees_a_client_leave() {
    let engine = Engine::start().await;
    engine.holds(&Gate::shut());
    let mut client = Client::connect(engine.address).await;
    client.send(&Ask::chat("m", "Hello.").streamed()).await;
    client.head().await;
    drop(client);
    engine.saw("a client that left", |seen| seen.left == 1).await;
}

#[tokio::test]
async fn it_is_rude_when_told() {
    let mut engine = Engine::start().await;
    let ask = Ask::chat("m", "Hello.");
    for answer in [Answer::new().close(), Answer::new().reset()] {
        engine.answers(move |_| answer.clone());
        let mut client = Client::connect(engine.address).await;
        client.send(&ask).await;
        assert!(!matches!(client.wire.head().await, Ok(Some(_))), "an answer came");
    }
    engine.answers(|request| match request.nth_on_connection {
        0 => turn(request, vllm::USAGE),
        _ => Answer::new().close(),
    });
    let mut client = Client::connect(engine.address).await;
    assert_eq!(client.ask(&ask).await.status, 200);
    client.send(&ask).await;
    assert!(client.wire.head().await.unwrap().is_none());
    engine.answers(|_| error("503 Service Unavailable"));
    assert_eq!(Client::connect(engine.address).await.ask(&ask).await.status, 503);

    let mut client = Client::connect(engine.address).await;
    engine.refuse();
    client.wire.closed().await;
    until("a refusal", async || tokio::net::TcpStream::connect(engine.address).await.err()).await;
    engine.listen();
    assert_eq!(Client::connect(engine.address).await.ask(&ask).await.status, 503);
}

#[tokio::test]
async fn its_metrics_parse() {
    let engine = Engine::with_ranks(2).await;
    engine.vitals(|vitals| {
        vitals.ranks[0].kv_cache_usage = None;
        vitals.ranks[1].kv_cache_usage = Some(0.25);
        vitals.ranks[1].waiting = 3.0;
    });
    let text = Client::connect(engine.address).await.ask(&Ask::get("/metrics")).await.text();
    let samples = prometheus::Samples::parse(&text);
    assert_eq!(samples.with("vllm:kv_cache_usage_perc", &[]).count(), 1);
    assert_eq!(samples.sum("vllm:kv_cache_usage_perc", &[("engine", "1")]), 0.25);
    assert_eq!(samples.sum("vllm:num_requests_waiting", &[]), 3.0);
    assert_eq!(engine.turns(), 0);
}
