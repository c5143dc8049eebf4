//! Which headers pass, which do not, and which the balancer adds.

use serde_json::{Value, json};

use crate::harness::*;

fn ask() -> Ask {
    Ask::chat("m", "Hello.")
}

#[tokio::test]
async fn what_concerns_one_connection_goes_no_further() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let hop_by_hop = [
        ("connection", "keep-alive, x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("trailer", "x-sum"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic eDp5"),
        ("proxy-connection", "keep-alive"),
    ];
    let end_to_end = [
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("user-agent", "agent/1.0"),
        ("accept", "text/event-stream"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "a,b"),
        ("cookie", "a=b; c=d"),
        ("x-custom", "  spaces inside stay  ".trim()),
    ];
    let sent = hop_by_hop.iter().chain(&end_to_end).fold(ask(), |ask, (name, value)| ask.header(name, value));
    for sent in [sent.clone(), sent.session("session-1")] {
        assert_eq!(balancer.ask(&sent).await.status, 200);
        let seen = engine.last();
        for (name, value) in end_to_end {
            assert_eq!(seen.header(name), Some(value), "{name}");
        }
        for (name, value) in hop_by_hop {
            assert_ne!(seen.header(name), Some(value), "{name}");
        }
        assert_eq!(seen.head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count(), 1);
    }
}

#[tokio::test]
async fn the_same_holds_for_answers() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    engine.answers(|_| {
        Answer::new()
            .send(
                "HTTP/1.1 200 OK\r\nconnection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
                 set-cookie: a=b\r\nset-cookie: c=d\r\nx-custom: 1\r\ncontent-length: 2\r\n\r\n{}",
            )
            .close()
    });
    // The engine closes its connection; the client's goes on.
    let mut client = balancer.client().await;
    for _ in 0..2 {
        let answer = client.ask(&ask()).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
        assert_eq!((answer.header("x-hop"), answer.header("x-custom")), (None, Some("1")));
        assert_ne!(answer.header("connection"), Some("close, x-hop"));
        assert_ne!(answer.header("keep-alive"), Some("timeout=5"));
        assert_eq!(answer.head.headers.iter().filter(|(name, _)| name == "set-cookie").count(), 2);
    }
}

#[tokio::test]
async fn the_target_arrives_as_it_was_asked() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let target = "/v1/messages?beta=true&x=%7B%22a%22%3A1%7D&empty=";
    assert_eq!(balancer.ask(&Ask::turn(target, "m", "Hello.")).await.status, 200);
    assert_eq!((engine.last().method(), engine.last().target()), ("POST", target));
}

/// What the engine is sent of a client's credentials: with which settings, and what arrives.
#[tokio::test]
async fn credentials_pass_or_are_dropped_or_replaced() {
    let file = tempfile::NamedTempFile::new().expect("a file for the key");
    std::fs::write(file.path(), "key-from-the-file\n").expect("the key is written");
    let client = [("authorization", "Bearer key-of-the-client"), ("x-api-key", "key-of-the-client")];
    let pass: Vec<_> = client.iter().map(|(name, value)| (*name, Some(value.to_string()))).collect();
    let own = |key: &str| vec![("authorization", Some(format!("Bearer {key}"))), ("x-api-key", None)];
    let cases = [
        (json!({}), json!(null), pass.clone()),
        (json!({"client_credentials": "pass"}), json!(null), pass),
        (json!({"client_credentials": "drop"}), json!(null), vec![("authorization", None), ("x-api-key", None)]),
        (json!({}), json!({"file": file.path()}), own("key-from-the-file")),
        (json!({}), json!({"env": "HOMING_TEST_KEY"}), own("key-from-the-environment")),
        (json!({"client_credentials": "drop"}), json!({"env": "HOMING_TEST_KEY"}), own("key-from-the-environment")),
    ];
    for (server, api_key, expected) in cases {
        let engine = Engine::start().await;
        let mut config = one_model([&engine], json!({}));
        config["server"] = server.clone();
        if !api_key.is_null() {
            config["models"][0]["replicas"][0]["api_key"] = api_key.clone();
        }
        let environment = [("HOMING_TEST_KEY", "key-from-the-environment")];
        let balancer = Balancer::start_with(config, &environment).await;
        for path in ask::DIALECTS {
            let ask = client.iter().fold(Ask::turn(path, "m", "Hello."), |ask, (name, value)| ask.header(name, value));
            assert_eq!(balancer.ask(&ask).await.status, 200);
            for (name, value) in &expected {
                assert_eq!(engine.last().header(name), value.as_deref(), "{name} on {path}, {server}, {api_key}");
            }
        }
        let shown = [balancer.routing().await.0.to_string(), balancer.output.lines().join("\n")];
        assert!(shown.iter().all(|text| !text.contains("key-")), "a key is shown: {shown:?}");
    }
}

#[tokio::test]
async fn the_balancer_s_own_headers_can_be_switched_off() {
    for (server, there) in [
        (json!({}), true),
        (json!({"response_headers": "on"}), true),
        (json!({"response_headers": true}), true),
        (json!({"response_headers": "off"}), false),
    ] {
        let engine = Engine::start().await;
        let mut config = one_model([&engine], json!({}));
        config["server"] = server.clone();
        let balancer = Balancer::start(config).await;
        for ask in [ask(), ask().streamed(), Ask::messages("m", "Hello."), Ask::messages("m", "Hello.").streamed()] {
            let answer = balancer.ask(&ask).await;
            let expected = there.then_some(engine.name());
            assert_eq!(answer.header("x-homing-replica"), expected.as_deref(), "{server}");
            assert_eq!(answer.header("x-homing-decision").is_some(), there, "{server}");
        }
    }
}

/// A client cannot set what only the balancer says.
#[tokio::test]
async fn a_client_s_and_an_engine_s_own_such_headers_do_not_count() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    engine.answers(|_| {
        let headers = [("x-homing-replica", "elsewhere"), ("x-homing-decision", "sticky")];
        Answer::whole("200 OK", &headers, Value::Null.to_string().as_bytes())
    });
    let answer = balancer.ask(&ask().header("x-homing-decision", "spilled")).await;
    answer.is("placed").from(&engine);
    assert_eq!(answer.head.headers.iter().filter(|(name, _)| name.starts_with("x-homing-")).count(), 2);
}
