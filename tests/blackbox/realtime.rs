//! `/v1/realtime`: a WebSocket that passes through, and counts until it closes.

use serde_json::json;

use crate::harness::client::status;
use crate::harness::engine::Speaks;
use crate::harness::*;

const SWITCHES: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
    sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Open at once at one replica: just under what makes it spill.
const OPEN: u64 = 60;

fn handshake(target: &str) -> Ask {
    Ask::get(target)
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "realtime")
}

/// Bytes that no text would survive.
const HELLO: &[u8] = b"\x81\x85\x00\x01\x02\x03hello\r\n\r\n";
const AUDIO: &[u8] = b"\x82\x04\xff\x00\x0d\x0a";

/// An engine that greets back, and says one more thing when the gate is open.
fn talks(engine: &Engine, gate: &Gate) {
    let gate = gate.clone();
    engine.answers(move |request| match request.path() {
        "/v1/realtime" => {
            Answer::new().send(SWITCHES).receive(HELLO).send(AUDIO).wait(&gate).receive(AUDIO).send(HELLO).close()
        }
        _ => vllm::turn(request, vllm::USAGE),
    });
}

async fn opened(balancer: &Balancer, ask: &Ask) -> Client {
    let mut client = balancer.client().await;
    client.send(ask).await;
    let head = client.head().await;
    assert_eq!(status(&head), 101, "{head:?}");
    assert_eq!(head.header("upgrade"), Some("websocket"));
    assert_eq!(head.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    client
}

async fn reads(client: &mut Client, bytes: &[u8]) {
    assert_eq!(within("bytes", client.wire.bytes(bytes.len())).await.expect("they come"), bytes);
}

#[tokio::test]
async fn it_passes_both_ways_and_is_in_flight_until_it_closes() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let gate = Gate::shut();
    talks(&engine, &gate);
    let mut client = opened(&balancer, &handshake("/v1/realtime?model=m")).await;
    client.send_bytes(HELLO).await;
    reads(&mut client, AUDIO).await;
    let heard = engine.last();
    assert_eq!(heard.target(), "/v1/realtime?model=m");
    for (name, value) in
        [("upgrade", "websocket"), ("sec-websocket-version", "13"), ("sec-websocket-protocol", "realtime")]
    {
        assert_eq!(heard.header(name), Some(value));
    }
    assert!(heard.header("connection").is_some_and(|connection| connection.eq_ignore_ascii_case("upgrade")));
    let routing = balancer.routing().await;
    assert_eq!((routing.total("in_flight"), routing.of(&engine, "in_flight"), routing.decided()), (1, 1, 1));
    gate.open();
    client.send_bytes(AUDIO).await;
    reads(&mut client, HELLO).await;
    // The engine closes, and so does the balancer.
    within("the end", client.wire.closed()).await;
    balancer.idle().await;
    balancer.metric_becomes("homing_requests_total", &[("status", "1xx")], 1.0).await;
}

#[tokio::test]
async fn it_ends_when_the_client_leaves() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for reset in [false, true] {
        let gate = Gate::shut();
        talks(&engine, &gate);
        let left = usize::from(reset);
        let mut client = opened(&balancer, &handshake("/v1/realtime")).await;
        client.send_bytes(HELLO).await;
        reads(&mut client, AUDIO).await;
        if reset {
            client.wire.reset_on_drop();
        }
        drop(client);
        engine.saw("an ended connection", |seen| seen.left == left + 1).await;
        balancer.idle().await;
    }
    balancer.ask(&Ask::chat("m", "Hello.")).await;
}

#[tokio::test]
async fn an_engine_that_breaks_off_ends_it_without_another_word() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    engine.answers(|_| Answer::new().send(SWITCHES).receive(HELLO).send(AUDIO).receive(AUDIO).reset());
    let mut client = opened(&balancer, &handshake("/v1/realtime")).await;
    client.send_bytes(HELLO).await;
    reads(&mut client, AUDIO).await;
    client.send_bytes(AUDIO).await;
    // An answer of the balancer's own would be no frame.
    let head = within("the end", client.wire.closed_or_head()).await;
    assert!(head.is_none(), "{head:?}");
    balancer.idle().await;
    balancer.metric_becomes("homing_requests_total", &[("status", "broken")], 1.0).await;
}

/// The usual rule: home, also while others are less busy. None ends by itself, however soon its engine agrees.
#[tokio::test]
async fn it_goes_where_its_conversation_is() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.is("placed").from(&engines[0]);
    balancer.ask(&Ask::chat("m", "Hello.").session("conversation-b")).await.is("placed").from(&engines[1]);
    engines.iter().for_each(|engine| talks(engine, &Gate::shut()));
    let mut open = Vec::new();
    for _ in 0..OPEN {
        // Leaves a connection on which the engine agrees sooner than on a fresh one.
        balancer.ask(&Ask::chat("m", "Hello.").session("conversation-b")).await.is("sticky");
        open.push(opened(&balancer, &handshake("/v1/realtime").session("conversation-b")).await);
    }
    // The turns before may be counted out a moment after their answers.
    let routing = balancer.routing_when("all at home", |routing| routing.column("in_flight") == [0, OPEN]).await;
    assert_eq!(routing.total("sticky"), 2 * OPEN);
}

#[tokio::test]
async fn its_model_stands_in_the_query() {
    let engines = engines::<2>().await;
    engines.iter().for_each(|engine| talks(engine, &Gate::shut()));
    let models = [model("one", [&engines[0]], json!({})), model("two", [&engines[1]], json!({"aliases": ["gpt 4*"]}))];
    let balancer = Balancer::start(json!({"models": models})).await;
    let mut turns = [0, 0];
    for (query, which) in [("?model=one", 0), ("?x=1&model=two", 1), ("?model=gpt+4%6f", 1)] {
        opened(&balancer, &handshake(&format!("/v1/realtime{query}"))).await;
        turns[which] += 1;
        assert_eq!([engines[0].turns(), engines[1].turns()], turns, "{query}");
    }
    for (query, status, code) in [("", 400, "model_required"), ("?model=three", 404, "model_not_found")] {
        let refused = balancer.ask(&handshake(&format!("/v1/realtime{query}"))).await;
        assert_eq!((refused.status, refused.header("x-homing-error")), (status, Some(code)));
    }
}

#[tokio::test]
async fn another_replica_is_tried_when_one_refuses_and_an_engine_may_decline() {
    let mut engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    talks(&engines[1], &Gate::shut());
    engines[0].refuse();
    opened(&balancer, &handshake("/v1/realtime")).await;
    engines[1].answers(|_| vllm::error("403 Forbidden"));
    let mut client = balancer.client().await;
    let declined = client.ask(&handshake("/v1/realtime")).await;
    assert_eq!((declined.status, declined.json()["error"]["code"].as_u64()), (403, Some(403)));
    // The connection is one of HTTP still.
    engines[1].reports(vllm::USAGE);
    assert_eq!(client.ask(&Ask::chat("m", "Hello.")).await.status, 200);
    balancer.idle().await;
}

/// Over HTTP/2 nothing is upgraded: an engine that speaks both is asked over HTTP/1.1.
#[tokio::test]
async fn an_engine_of_http2_is_asked_over_http1() {
    let pki = Pki::new();
    let acceptor = pki.issue("engine", "127.0.0.1").acceptor(&["h2", "http/1.1"]);
    let engine = Engine::speaking(Speaks { tls: Some(acceptor), http2: true }, 1).await;
    let replica = json!({"url": engine.url(), "http2": "on", "tls": {"ca": pki.ca()}});
    let balancer = Balancer::start(json!({"models": [{"name": "m", "replicas": [replica]}]})).await;
    for _ in 0..2 {
        balancer.ask(&Ask::chat("m", "Hello.")).await.from(&engine);
        assert!(engine.last().head.start.ends_with("HTTP/2"), "{:?}", engine.last().head);
        talks(&engine, &Gate::shut());
        let mut client = opened(&balancer, &handshake("/v1/realtime")).await;
        client.send_bytes(HELLO).await;
        reads(&mut client, AUDIO).await;
        assert!(engine.last().head.start.ends_with("HTTP/1.1"), "{:?}", engine.last().head);
        engine.reports(vllm::USAGE);
    }
}

/// An engine that agreed to HTTP/1.1 only: a connection kept from another request is no good for one that switches.
#[tokio::test]
async fn it_gets_a_connection_of_its_own() {
    let pki = Pki::new();
    let acceptor = pki.issue("engine", "127.0.0.1").acceptor(&["http/1.1"]);
    let engine = Engine::speaking(Speaks { tls: Some(acceptor), http2: false }, 1).await;
    let replica = json!({"url": engine.url(), "http2": "on", "tls": {"ca": pki.ca()}});
    let balancer = Balancer::start(json!({"models": [{"name": "m", "replicas": [replica]}]})).await;
    for _ in 0..2 {
        balancer.ask(&Ask::chat("m", "Hello.")).await.from(&engine);
        balancer.idle().await;
        talks(&engine, &Gate::shut());
        opened(&balancer, &handshake("/v1/realtime")).await;
        assert_eq!(engine.last().nth_on_connection, 0);
        engine.reports(vllm::USAGE);
    }
}

#[tokio::test]
async fn without_an_upgrade_it_is_refused() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for ask in
        [Ask::get("/v1/realtime"), Ask::get("/v1/realtime").header("connection", "upgrade").header("upgrade", "h2c")]
    {
        let refused = balancer.ask(&ask).await;
        assert_eq!((refused.status, refused.header("x-homing-error")), (426, Some("upgrade_required")));
        assert_eq!(refused.header("upgrade"), Some("websocket"));
    }
    let with_body = handshake("/v1/realtime").header("content-length", "2").body("{}");
    assert_eq!(balancer.ask(&with_body).await.status, 400);
    assert_eq!(balancer.ask(&Ask::post("/v1/realtime", &json!({}))).await.status, 405);
    assert_eq!(engine.turns(), 0);
}
