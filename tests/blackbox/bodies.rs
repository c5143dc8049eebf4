//! Bodies of every size and framing arrive as they were sent, and what cannot be taken is refused in good order.

use serde_json::json;

use crate::harness::ask::DIALECTS;
use crate::harness::wire::Framing;
use crate::harness::*;

/// JSON of exactly `size` bytes whose model stands at the very end.
fn sized(size: usize) -> String {
    let body = |text: &str| format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}],"model":"m"}}"#);
    let filler: String = (0..size).map(|i| char::from(b'a' + (i % 23) as u8)).collect();
    let text = &filler[..size - body("").len()];
    body(text)
}

fn post(path: &str, body: impl Into<Vec<u8>>) -> Ask {
    Ask::new("POST", path).header("content-type", "application/json").body(body)
}

#[tokio::test]
async fn they_arrive_byte_for_byte_and_the_connection_goes_on() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for path in DIALECTS {
        let mut client = balancer.client().await;
        for (size, chunks) in [(50_000, 1000), (200_000, 65_536), (5_000_000, 100_003)] {
            for chunks in [None, Some(chunks)] {
                let mut ask = post(path, sized(size));
                ask.chunks_of = chunks;
                let answer = client.ask(&ask).await;
                assert_eq!(answer.status, 200, "{path}, {size} bytes, chunks: {chunks:?}: {}", answer.text());
                assert!(engine.last().body == ask.body, "{path}, {size} bytes, chunks: {chunks:?}: the body differs");
                // All of it on one connection, also after the large ones.
                assert_eq!(client.ask(&Ask::turn(path, "m", "Hello.")).await.status, 200);
            }
        }
    }
}

/// Where a header says the conversation and any model will do, a body need not be understood, nor be JSON.
#[tokio::test]
async fn a_nameless_model_takes_any_body() {
    let engine = Engine::start().await;
    let mut nameless = model("", [&engine], json!({}));
    nameless.as_object_mut().unwrap().remove("name");
    let balancer = Balancer::start(json!({"models": [nameless]})).await;
    let bodies: [&[u8]; 5] = [b"", b"{\"model\": \"m\"", b"[1, 2]", b"\x00\xff\xfe\r\n\r\n0\r\n", b"\xef\xbb\xbf{}"];
    for path in DIALECTS {
        let mut client = balancer.client().await;
        for body in bodies.iter().map(|body| body.to_vec()).chain([vec![0xa5; 300_000]]) {
            for (session, chunks) in [(false, None), (true, None), (false, Some(7777)), (true, Some(7777))] {
                let mut ask = post(path, body.clone());
                ask.chunks_of = chunks;
                let ask = if session { ask.session("session-1") } else { ask };
                assert_eq!(client.ask(&ask).await.status, 200, "{path}");
                assert!(engine.last().body == body, "{path}, session: {session}, chunks: {chunks:?}");
            }
        }
        for name in ["m", "another", "a/b:c"] {
            assert_eq!(client.ask(&Ask::turn(path, name, "Hello.")).await.status, 200);
            assert_eq!(engine.last().json().unwrap()["model"], name);
        }
    }
}

#[tokio::test]
async fn a_form_with_a_file_arrives_as_it_was_sent() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let mut body = b"--boundary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n".to_vec();
    body.extend((0..100_000u32).map(|i| (i * 7) as u8));
    body.extend(b"\r\n--boundary\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--boundary--\r\n");
    let ask = Ask::new("POST", "/v1/audio/transcriptions")
        .header("content-type", "multipart/form-data; boundary=boundary")
        .body(body);
    for ask in [ask.clone(), ask.chunked(4096)] {
        let answer = balancer.ask(&ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(engine.last().body == ask.body, "the form differs");
    }
}

/// What a chunked body may hold besides its bytes.
#[tokio::test]
async fn chunks_with_extensions_and_trailers_are_read() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let body = sized(300);
    let mut ask = post("/v1/chat/completions", "");
    ask.chunks_of = Some(1);
    let mut client = balancer.client().await;
    client.send_bytes(&ask.head_bytes()).await;
    client.send_bytes(format!("012c;name=value\r\n{body}\r\n0\r\nx-sum: 1\r\n\r\n").as_bytes()).await;
    assert_eq!(client.response("POST").await.status, 200);
    assert_eq!(engine.last().body, body.as_bytes());
    assert_eq!(client.ask(&Ask::chat("m", "Hello.")).await.status, 200);
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_is_told() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for path in DIALECTS {
        let mut client = balancer.client().await;
        for chunks in [None, Some(5000)] {
            let mut ask = post(path, sized(200_000)).header("expect", "100-continue");
            ask.chunks_of = chunks;
            client.send_bytes(&ask.head_bytes()).await;
            assert!(client.head().await.start.starts_with("HTTP/1.1 100"));
            client.send_bytes(&ask.body_bytes()).await;
            assert_eq!(client.response("POST").await.status, 200);
            let seen = engine.last();
            assert!(seen.body == ask.body, "the body differs");
            assert_eq!(seen.header("expect"), None);
        }
    }
}

/// JSON that engines read and a strict or careless reader would stumble over.
#[tokio::test]
async fn odd_json_is_routed_and_passed_on() {
    let engines = engines::<2>().await;
    let models = [model("m", [&engines[0]], json!({})), model("other", [&engines[1]], json!({}))];
    let balancer = Balancer::start(json!({"models": models})).await;
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let user = |content: &str| format!(r#"{{"messages":[{{"role":"user","content":{content}}}],"model":"m"}}"#);
    let cases = [
        ("half of a surrogate pair", user(r#""cut \ud83d here""#)),
        ("the other half", user(r#""\ude00""#)),
        ("a zero character", user(r#""a\u0000b""#)),
        ("content that is null", user("null")),
        ("content that is a number", user("7")),
        ("messages that are no list", r#"{"messages":"Hello.","model":"m"}"#.into()),
        ("a number beyond all bounds", r#"{"x":1e999,"seed":123456789012345678901234567890,"model":"m"}"#.into()),
        ("a deep nest", format!(r#"{{"tools":{nested},"model":"m"}}"#)),
        ("a deep nest of content", user(&nested)),
        ("a name twice: the last counts", r#"{"model":"other","messages":[],"model":"m"}"#.into()),
        ("white space about", format!("\r\n\t {} \n\n", user(r#""Hello.""#))),
        ("half a pair among the ids", r#"{"metadata":{"user_id":"\ud83d"},"session_id":"\ud83d","model":"m"}"#.into()),
    ];
    for path in DIALECTS {
        for (what, body) in &cases {
            let answer = balancer.ask(&post(path, body.clone())).await;
            assert_eq!(answer.status, 200, "{what}, {path}: {}", answer.text());
            assert_eq!(answer.replica(), engines[0].name(), "{what}, {path}");
            assert!(engines[0].last().body == body.as_bytes(), "{what}, {path}: the body differs");
        }
    }
}

/// Requests sent without waiting for the answers before them.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let asks = [
        Ask::chat("m", "One."),
        Ask::get("/ping"),
        Ask::messages("m", &"Two. ".repeat(20_000)).chunked(5000),
        Ask::chat("unknown-to-us", "Three."),
        Ask::messages("m", "Four.").streamed(),
    ];
    let mut client = balancer.client().await;
    let together: Vec<u8> = asks.iter().flat_map(|ask| [ask.head_bytes(), ask.body_bytes()].concat()).collect();
    client.send_bytes(&together).await;
    for (ask, status) in asks.iter().zip([200, 200, 200, 404, 200]) {
        assert_eq!(client.response(&ask.method).await.status, status, "{} {}", ask.method, ask.target);
    }
    let bodies: Vec<_> = engine.requests().iter().map(|request| request.body.clone()).collect();
    assert!(bodies == [0, 2, 4].map(|n| asks[n].body.clone()), "the bodies differ");
}

/// Once a stream has said something its request is not sent again, and is not kept: whatever stands behind it.
#[tokio::test]
async fn a_body_is_not_kept_for_what_is_pipelined_behind_it() {
    const BODY: usize = 8 << 20;
    const CLIENTS: u64 = 16;
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let gate = Gate::shut();
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"Do\"}}]}\n\n";
    let answer = Answer::new().send(answer::stream_head()).send(answer::chunk(event.as_bytes())).wait(&gate).close();
    engine.answers(move |_| answer.clone());
    let ask = Ask::chat("m", &"x".repeat(BODY)).streamed();
    let before = balancer.resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = balancer.client().await;
        client.send_bytes(&[ask.head_bytes(), ask.body_bytes(), b"P".to_vec()].concat()).await;
        assert_eq!(client::status(&client.head().await), 200);
        assert_eq!(client.piece().await.as_deref(), Some(event));
        clients.push(client);
    }
    // The allocator keeps some of what it was given back.
    let held = balancer.resident_bytes().saturating_sub(before);
    assert!(held < CLIENTS / 2 * BODY as u64, "{held} bytes");
}

/// Two framings in one request: whatever is made of it, no second request comes out of it.
#[tokio::test]
async fn two_framings_smuggle_nothing() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let body = sized(200);
    let smuggled = "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}";
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let whole = chunked.len() + smuggled.len();
    for (first, second) in [
        (format!("content-length: {whole}"), "transfer-encoding: chunked".to_string()),
        ("transfer-encoding: chunked".into(), format!("content-length: {whole}")),
        ("content-length: 4".into(), "transfer-encoding: chunked".into()),
        ("content-length: 4".into(), format!("content-length: {whole}")),
        ("transfer-encoding: xchunked".into(), format!("content-length: {whole}")),
    ] {
        let before = engine.turns();
        let mut client = balancer.client().await;
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n{first}\r\n{second}\r\n\r\n");
        client.send_bytes(head.as_bytes()).await;
        // The balancer may refuse and close before this is all sent.
        let _ = client.wire.send(format!("{chunked}{smuggled}").as_bytes()).await;
        let _ = client.wire.finish().await;
        client.wire.closed().await;
        let came = &engine.requests()[before..];
        assert!(came.len() <= 1, "{first}, {second}: {} requests came", came.len());
        for request in came {
            assert_eq!(request.path(), "/v1/chat/completions", "{first}, {second}");
            assert_eq!(request.framing, Some(Framing::Length(request.body.len())), "{first}, {second}");
            assert_eq!(request.body, body.as_bytes(), "{first}, {second}");
        }
    }
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.")).await.status, 200);
}

fn limited(engine: &Engine, limits: serde_json::Value) -> serde_json::Value {
    let mut config = one_model([engine], json!({}));
    config["server"] = json!({"limits": limits});
    config
}

#[tokio::test]
async fn a_body_at_the_limit_is_taken_and_one_beyond_is_not() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"body": "64 KiB"}))).await;
    for (path, kind) in [(DIALECTS[0], None), (DIALECTS[1], Some("request_too_large"))] {
        for chunks in [None, Some(1000), Some(65_537)] {
            let ask = |size: usize| {
                let mut ask = post(path, sized(size));
                ask.chunks_of = chunks;
                ask
            };
            assert_eq!(balancer.ask(&ask(65_536)).await.status, 200, "{path}, chunks: {chunks:?}");
            let before = engine.turns();
            for size in [65_537, 5_000_000] {
                let answer = too_large(&balancer, &ask(size)).await;
                assert_eq!(answer.status, 413, "{path}, {size} bytes, chunks: {chunks:?}");
                let error = &answer.json()["error"];
                match kind {
                    Some(kind) => assert_eq!(error["type"], kind),
                    None => assert!(error["code"].is_string(), "{error}"),
                }
                assert_eq!(answer.header("retry-after"), None, "it would be too large again");
            }
            assert_eq!(engine.turns(), before);
        }
    }
    assert!(balancer.metrics().await.sum("homing_limits_hit_total", &[("limit", "body")]) >= 12.0);
}

/// Sends all of it, as clients do, though the answer may come before the end.
async fn too_large(balancer: &Balancer, ask: &Ask) -> Response {
    let mut client = balancer.client().await;
    client.send_bytes(&ask.head_bytes()).await;
    let _ = client.wire.send(&ask.body_bytes()).await;
    client.response("POST").await
}

/// A client that asks first is not made to send what will be refused.
#[tokio::test]
async fn a_body_too_large_is_refused_by_its_length_alone() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"body": "1 KiB"}))).await;
    for expects in [false, true] {
        let mut ask = post("/v1/messages", sized(2000));
        if expects {
            ask = ask.header("expect", "100-continue");
        }
        let mut client = balancer.client().await;
        client.send_bytes(&ask.head_bytes()).await;
        assert_eq!(client.response("POST").await.status, 413, "asks first: {expects}");
    }
    assert_eq!(engine.turns(), 0);
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_timed_out() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"body_read": "300 ms"}))).await;
    for path in DIALECTS {
        for chunks in [None, Some(10)] {
            let mut ask = post(path, sized(500));
            ask.chunks_of = chunks;
            let mut client = balancer.client().await;
            client.send_bytes(&ask.head_bytes()).await;
            client.send_bytes(&ask.body_bytes()[..100]).await;
            let answer = client.response("POST").await;
            assert_eq!(answer.status, 408, "{path}, chunks: {chunks:?}");
            assert_eq!(answer.json()["type"] == "error", path == "/v1/messages");
        }
    }
    assert_eq!(engine.turns(), 0);
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_ends_the_connection() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"header_read": "1 s"}))).await;
    let mut client = balancer.client().await;
    client.send_bytes(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n").await;
    within("the end of the connection", client.wire.closed()).await;
}

/// Bodies that are held while they come in are counted together.
#[tokio::test]
async fn bodies_held_at_once_have_a_limit_in_all() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"body": "1 MiB", "buffered": "1 MiB"}))).await;
    let ask = post("/v1/messages", sized(700_000));
    let mut first = balancer.client().await;
    first.send_bytes(&ask.head_bytes()).await;
    first.send_bytes(&ask.body_bytes()[..600_000]).await;
    balancer.metric_becomes("homing_buffered_bytes", &[], 600_000.0).await;
    // The second does not send all, so that its connection is still read from when the first goes on: what was
    // refused is held no longer.
    let mut refused = balancer.client().await;
    refused.send_bytes(&ask.head_bytes()).await;
    refused.send_bytes(&ask.body_bytes()[..600_000]).await;
    let second = refused.response("POST").await;
    assert_eq!(second.status, 503, "{}", second.text());
    assert_eq!(second.json()["error"]["type"], "overloaded_error");
    assert!(second.header("retry-after").is_some());
    assert!(balancer.metrics().await.sum("homing_limits_hit_total", &[]) >= 1.0);
    first.send_bytes(&ask.body_bytes()[600_000..]).await;
    assert_eq!(first.response("POST").await.status, 200);
    balancer.metric_becomes("homing_buffered_bytes", &[], 0.0).await;
    assert_eq!(balancer.ask(&ask).await.status, 200);
}

#[tokio::test]
async fn connections_have_a_limit() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(limited(&engine, json!({"connections": 2}))).await;
    let mut open = [balancer.client().await, balancer.client().await];
    for client in &mut open {
        assert_eq!(client.ask(&Ask::chat("m", "Hello.")).await.status, 200);
    }
    let answer = balancer.ask(&Ask::messages("m", "Hello.")).await;
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
    assert_eq!(balancer.metrics().await.sum("homing_limits_hit_total", &[("limit", "connections")]), 1.0);
    drop(open);
    until("room again", async || (balancer.ask(&Ask::chat("m", "Hello.")).await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn a_body_that_names_no_model_where_one_must_be_named_is_400() {
    let engines = engines::<2>().await;
    let models = [model("one", [&engines[0]], json!({})), model("two", [&engines[1]], json!({}))];
    let balancer = Balancer::start(json!({"models": models})).await;
    let bodies = ["", "no json", "{\"model\": \"one\"", "[\"one\"]", "{}", "{\"model\": 7}", "\"one\""];
    for path in DIALECTS {
        let mut client = balancer.client().await;
        for body in bodies {
            let answer = client.ask(&post(path, body).session("session-1")).await;
            assert_eq!(answer.status, 400, "{path}, {body:?}: {}", answer.text());
            assert_eq!(answer.json()["error"]["type"], "invalid_request_error", "{path}, {body:?}");
        }
    }
    assert_eq!(engines.iter().map(Engine::turns).sum::<usize>(), 0);
}
