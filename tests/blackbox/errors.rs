//! The balancer's own errors: what they look like to a client of either dialect, and in the log.

use serde_json::json;

use crate::harness::*;

/// The path, the body, the status, and the type in the Anthropic dialect.
struct Case(&'static str, Ask, u16, &'static str);

fn cases() -> Vec<Case> {
    let both =
        |what, make: fn(&str) -> Ask, status, kind| ask::DIALECTS.map(|path| Case(what, make(path), status, kind));
    let too_large = |path: &str| Ask::turn(path, "m", &"x".repeat(2000));
    [
        both("unknown model", |path| Ask::turn(path, "unknown-to-us", "Hello."), 404, "not_found_error"),
        both("too large", too_large, 413, "request_too_large"),
        both("no JSON", |path| Ask::new("POST", path).body("{"), 400, "invalid_request_error"),
        both("no model", |path| Ask::post(path, &json!({"messages": []})), 400, "invalid_request_error"),
        both("no replica", |path| Ask::turn(path, "gone", "Hello."), 503, "overloaded_error"),
        both("no answer", |path| Ask::turn(path, "closing", "Hello."), 502, "api_error"),
        both("unknown route", |path| Ask::turn(&format!("{path}/x"), "m", "Hello."), 404, "not_found_error"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[tokio::test]
async fn they_speak_the_dialect_of_the_path() {
    let engine = Engine::start().await;
    let mut gone = Engine::start().await;
    gone.refuse();
    let closing = Engine::start().await;
    closing.answers(|_| Answer::new().close());
    let models =
        [model("m", [&engine], json!({})), model("gone", [&gone], json!({})), model("closing", [&closing], json!({}))];
    let config = json!({"models": models, "server": {"limits": {"body": "1 KiB"}}});
    let balancer = Balancer::start(config).await;
    for Case(what, ask, status, kind) in cases() {
        let answer = balancer.ask(&ask).await;
        let what = format!("{what} on {}", ask.target);
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
        let body = answer.json();
        let error = &body["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {body}");
        let code = error["code"].as_str().unwrap_or_else(|| panic!("{what}: a stable code in {body}"));
        assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{what}: {code}");
        if ask.target.starts_with("/v1/messages") {
            assert_eq!((&body["type"], &error["type"]), (&json!("error"), &json!(kind)), "{what}");
        } else {
            assert!(error["type"].is_string() && error.get("param").is_some(), "{what}: {body}");
        }
        assert_eq!(answer.header("retry-after").is_some(), status >= 500, "{what}: a retry makes sense or not");
        let id = answer.header("x-request-id").unwrap_or_else(|| panic!("{what}: a request id"));
        balancer.output.line("log line with the request id", |line| line.contains(id).then_some(())).await;
    }
    assert_eq!(engine.turns(), 0);
}

#[tokio::test]
async fn each_request_has_an_id_of_its_own() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let mut seen = Vec::new();
    for ask in [Ask::chat("m", "Hello."), Ask::messages("m", "Hello."), Ask::chat("unknown-to-us", "Hello.")] {
        let answer = balancer.ask(&ask).await;
        let id = answer.header("x-request-id").expect("a request id").to_string();
        balancer.output.line("log line with the request id", |line| line.contains(&id).then_some(())).await;
        assert!(!seen.contains(&id));
        seen.push(id);
    }
}
