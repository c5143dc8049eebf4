//! Answers as they come: untouched, at once, and ended where the client ends them.

use serde_json::json;

use crate::harness::ask::DIALECTS;
use crate::harness::vllm::{USAGE, turn};
use crate::harness::*;

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
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Do\"}}]}\n\n";
    for end in [Answer::close as fn(Answer) -> Answer, Answer::reset] {
        let gate = Gate::shut();
        let begun = Answer::new().send(answer::stream_head()).send(answer::chunk(event.as_bytes()));
        let broken = end(begun.wait(&gate));
        engine.answers(move |_| broken.clone());
        for path in DIALECTS {
            let mut client = balancer.client().await;
            client.send(&Ask::turn(path, "m", "Hello.").streamed()).await;
            client.head().await;
            assert_eq!(client.piece().await.as_deref(), Some(event));
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
