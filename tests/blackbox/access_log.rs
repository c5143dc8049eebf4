//! The line that each request leaves, and what it leaves out.

use serde_json::{Value, json};

use crate::harness::vllm::Usage;
use crate::harness::*;

async fn balancer(engine: &Engine, form: Value) -> Balancer {
    let mut config = one_model([engine], json!({}));
    config["server"] = json!({"access_log": form});
    Balancer::start(config).await
}

fn json_line(line: &str) -> Option<Value> {
    serde_json::from_str::<Value>(line).ok().filter(Value::is_object)
}

#[tokio::test]
async fn json_lines_say_what_became_of_each_request() {
    let engine = Engine::start().await;
    engine.reports(Usage { prompt: 100, cached: Some(60), completion: 9 });
    let balancer = balancer(&engine, json!("json")).await;
    let asks = [
        Ask::chat("m", "Hello.").session("session-1"),
        Ask::messages("m", "Hello.").session("session-1").streamed(),
        Ask::chat("unknown-to-us", "Hello."),
        Ask::get("/v1/nothing"),
    ];
    let mut lengths = Vec::new();
    let mut lines = Vec::new();
    for (n, ask) in asks.iter().enumerate() {
        lengths.push(balancer.ask(ask).await.body.len());
        lines = balancer.output.count("the access log", n + 1, json_line).await;
    }
    assert_eq!(lines.len(), asks.len(), "a line a request: {lines:?}");
    for (line, decision) in lines[..2].iter().zip(["placed", "sticky"]) {
        assert_eq!(
            [&line["model"], &line["replica"], &line["decision"], &line["status"]],
            [&json!("m"), &json!(engine.name()), &json!(decision), &json!(200)]
        );
        assert_eq!([&line["prompt_tokens"], &line["cached_tokens"], &line["completion_tokens"]], [100, 60, 9]);
        let seconds = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("{field} in {line}"));
        assert!(0.0 <= seconds("first_byte_s") && seconds("first_byte_s") <= seconds("total_s"), "{line}");
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    }
    for ((line, ask), length) in lines.iter().zip(&asks).zip(lengths) {
        assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&json!(ask.body.len()), &json!(length)), "{line}");
    }
    for line in &lines[2..] {
        assert_eq!(line["status"], 404);
        assert!(line["replica"].is_null() && line["decision"].is_null() && line["prompt_tokens"].is_null(), "{line}");
    }
}

#[tokio::test]
async fn text_lines_say_the_same() {
    let engine = Engine::start().await;
    engine.reports(Usage { prompt: 100, cached: Some(60), completion: 9 });
    let balancer = balancer(&engine, json!("text")).await;
    let length = balancer.ask(&Ask::chat("m", "Hello.").session("session-1")).await.body.len();
    let access = |line: &str| line.contains("decision=").then(|| line.to_string());
    let line = balancer.output.line("access log line", access).await;
    let (out, replica) = (format!("out={length}"), format!("replica={}", engine.name()));
    let words = ["model=m", &replica, "decision=placed", "status=200", &out, "prompt=100", "cached=60", "completion=9"];
    let words = words.into_iter().chain(["parked=-", "cache=first_turn"]);
    for word in words {
        assert!(line.split(' ').any(|found| found == word), "{word} in {line}");
    }
}

#[tokio::test]
async fn off_writes_none() {
    let engine = Engine::start().await;
    let mut balancer = balancer(&engine, json!("off")).await;
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.").session("session-1")).await.status, 200);
    balancer.signal(nix::sys::signal::Signal::SIGTERM);
    balancer.exit().await;
    let lines = balancer.output.lines();
    assert!(lines.iter().all(|line| !line.contains("placed")), "{lines:?}");
}

/// Everything that could say who asked, or what; with the process's own log as talkative as it can be.
#[tokio::test]
async fn nothing_in_it_says_who_asked_or_what() {
    let engine = Engine::start().await;
    engine.answers(|request| match request.header("x-fails") {
        Some(_) => Answer::new().send(answer::stream_head()).send(answer::chunk(b"data: marker-answer\n\n")).reset(),
        None => Answer::whole("200 OK", &[("x-said", "marker-answer")], b"{\"content\": \"marker-answer\"}"),
    });
    for form in ["text", "json"] {
        let mut config = one_model([&engine], json!({}));
        config["server"] = json!({"access_log": form, "limits": {"body": "4 KiB", "body_read": "300 ms"}});
        let mut balancer = Balancer::start_with(config, &[("RUST_LOG", "homing=trace,info")]).await;
        let ask = Ask::messages("m", "marker-text")
            .session("marker-session")
            .header("x-claude-code-session-id", "marker-session-2")
            .header("authorization", "Bearer marker-key")
            .header("x-api-key", "marker-key")
            .header("cookie", "marker=cookie")
            .with(json!({"metadata": {"user_id": "user_00ff_account_marker-account_session_marker-session-3"}}));
        assert_eq!(balancer.ask(&ask).await.status, 200);
        let mut client = balancer.client().await;
        client.send(&ask.clone().header("x-fails", "1").streamed()).await;
        client.head().await;
        within("the end", client.wire.closed()).await;
        let query = Ask { target: "/v1/messages?key=marker-key".into(), ..ask.clone() };
        assert_eq!(balancer.ask(&query).await.status, 200);
        assert_eq!(balancer.ask(&ask.clone().with(json!({"model": "unknown-marker"}))).await.status, 404);
        assert_eq!(balancer.ask(&Ask { body: b"{\"marker\":".to_vec(), ..ask.clone() }).await.status, 400);
        assert_eq!(balancer.ask(&ask.clone().with(json!({"x": "x".repeat(5000)}))).await.status, 413);
        let mut slow = balancer.client().await;
        slow.send_bytes(&ask.head_bytes()).await;
        slow.send_bytes(&ask.body[..30]).await;
        assert_eq!(slow.response("POST").await.status, 408);
        balancer.signal(nix::sys::signal::Signal::SIGTERM);
        balancer.exit().await;
        let told = balancer.output.lines();
        let found: Vec<_> = told.iter().filter(|line| line.to_lowercase().contains("marker")).collect();
        assert!(found.is_empty(), "{form}: {found:?}");
        assert!(told.iter().any(|line| line.contains("sticky")), "{form}: requests are logged: {told:?}");
    }
}

/// A line of the log is a line, whatever the request says of itself.
#[tokio::test]
async fn nothing_in_it_can_be_forged() {
    let engine = Engine::start().await;
    for form in ["text", "json"] {
        let balancer = balancer(&engine, json!(form)).await;
        let targets = [
            "/v1/%0Adecision=forged",
            "/v1/\"decision\":\"forged\"",
            "/v1/x%20decision=forged",
            "/v1/x\tdecision=forged",
        ];
        for target in targets {
            let ask = Ask::get(target).header("x-request-id", "id decision=forged");
            let mut client = balancer.client().await;
            client.send(&ask).await;
            within("an answer or an end", client.wire.closed_or_head()).await;
        }
        assert_eq!(balancer.ask(&Ask::chat("m", "Hello.").session("session-1")).await.status, 200);
        balancer.output.line("the last request", |line| line.contains("placed").then_some(())).await;
        for line in balancer.output.lines() {
            let forged = line.split(' ').any(|word| word == "decision=forged")
                || json_line(&line).is_some_and(|line| line["decision"] == "forged");
            assert!(!forged, "{line}");
        }
    }
}
