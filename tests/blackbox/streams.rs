//! Answers as they come: untouched, at once, and ended where the client ends them.

use serde_json::json;

use crate::harness::ask::DIALECTS;
use crate::harness::vllm::{USAGE, turn};
use crate::harness::wire::Framing;
use crate::harness::*;

const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Do\"}}]}\n\n";

#[tokio::test]
async fn they_pass_byte_for_byte() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let pieces: [&[u8]; 9] = [
        b": a comment\n\n",
        b"data: {\"choices\":[{\"delta\":{\"content\":\"",
        "half of an é: ".as_bytes(),
        &"é".as_bytes()[..1],
        &"é".as_bytes()[1..],
        b"\"}}]}\r\n\r\n: keep-alive\n\n",
        b"event: error\ndata: {\"error\": {\"message\": \"EngineCore encountered an issue.\"}}\n\n",
        b"data: no json at all \x00\xff\n\ndata: {\"usage\":",
        b"null}\n\ndata: [DONE]\n\n",
    ];
    let expected = pieces.concat();
    let chunked = pieces.iter().fold(Answer::new().send(answer::stream_head()), |a, p| a.send(answer::chunk(p)));
    let chunked = chunked.send("0\r\n\r\n");
    let length = Answer::whole("200 OK", &[("content-type", "text/event-stream")], &expected);
    let until_close = pieces
        .iter()
        .fold(Answer::new().send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"), |a, p| a.send(*p))
        .close();
    for path in DIALECTS {
        for framed in [&chunked, &length, &until_close] {
            let framed = framed.clone();
            engine.answers(move |_| framed.clone());
            let answer = balancer.ask(&Ask::turn(path, "m", "Hello.").streamed()).await;
            assert_eq!((answer.status, answer.body == expected), (200, true), "{path}: {}", answer.text());
            assert_eq!(answer.header("content-type").map(|kind| kind.starts_with("text/event-stream")), Some(true));
        }
    }
}

#[tokio::test]
async fn other_answers_pass_as_they_are() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let large: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [u8]);
    let cases: [Case; 5] = [
        ("200 OK", &[("content-type", "application/octet-stream")], &large),
        ("200 OK", &[("content-type", "application/json"), ("content-encoding", "gzip")], b"\x1f\x8b not really"),
        ("200 OK", &[("content-type", "application/json")], b""),
        ("400 Bad Request", &[("content-type", "application/json")], b"{\"error\":{\"message\":\"too long\"}}"),
        ("500 Internal Server Error", &[("x-why", "because")], b"Internal Server Error"),
    ];
    for (status, headers, body) in cases {
        let answer = Answer::whole(status, headers, body);
        engine.answers(move |_| answer.clone());
        let answer = balancer.ask(&Ask::chat("m", "Hello.")).await;
        assert_eq!((answer.status.to_string().as_str(), answer.body == body), (&status[..3], true), "{status}");
        for (name, value) in headers {
            assert_eq!(answer.header(name), Some(*value));
        }
    }
}

#[tokio::test]
async fn each_piece_comes_when_the_engine_sends_it() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for path in DIALECTS {
        let gate = Gate::shut();
        engine.holds(&gate);
        let mut client = balancer.client().await;
        client.send(&Ask::turn(path, "m", "Hello.").streamed()).await;
        let head = client.head().await;
        // The engine says no more until this has arrived.
        assert!(client.piece().await.is_some_and(|piece| !piece.is_empty()), "{path}");
        assert_eq!(balancer.routing().await.total("in_flight"), 1);
        gate.open();
        assert!(client.rest(head, "POST").await.body.ends_with(b"\n\n"), "{path}");
        balancer.idle().await;
    }
}

/// An engine goes on generating for nobody unless it is told at once.
#[tokio::test]
async fn a_client_that_leaves_ends_the_request_at_the_engine() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    engine.holds(&Gate::shut());
    let mut left = 0;
    for path in DIALECTS {
        for (streamed, reset) in [(true, false), (true, true), (false, false), (false, true)] {
            let ask = Ask::turn(path, "m", "Hello.");
            let mut client = balancer.client().await;
            client.send(&if streamed { ask.streamed() } else { ask }).await;
            engine.saw_turns(left + 1).await;
            if streamed {
                client.head().await;
                client.piece().await;
            }
            if reset {
                client.wire.reset_on_drop();
            }
            drop(client);
            left += 1;
            engine.saw("an ended request", |seen| seen.left == left).await;
        }
    }
    let routing = balancer.idle().await;
    assert_eq!(routing.decided(), left as u64);
}

/// What a broken stream sent is kept, and the client can tell that it broke.
#[tokio::test]
async fn a_stream_that_breaks_is_not_made_whole() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for end in [Answer::close as fn(Answer) -> Answer, Answer::reset] {
        let gate = Gate::shut();
        let begun = Answer::new().send(answer::stream_head()).send(answer::chunk(EVENT.as_bytes()));
        let broken = end(begun.wait(&gate));
        engine.answers(move |_| broken.clone());
        for path in DIALECTS {
            let mut client = balancer.client().await;
            client.send(&Ask::turn(path, "m", "Hello.").streamed()).await;
            client.head().await;
            assert_eq!(client.piece().await.as_deref(), Some(EVENT));
            gate.open();
            let mut rest = String::new();
            let whole = within("the end", async {
                loop {
                    match client.wire.chunk().await {
                        Ok(Some(piece)) => rest += &String::from_utf8_lossy(&piece),
                        Ok(None) => return true,
                        Err(_) => return false,
                    }
                }
            })
            .await;
            // Cut, or ended with an event that says so.
            let says = rest.contains("\"error\"");
            assert!(!whole || says, "{path}: a broken stream passes for a whole one: {rest:?}");
            assert!(!rest.contains("[DONE]") && !rest.contains("message_stop"), "{path}: {rest:?}");
        }
    }
    engine.answers(|request| turn(request, USAGE));
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.")).await.status, 200);
}

/// The next request of a client that has left stands before its departure in what it sent.
#[tokio::test]
async fn a_client_that_leaves_behind_its_next_request_ends_both() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    engine.holds(&Gate::shut());
    for (left, reset) in [(1, false), (2, true)] {
        let mut client = balancer.client().await;
        client.send(&Ask::chat("m", "Hello.")).await;
        engine.saw_turns(left).await;
        client.send_bytes(b"P").await;
        if reset {
            client.wire.reset_on_drop();
        }
        drop(client);
        engine.saw("an ended request", |seen| seen.left == left).await;
    }
    balancer.idle().await;
}

/// Of a stream with an announced length, or a packed one, nothing can be said in it: it is cut off, as any other answer.
#[tokio::test]
async fn a_broken_stream_that_takes_no_event_is_cut_off() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let stream = |header: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{header}\r\n\r\n");
    let length = |missing: usize| stream(&format!("content-length: {}", EVENT.len() + missing)) + EVENT;
    let packed = stream("transfer-encoding: chunked\r\ncontent-encoding: gzip").into_bytes();
    let cases = [
        (length(1).into_bytes(), EVENT.as_bytes()),
        (length(20).into_bytes(), EVENT.as_bytes()),
        (length(5000).into_bytes(), EVENT.as_bytes()),
        ([packed, answer::chunk(b"\x1f\x8b packed")].concat(), &b"\x1f\x8b packed"[..]),
    ];
    let mut h2 = H2Client::connect(balancer.listen).await;
    for (n, (answer, sent)) in cases.into_iter().enumerate() {
        let broken = Answer::new().send(answer).close();
        engine.answers(move |_| broken.clone());
        let ask = Ask::chat("m", "Hello.").streamed();
        let mut h1 = balancer.client().await;
        h1.send(&ask).await;
        let head = h1.head().await;
        let rest = within("the end", h1.wire.body(Framing::UntilClose)).await.expect("what came before the end");
        let came = match head.header("content-length") {
            Some(_) => sent.to_vec(),
            None => answer::chunk(sent),
        };
        assert!(rest == came, "case {n}: {:?}", String::from_utf8_lossy(&rest));
        let mut exchange = h2.send(&ask).await;
        exchange.head().await.expect("a header");
        let mut came = Vec::new();
        let end = loop {
            match exchange.piece().await {
                Ok(Some(piece)) => came.extend_from_slice(&piece),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        // A reset may overtake what was sent before it.
        assert!(sent.starts_with(&came), "case {n}: {:?}", String::from_utf8_lossy(&came));
        assert!(end.as_ref().is_some_and(h2::Error::is_reset), "case {n}: {end:?}");
        // The connection goes on.
        assert_eq!(h2.ask(&Ask::get("/ping")).await.status, 200);
        balancer.metric_becomes("homing_requests_total", &[("status", "broken")], 2.0 * (n as f64 + 1.0)).await;
    }
}

/// Every form that the standard of event streams allows, sent whole and byte by byte.
#[tokio::test]
async fn whatever_ends_its_lines_a_stream_passes() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for (end, mark) in [("\r", ""), ("\r\n", ""), ("\n", "\u{feff}"), ("\r", "\u{feff}"), ("\r\n", "\u{feff}")] {
        let stream = mark.to_owned() + &EVENT.replace('\n', end);
        for size in [usize::MAX, 1] {
            let head = Answer::new().send(answer::stream_head());
            let pieces = stream.as_bytes().chunks(size.min(stream.len()));
            let said = pieces.fold(head, |answer, piece| answer.send(answer::chunk(piece))).send("0\r\n\r\n");
            engine.answers(move |_| said.clone());
            let answer = balancer.ask(&Ask::chat("m", "Hello.").streamed()).await;
            assert_eq!((answer.status, answer.text()), (200, stream.clone()));
        }
    }
}

/// A status that has no body is no stream that has said nothing.
#[tokio::test]
async fn a_stream_that_cannot_have_a_body_passes() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for (status, framing) in
        [("204 No Content", ""), ("205 Reset Content", "content-length: 0\r\n"), ("304 Not Modified", "")]
    {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\n{framing}\r\n");
        engine.answers(move |_| Answer::new().send(answer.clone()));
        let answer = balancer.ask(&Ask::chat("m", "Hello.").streamed()).await;
        assert_eq!((answer.status.to_string().as_str(), answer.text().as_str()), (&status[..3], ""));
    }
    assert_eq!(engine.turns(), 3);
}

/// It knows no interim answers, and no chunks: the end of a stream is that of its connection, and is announced.
#[tokio::test]
async fn a_client_of_http_1_0_gets_what_it_knows() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let ask = format!(
        "POST /v1/chat/completions HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let interim =
        ["100 Continue", "102 Processing", "103 Early Hints"].map(|status| format!("HTTP/1.1 {status}\r\n\r\n"));
    let chunked = [answer::stream_head(), answer::chunk(EVENT.as_bytes()), b"0\r\n\r\n".to_vec()].concat();
    let length =
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{EVENT}", EVENT.len());
    for (answer, connection) in [(chunked, "close"), (length.into_bytes(), "keep-alive")] {
        let said = Answer::new().send(interim.concat()).send(answer);
        engine.answers(move |_| said.clone());
        let mut client = balancer.client().await;
        client.send_bytes(ask.as_bytes()).await;
        let head = client.head().await;
        assert_eq!((client::status(&head), head.header("connection")), (200, Some(connection)));
        assert_eq!(client.rest(head, "POST").await.text(), EVENT);
    }
}
