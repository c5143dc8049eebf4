//! Nothing that is secret or says who asked what comes out anywhere: not in the logs at their most talkative, not in the
//! metrics, not in what the admin address shows, not in errors.

use homing::config::KeyHash;
use serde_json::{Value, json};

use crate::harness::*;

/// Planted in everything that a client sends and an engine answers; nothing else contains it.
const MARKER: &str = "m4rker";

fn turn(path: &str) -> Ask {
    Ask::turn(path, "m", "prompt-m4rker")
        .session("session-m4rker")
        .header("x-claude-code-session-id", "claude-m4rker")
        .header("x-api-key", "key-m4rker")
        .header("authorization", "Bearer key-m4rker")
        .header("cookie", "cookie=m4rker")
        .header("x-request-id", "request-m4rker")
        .header("x-custom-m4rker", "1")
        .with(
            json!({"user": "user-m4rker", "metadata": {"user_id": "user_00ff_account_m4rker_session_session-m4rker"}}),
        )
}

/// Requests of every fate.
async fn ask_everything(balancer: &Balancer) -> Vec<Response> {
    let mut answers = Vec::new();
    for path in ask::DIALECTS {
        let query = Ask { target: format!("{path}?key=m4rker"), ..turn(path) };
        let unknown = turn(path).with(json!({"model": "model-m4rker"}));
        let no_json = Ask { body: b"{\"m4rker\":".to_vec(), ..turn(path) };
        let no_key = Ask { headers: vec![("authorization".into(), "Bearer other-m4rker".into())], ..turn(path) };
        let large = turn(path).with(json!({"x": "m4rker".repeat(2000)}));
        let below = Ask { target: format!("{path}/m4rker"), ..turn(path) };
        let packed = turn(path).header("content-encoding", "m4rker");
        let failing = turn(path).header("x-fails", "1");
        for ask in [turn(path), turn(path).streamed(), query, unknown, no_json, no_key, large, below, packed, failing] {
            answers.push(balancer.ask(&ask).await);
        }
        let broken = [
            format!("POST {path}?m4rker HTTP/1.1\r\nhost: m4rker\r\nx m4rker: m4rker\r\n\r\n"),
            format!("POST {path}?m4rker HTTP/1.1\r\nhost: m4rker\r\ncontent-length: m4rker\r\n\r\n"),
            format!(
                "POST {path} HTTP/1.1\r\nhost: m4rker\r\nx-api-key: key-m4rker\r\ntransfer-encoding: chunked\r\n\r\nm4rker"
            ),
            "m4rker m4rker m4rker\r\n\r\n".into(),
        ];
        for bytes in broken {
            let mut client = balancer.client().await;
            client.send_bytes(bytes.as_bytes()).await;
            answers.push(client.response("POST").await);
        }
    }
    answers
}

#[tokio::test]
async fn nothing_planted_comes_out() {
    let engine = Engine::start().await;
    engine.answers(|request| match request.header("x-fails") {
        Some(_) => Answer::new().send("HTTP/1.1 200 m4rker\r\nm4rker\r\n\r\n").close(),
        None => Answer::whole("200 OK", &[("x-said", "answer-m4rker")], b"{\"content\": \"answer-m4rker\"}"),
    });
    // The name of a model or of a caller is no secret; a key, also in place of a hash, is.
    for (form, log) in [("json", "trace"), ("text", "homing=trace,info")] {
        let mut config = one_model([&engine], json!({}));
        config["server"] = json!({"access_log": form, "limits": {"body": "8 KiB"}, "state_file": "state"});
        config["callers"] = json!([{"name": "ann", "keys": [KeyHash::of(b"key-m4rker").to_string()]}]);
        config["admin"] = json!({"address": "127.0.0.1:0", "token": {"env": "HOMING_TEST_TOKEN"}});
        config["models"][0]["replicas"][0]["api_key"] = json!({"env": "HOMING_TEST_KEY"});
        let environment =
            [("RUST_LOG", log), ("HOMING_TEST_TOKEN", "token-m4rker"), ("HOMING_TEST_KEY", "engine-m4rker")];
        let mut balancer = Balancer::start_with(config.clone(), &environment).await;
        let answers = ask_everything(&balancer).await;
        assert!(answers.iter().any(|answer| answer.status == 200) && answers.iter().any(|answer| answer.status == 401));
        let mut shown: Vec<String> = Vec::new();
        for answer in answers.iter().filter(|answer| answer.header("x-homing-error").is_some()) {
            shown.push(format!("{:?} {}", answer.head, answer.text()));
        }
        assert!(shown.len() >= 20, "errors are looked at: {shown:?}");
        for path in ["/metrics", "/routing", "/routing/m", "/healthz", "/readyz", "/nothing-m4rker"] {
            for token in ["token-m4rker", "wrong-m4rker"] {
                let ask = Ask::get(path).header("authorization", &format!("Bearer {token}"));
                shown.push(balancer.ask_admin(&ask).await.text());
            }
        }
        // A reload that is refused, with a key where its hash belongs.
        config["callers"] = json!([{"name": "ann", "keys": ["key-m4rker"]}]);
        balancer.write(&config);
        let reload = Ask::new("POST", "/reload").header("authorization", "Bearer token-m4rker");
        shown.push(balancer.ask_admin(&reload).await.text());
        balancer.signal(nix::sys::signal::Signal::SIGTERM);
        balancer.exit().await;
        let lines = balancer.output.lines();
        assert!(lines.iter().any(|line| is_access_line(line)), "requests are logged: {lines:?}");
        shown.push(String::from_utf8_lossy(&std::fs::read(balancer.path("state")).expect("its state")).into_owned());
        let found: Vec<&String> = lines.iter().chain(&shown).filter(|text| text.contains(MARKER)).collect();
        assert!(found.is_empty(), "{form}: {found:#?}");
    }
}

fn is_access_line(line: &str) -> bool {
    line.contains("decision=sticky")
        || serde_json::from_str::<Value>(line).is_ok_and(|line| line["decision"] == "sticky")
}
