//! What a client may do on one HTTP/2 connection, and what follows when it does more.

use serde_json::{Value, json};

use crate::harness::h2_client::request;
use crate::harness::raw_h2::{Fate, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE, RawH2};
use crate::harness::*;

fn limited(engine: &Engine, server: Value) -> Value {
    let mut config = one_model([engine], json!({}));
    config["server"] = server;
    config
}

#[tokio::test]
async fn a_client_is_told_what_it_may() {
    let engine = Engine::start().await;
    let cases = [
        (json!({}), [100, 64 << 10, 1 << 20]),
        (json!({"streams": 7, "header_list": "8 KiB", "window": "4 MiB"}), [7, 8 << 10, 4 << 20]),
    ];
    for (http2, [streams, header_list, window]) in cases {
        let balancer = Balancer::start(limited(&engine, json!({"http2": http2}))).await;
        let (settings, of_all) = RawH2::connect(balancer.listen).await.allowed().await;
        let names = [MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE, INITIAL_WINDOW_SIZE];
        assert_eq!(names.map(|name| settings.get(&name).copied()), [streams, header_list, window].map(Some), "{http2}");
        assert_eq!(of_all, window, "{http2}");
    }
}

#[tokio::test]
async fn streams_at_once_have_a_limit() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"http2": {"streams": 2}}))).await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut client = H2Client::connect(balancer.listen).await;
    // The client knows the limit once it has had an answer.
    assert_eq!(client.ask(&Ask::get("/health")).await.status, 200);
    let held = [client.send(&Ask::chat("m", "1")).await, client.send(&Ask::chat("m", "2")).await];
    engine.saw_turns(2).await;
    let third = client.begin(request(&Ask::get("/health")), true).await;
    let waits = async { third.expect("it is queued").response().await.expect("an answer") };
    tokio::pin!(waits);
    assert!(futures::poll!(&mut waits).is_pending(), "there is no room for it yet");
    gate.open();
    for exchange in held {
        exchange.response().await.expect("an answer").from(&engine);
    }
    assert_eq!(waits.await.status, 200);
}

#[tokio::test]
async fn headers_have_a_limit() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"http2": {"header_list": "4 KiB"}}))).await;
    let mut client = H2Client::connect(balancer.listen).await;
    let ask = |size: usize| Ask::chat("m", "Hello.").header("x-long", &"x".repeat(size));
    assert_eq!(client.ask(&ask(3000)).await.status, 200);
    let refused = client.send(&ask(5000)).await;
    assert_eq!(refused.response().await.expect("an answer").status, 431);
    assert_eq!(client.ask(&ask(3000)).await.status, 200);
    assert_eq!(engine.turns(), 2);
}

/// The refusals of bodies reach the client, whatever it has yet to send.
#[tokio::test]
async fn bodies_have_the_same_limits() {
    let engine = Engine::start().await;
    let limits = json!({"limits": {"body": "64 KiB", "body_read": "500 ms"}, "http2": {"window": "64 KiB"}});
    let balancer = Balancer::start(limited(&engine, limits)).await;
    let mut client = H2Client::connect(balancer.listen).await;
    for chunks in [None, Some(10_000)] {
        let mut ask = Ask::chat("m", &"x".repeat(300_000));
        ask.chunks_of = chunks;
        let mut exchange = client.begin(request(&ask), false).await.expect("it is sent");
        // The balancer may have had enough before all is sent.
        let _ = exchange.send_piece(&ask.body).await;
        assert_eq!(exchange.response().await.expect("an answer").status, 413, "pieces: {chunks:?}");
    }
    let ask = Ask::chat("m", "Hello.").chunked(10);
    let mut exchange = client.begin(request(&ask), false).await.expect("it is sent");
    exchange.send_piece(&ask.body[..10]).await.expect("it is sent");
    assert_eq!(exchange.head().await.map(|head| client::status(&head)).expect("an answer"), 408);
    assert_eq!(engine.turns(), 0);
    client.ask(&Ask::chat("m", "Hello.")).await.from(&engine);
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"limits": {"idle": "1 s"}}))).await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut idle = [H2Client::connect(balancer.listen).await, H2Client::connect(balancer.listen).await];
    assert_eq!(idle[0].ask(&Ask::get("/health")).await.status, 200);
    let mut kept = balancer.client().await;
    assert_eq!(kept.ask(&Ask::get("/health")).await.status, 200);
    let mut busy = H2Client::connect(balancer.listen).await;
    let exchange = busy.send(&Ask::chat("m", "Hello.")).await;
    for client in idle {
        let ended = within("the end of an idle connection", client.connection).await.expect("its task");
        assert!(ended.is_ok(), "in good order: {ended:?}");
    }
    within("the end of an idle connection of HTTP/1.1", kept.wire.closed()).await;
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "idle")], 3.0).await;
    gate.open();
    exchange.response().await.expect("an answer").from(&engine);
}

#[tokio::test]
async fn a_client_that_never_begins_is_not_waited_for() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"limits": {"header_read": "500 ms"}}))).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for length in [0, 10, preface.len()] {
        let mut client = balancer.client().await;
        client.send_bytes(&preface[..length]).await;
        if length < preface.len() {
            within("the end of the connection", client.wire.closed()).await;
        }
    }
    let hit = [("limit", "header_read")];
    balancer.metric_becomes("homing_limits_hit_total", &hit, 2.0).await;
}

/// What only costs work ends its connection, and no other.
#[tokio::test]
async fn floods_and_nonsense_end_a_connection() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let mut kept = H2Client::connect(balancer.listen).await;
    let headers = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/messages"), (":authority", "a")];
    let mut empty = RawH2::connect(balancer.listen).await;
    let stream = empty.headers(&headers, false).await;
    for _ in 0..200 {
        empty.data(stream, b"", false).await;
    }
    assert_eq!(empty.fate(stream).await, Fate::Closed);
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "flood")], 1.0).await;

    let mut nonsense = RawH2::connect(balancer.listen).await;
    let of_nobody = [&headers[..3], &[("host", "a"), ("host", "b")]].concat();
    let fates = async {
        for n in 0.. {
            let stream = nonsense.headers(&of_nobody, true).await;
            match nonsense.fate(stream).await {
                Fate::Closed => return n,
                fate => assert!(!fate.is_ok(), "{fate:?}"),
            }
        }
        unreachable!("it ends")
    };
    assert_eq!(within("the end of the connection", fates).await, 32);
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "malformed")], 1.0).await;
    kept.ask(&Ask::chat("m", "Hello.")).await.from(&engine);
}

/// Frames of one kind that a client sends without end, of each.
const FLOOD: usize = 20_000;

/// Memory that a flood may leave behind: buffers of some connections, not what was sent.
const LEFT_MAX: u64 = 16 << 20;

/// Whether the connection is ended or served on, nobody else is the worse for it, and nothing piles up.
#[tokio::test]
async fn no_flood_of_frames_takes_the_balancer_down() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let mut kept = H2Client::connect(balancer.listen).await;
    kept.ask(&Ask::chat("m", "Hello.")).await.from(&engine);
    let headers = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/messages"), (":authority", "a")];
    let before = balancer.resident_bytes();
    for kind in ["rapid reset", "settings", "ping", "continuation"] {
        let mut flood = RawH2::connect(balancer.listen).await;
        let open = if kind == "continuation" { flood.open_headers(&headers).await } else { 0 };
        for _ in 0..FLOOD {
            match kind {
                "rapid reset" => {
                    let stream = flood.headers(&headers, false).await;
                    flood.reset(stream).await;
                }
                "settings" => flood.settings().await,
                "ping" => flood.ping().await,
                _ => flood.continuation(open, &[("x", "y")]).await,
            }
        }
        kept.ask(&Ask::chat("m", "Hello.")).await.from(&engine);
        if kind == "continuation" {
            assert_eq!(flood.fate(open).await, Fate::Closed, "headers that never end");
        }
        drop(flood);
        balancer.metric_becomes("homing_connections", &[], 1.0).await;
        let left = balancer.resident_bytes().saturating_sub(before);
        assert!(left < LEFT_MAX, "{kind} leaves {left} bytes");
    }
    balancer.idle().await;
    assert_eq!(engine.turns(), 5);
}
