//! Pages of the origins that the operator named may call from a browser, and no others.

use serde_json::json;

use crate::harness::*;

const PAGE: &str = "https://chat.example";

async fn balancer(engine: &Engine, origins: serde_json::Value) -> Balancer {
    let mut config = one_model([engine], json!({}));
    config["server"] = json!({"cors": {"origins": origins}});
    Balancer::start(config).await
}

fn preflight(origin: &str) -> Ask {
    Ask::new("OPTIONS", "/v1/chat/completions")
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type")
}

#[tokio::test]
async fn a_browser_is_told_beforehand() {
    let engine = Engine::start().await;
    for (origins, named) in [(json!(["https://other.example", PAGE]), PAGE), (json!(["*"]), "*")] {
        let balancer = balancer(&engine, origins).await;
        let mut client = balancer.client().await;
        let answer = client.ask(&preflight(PAGE)).await;
        assert_eq!(answer.status, 204);
        assert_eq!(answer.header("access-control-allow-origin"), Some(named));
        assert_eq!(answer.header("access-control-allow-headers"), Some("authorization,content-type"));
        assert!(answer.header("access-control-allow-methods").is_some_and(|methods| methods.contains("POST")));
        assert!(answer.header("access-control-max-age").is_some());
        assert_eq!(answer.header("vary").is_some(), named != "*");
        // The connection goes on.
        assert_eq!(client.ask(&Ask::chat("m", "Hello.").header("origin", PAGE)).await.status, 200);
    }
    assert_eq!(engine.turns(), 2, "no engine was asked beforehand");
}

#[tokio::test]
async fn others_are_told_nothing() {
    let engine = Engine::start().await;
    for origins in [json!([PAGE]), json!([])] {
        let balancer = balancer(&engine, origins).await;
        for origin in ["http://chat.example", "https://chat.example:444", "https://chat.example.evil", "null", ""] {
            let answer = balancer.ask(&preflight(origin)).await;
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, None), "{origin}");
            let answer = balancer.ask(&Ask::chat("m", "Hello.").header("origin", origin)).await;
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, None), "{origin}");
        }
    }
}

/// On what an engine answers, on what the balancer answers, and on errors: a page that cannot read an error knows nothing.
#[tokio::test]
async fn every_answer_says_who_may_read_it() {
    let engine = Engine::start().await;
    engine.answers(|_| {
        let headers = [("access-control-allow-origin", "*"), ("access-control-allow-credentials", "true")];
        Answer::whole("200 OK", &headers, b"{}")
    });
    let balancer = balancer(&engine, json!([PAGE])).await;
    for (ask, status) in [
        (Ask::chat("m", "Hello."), 200),
        (Ask::messages("m", "Hello."), 200),
        (Ask::get("/v1/models"), 200),
        (Ask::get("/ping"), 200),
        (Ask::chat("unknown", "Hello."), 404),
        (Ask::get("/v1/nothing"), 404),
        (Ask::get("/v1/messages"), 405),
    ] {
        let answer = balancer.ask(&ask.clone().header("origin", PAGE)).await;
        assert_eq!(answer.status, status, "{}", ask.target);
        let named = answer.head.headers.iter().filter(|(name, _)| name == "access-control-allow-origin");
        assert_eq!(named.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), [PAGE], "{}", ask.target);
        assert_eq!(answer.header("access-control-allow-credentials"), None);
        let exposed = answer.header("access-control-expose-headers").expect("what it may read");
        assert!(exposed.contains("x-request-id") && exposed.contains("retry-after"), "{exposed}");
        let unnamed = balancer.ask(&ask).await;
        assert_eq!(unnamed.header("access-control-allow-origin"), None, "without an origin there is no page");
        assert!(unnamed.header("vary").is_some_and(|vary| vary.contains("origin")));
    }
}

/// A browser sends no key with its question.
#[tokio::test]
async fn no_key_is_needed_to_ask_beforehand() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({}));
    config["server"] = json!({"cors": {"origins": [PAGE]}});
    config["callers"] = json!([{"name": "ann", "keys": [homing::config::KeyHash::of(b"key").to_string()]}]);
    let balancer = Balancer::start(config).await;
    assert_eq!(balancer.ask(&preflight(PAGE)).await.status, 204);
    let refused = balancer.ask(&Ask::chat("m", "Hello.").header("origin", PAGE)).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(PAGE)));
    let plain = Ask::new("OPTIONS", "/v1/chat/completions").header("origin", PAGE);
    assert_eq!(balancer.ask(&plain).await.status, 401, "OPTIONS alone asks nothing beforehand");
}
