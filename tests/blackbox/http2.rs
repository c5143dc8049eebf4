//! HTTP/2 on the way in, with TLS and without.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::net::TcpStream;

use crate::harness::ask::DIALECTS;
use crate::harness::h2_client::request;
use crate::harness::*;

async fn balancer() -> (Engine, Balancer) {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    (engine, balancer)
}

#[tokio::test]
async fn it_is_spoken_at_once_or_agreed_on() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let mut config = one_model([&engine], json!({}));
    config["listen"] = json!([
        {"address": "127.0.0.1:0"},
        {"address": "127.0.0.2:0", "tls": pki.issue("a", "balancer.test").settings()},
    ]);
    let balancer = Balancer::start(config).await;
    let secure = balancer.output.line("address", |line| balancer::address(line, "listening on https://")).await;
    let stream = pki.client().alpn(&["h2"]).connect(secure, "balancer.test").await.expect("a handshake");
    for mut client in [H2Client::connect(balancer.listen).await, H2Client::over(stream).await] {
        for ask in DIALECTS.map(|path| Ask::turn(path, "m", "Hello.").session("session-1")) {
            for ask in [ask.clone(), ask.streamed()] {
                let answer = client.ask(&ask).await;
                answer.from(&engine);
                assert!(["placed", "sticky"].contains(&answer.decision()));
                let hop_by_hop = ["connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection"];
                assert!(hop_by_hop.iter().all(|name| answer.header(name).is_none()), "{:?}", answer.head);
            }
        }
        for (ask, status) in [(Ask::get("/health"), 200), (Ask::chat("other", "Hello."), 404), (Ask::get("/x"), 404)] {
            assert_eq!(client.ask(&ask).await.status, status, "{}", ask.target);
        }
    }
    assert_eq!(engine.turns(), 8);
}

/// Older clients that say no more than they must, and slower ones, are not taken for those of HTTP/2.
#[tokio::test]
async fn a_short_or_slow_request_is_not_mistaken() {
    let (_engine, balancer) = balancer().await;
    for pieces in
        [&["GET /ping HTTP/1.0\r\n\r\n"][..], &["P", "O", "ST /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"], &["PRI /"]]
    {
        let mut client = balancer.client().await;
        for piece in pieces {
            client.send_bytes(piece.as_bytes()).await;
            tokio::task::yield_now().await;
        }
        let _ = client.wire.finish().await;
        let head = client.wire.closed_or_head().await;
        let status = head.map(|head| client::status(&head));
        let expected = match pieces[0] {
            "P" => Some(405),
            "PRI /" => None,
            _ => Some(200),
        };
        assert_eq!(status, expected, "{pieces:?}");
    }
}

/// What HTTP/2 says otherwise than HTTP/1.1 arrives at the engine as HTTP/1.1 says it.
#[tokio::test]
async fn headers_are_said_the_other_way() {
    let (engine, balancer) = balancer().await;
    let mut client = H2Client::connect(balancer.listen).await;
    let ask = Ask::chat("m", "Hello.")
        .header("te", "trailers")
        .header("cookie", "a=b")
        .header("cookie", "c=d")
        .header("x-custom", "1");
    for ask in [ask.clone(), ask.chunked(10)] {
        assert_eq!(client.ask(&ask).await.status, 200);
        let seen = engine.last();
        let hosts: Vec<_> = seen.head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).collect();
        assert_eq!(hosts.len(), 1);
        assert_eq!((hosts[0].1.as_str(), seen.target()), (engine.name().as_str(), "/v1/chat/completions"));
        assert_eq!((seen.header("cookie"), seen.header("x-custom")), (Some("a=b; c=d"), Some("1")));
        assert_eq!(seen.header("content-length"), Some(ask.body.len().to_string().as_str()));
        for name in ["te", "transfer-encoding", ":authority", ":path"] {
            assert_eq!(seen.header(name), None, "{name}");
        }
    }
}

#[tokio::test]
async fn events_arrive_one_by_one() {
    let (engine, balancer) = balancer().await;
    let mut client = H2Client::connect(balancer.listen).await;
    for path in DIALECTS {
        let gate = Gate::shut();
        engine.holds(&gate);
        let mut exchange = client.send(&Ask::turn(path, "m", "Hello.").streamed()).await;
        assert_eq!(client::status(&exchange.head().await.expect("an answer")), 200);
        // It comes while the engine still holds the rest.
        let first = exchange.piece().await.expect("a whole stream").expect("an event");
        assert!(first.ends_with(b"\n\n"), "{first:?}");
        // Another request is served meanwhile.
        assert_eq!(client.ask(&Ask::get("/health")).await.status, 200);
        gate.open();
        let mut rest = Vec::new();
        while let Some(piece) = exchange.piece().await.expect("a whole stream") {
            rest.extend_from_slice(&piece);
        }
        let last = if path == "/v1/messages" { "message_stop\"}\n\n" } else { "[DONE]\n\n" };
        assert!(String::from_utf8_lossy(&rest).ends_with(last));
    }
}

/// One stream ends and its request at the engine with it; the others of the connection go on.
#[tokio::test]
async fn a_stream_that_is_reset_ends_its_request() {
    let (engine, balancer) = balancer().await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut client = H2Client::connect(balancer.listen).await;
    let other = client.send(&Ask::chat("m", "Hello.")).await;
    engine.saw_turns(1).await;
    for (n, streamed) in [false, true].into_iter().enumerate() {
        let ask = Ask::chat("m", "Hello.");
        let mut exchange = client.send(&if streamed { ask.streamed() } else { ask }).await;
        engine.saw_turns(n + 2).await;
        if streamed {
            exchange.head().await.expect("an answer");
            exchange.piece().await.expect("an event");
        }
        exchange.reset();
        engine.saw("an ended request", |seen| seen.left == n + 1).await;
    }
    let closed = [("status", "client_closed")];
    balancer.metric_becomes("homing_requests_total", &closed, 2.0).await;
    gate.open();
    other.response().await.expect("an answer").from(&engine);
    balancer.idle().await;
}

#[tokio::test]
async fn a_connection_that_ends_ends_all_its_requests() {
    let (engine, balancer) = balancer().await;
    engine.holds(&Gate::shut());
    for (n, streamed) in [false, true].into_iter().enumerate() {
        let mut client = H2Client::connect(balancer.listen).await;
        let ask = Ask::chat("m", "Hello.");
        let ask = if streamed { ask.streamed() } else { ask };
        let _exchanges = [client.send(&ask).await, client.send(&ask).await];
        engine.saw_turns(2 * n + 2).await;
        // The task owns the socket.
        client.connection.abort();
        engine.saw("ended requests", |seen| seen.left == 2 * n + 2).await;
    }
    balancer.idle().await;
}

/// A client's goodbye is a promise to begin nothing more: what it began goes on until it also closes.
#[tokio::test]
async fn a_goodbye_is_followed_by_the_end() {
    let (engine, balancer) = balancer().await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let headers = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/chat/completions"), (":authority", "a")];
    for (n, closes) in [false, true].into_iter().enumerate() {
        let mut client = raw_h2::RawH2::connect(balancer.listen).await;
        let stream = client.headers(&headers, false).await;
        client.data(stream, br#"{"model":"m"}"#, true).await;
        engine.saw_turns(n + 1).await;
        client.goodbye().await;
        if closes {
            drop(client);
            engine.saw("an ended request", |seen| seen.left == 1).await;
        } else {
            gate.open();
            assert!(client.fate(stream).await.is_ok());
            engine.holds(&Gate::shut());
        }
    }
}

#[tokio::test]
async fn a_body_that_is_broken_off_is_not_routed() {
    let (engine, balancer) = balancer().await;
    let mut client = H2Client::connect(balancer.listen).await;
    let ask = Ask::chat("m", &"x".repeat(50_000)).chunked(1000);
    let mut exchange = client.begin(request(&ask), false).await.expect("it is sent");
    exchange.send_piece(&ask.body[..20_000]).await.expect("it is sent");
    balancer.metric_becomes("homing_buffered_bytes", &[], 20_000.0).await;
    assert_eq!(engine.turns(), 0, "nothing goes on before the body is whole");
    exchange.reset();
    balancer.metric_becomes("homing_buffered_bytes", &[], 0.0).await;
    client.ask(&ask).await.from(&engine);
    assert_eq!(engine.turns(), 1);
}

#[tokio::test]
async fn a_stream_that_the_engine_breaks_off_says_so() {
    let (engine, balancer) = balancer().await;
    engine.answers(|_| Answer::new().send(answer::stream_head()).send(answer::chunk(b"data: {}\n\n")).close());
    let mut client = H2Client::connect(balancer.listen).await;
    for path in DIALECTS {
        let answer = client.ask(&Ask::turn(path, "m", "Hello.").streamed()).await;
        assert!(answer.text().starts_with("data: {}\n\n"), "{}", answer.text());
        assert!(answer.text().contains("replica_failed"), "{}", answer.text());
    }
    // Of an answer with a length nothing can be said: the stream is reset.
    engine.answers(|_| Answer::new().send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}").close());
    let exchange = client.send(&Ask::chat("m", "Hello.")).await;
    assert!(exchange.response().await.is_err());
    client.ask(&Ask::get("/ping")).await;
}

/// Far below the grace period, and above the time that a client has to take its last bytes.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_shutdown_says_goodbye_and_lets_streams_finish() {
    let (engine, mut balancer) = balancer().await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut client = H2Client::connect(balancer.listen).await;
    let mut exchanges = Vec::new();
    for path in DIALECTS {
        exchanges.push(client.send(&Ask::turn(path, "m", "Hello.").streamed()).await);
        exchanges.push(client.send(&Ask::turn(path, "m", "Hello.")).await);
    }
    engine.saw_turns(exchanges.len()).await;
    let mut idle = H2Client::connect(balancer.listen).await;
    assert_eq!(idle.ask(&Ask::get("/health")).await.status, 200);
    balancer.signal(Signal::SIGTERM);
    within("the end of an idle connection", idle.connection).await.expect("its task").expect("in good order");
    until("new connections refused", async || TcpStream::connect(balancer.listen).await.err()).await;
    gate.open();
    for exchange in exchanges {
        let text = exchange.response().await.expect("a whole answer").text();
        assert!(text.contains("Done.") || text.ends_with("[DONE]\n\n"), "{text}");
    }
    let from = Instant::now();
    assert!(balancer.exit().await.success());
    assert!(from.elapsed() < SOON, "it took {:?} to exit", from.elapsed());
    client.connection.await.expect("its task").expect("the connection ends in good order");
}

/// The process ends when its last byte has arrived, not when it was written.
#[tokio::test]
async fn a_long_answer_arrives_whole_at_a_shutdown() {
    let (engine, mut balancer) = balancer().await;
    let (gate, body) = (Gate::shut(), vec![b'a'; 20_000_000]);
    let answer = Answer::whole("200 OK", &[], &body).after(&gate);
    engine.answers(move |_| answer.clone());
    let mut client = H2Client::connect(balancer.listen).await;
    let exchange = client.send(&Ask::chat("m", "Hello.")).await;
    engine.saw_turns(1).await;
    balancer.signal(Signal::SIGTERM);
    until("new connections refused", async || TcpStream::connect(balancer.listen).await.err()).await;
    gate.open();
    assert!(exchange.response().await.expect("a whole answer").body == body);
    assert!(balancer.exit().await.success());
}

/// A client that takes nothing more must not hold the process up.
#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_client_that_is_gone() {
    let (_engine, mut balancer) = balancer().await;
    // It began, and from then on reads and says nothing.
    let mut silent = balancer.client().await;
    silent.send_bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    balancer.metric_becomes("homing_connections", &[], 1.0).await;
    let from = Instant::now();
    balancer.signal(Signal::SIGTERM);
    assert!(balancer.exit().await.success());
    assert!(from.elapsed() < SOON, "it took {:?} to exit", from.elapsed());
}
