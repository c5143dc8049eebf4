//! `homing explain` says where a saved request would go, and the request then goes there.

use homing::config::KeyHash;
use serde_json::{Value, json};

use crate::harness::full::{Full, turn};
use crate::harness::*;

/// The request as one would save it.
fn saved(ask: &Ask) -> Vec<u8> {
    [ask.head_bytes(), ask.body_bytes()].concat()
}

/// What `homing explain` says of it.
async fn explained(balancer: &Balancer, ask: &Ask) -> Value {
    let run = balancer.command("explain", &["--json"], Some(&saved(ask))).await;
    assert!(run.ok, "{}", run.stderr);
    serde_json::from_str(&run.stdout).expect("JSON")
}

/// Insists that the request gets what was said beforehand. Returns what was said.
async fn holds(balancer: &Balancer, ask: &Ask) -> Value {
    let before = balancer.routing().await;
    let said = explained(balancer, ask).await;
    let after = balancer.routing().await;
    assert_eq!(counts(&before.0), counts(&after.0), "asking counts nothing");
    let answer = balancer.ask(ask).await;
    assert_eq!(
        (said["outcome"].as_str(), said["decision"].as_str()),
        (Some("goes"), Some(answer.decision())),
        "{said}"
    );
    assert_eq!(said["replica"].as_str(), Some(answer.replica()), "{said}");
    balancer.idle().await;
    said
}

/// What would tell that something was counted.
fn counts(routing: &Value) -> Value {
    let replica = |replica: &Value| {
        let keep = ["in_flight", "placed", "sticky", "spilled_in", "conversations"];
        keep.map(|name| replica[name].clone())
    };
    let replicas: Vec<_> = routing["replicas"].as_array().expect("a list").iter().map(replica).collect();
    json!([routing["totals"], routing["admission"]["totals"], routing["stored"], replicas])
}

#[tokio::test]
async fn a_conversation_goes_where_it_was_said_to_go() {
    let engines = engines::<3>().await;
    let balancer = Balancer::start(one_model(&engines, json!({"spill_threshold": 1}))).await;
    let ask = Ask::chat("m", "Hello.").session("conversation-a");
    let said = holds(&balancer, &ask).await;
    assert_eq!(
        (&said["decision"], &said["source"], &said["model"]),
        (&json!("placed"), &json!("session_headers"), &json!("m"))
    );
    assert_eq!(holds(&balancer, &ask).await["decision"], "sticky");
    let listed = balancer.ask_admin(&Ask::get("/decisions")).await.json();
    assert_eq!(listed["decisions"][0]["conversation"], said["conversation"], "it is shown as the page shows it");
    // Home is busy.
    let gate = Gate::shut();
    engines[0].holds(&gate);
    let held = ask_all(balancer.listen, [ask.clone()]);
    engines[0].saw_turns(3).await;
    let said = explained(&balancer, &ask).await;
    let answer = balancer.ask(&ask).await;
    assert_eq!(
        (said["decision"].as_str(), said["replica"].as_str()),
        (Some("spilled"), Some(answer.replica())),
        "{said}"
    );
    assert!(said["reason"].as_str().is_some_and(|reason| reason.contains("had 1 in flight, threshold 1")), "{said}");
    gate.open();
    for answer in held {
        answer.await.unwrap().is("sticky");
    }
    balancer.idle().await;
    // Without anything that tells it apart, and what is no turn.
    holds(&balancer, &Ask::post("/v1/embeddings", &json!({"model": "m", "input": "Hello."}))).await;
    let count = Ask::turn("/v1/messages/count_tokens", "m", "Hello.").session("conversation-a");
    let said = explained(&balancer, &count).await;
    assert_eq!(
        (said["outcome"].as_str(), said["replica"].as_str()),
        (Some("follows"), Some(engines[0].name().as_str()))
    );
    balancer.ask(&count).await.from(&engines[0]);
}

#[tokio::test]
async fn each_source_is_named() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({}));
    config["session"] = json!({"headers": ["x-our-session"]});
    let balancer = Balancer::start(config).await;
    let ask = || Ask::chat("m", "Hello.");
    let cases = [
        (ask().header("x-our-session", "conversation-a"), json!("session.headers")),
        (ask().header("x-claude-code-session-id", "conversation-a"), json!("claude_code")),
        (ask().with(json!({"prompt_cache_key": "conversation-a"})), json!("body_ids")),
        (ask(), json!("opening")),
        (Ask::post("/v1/embeddings", &json!({"model": "m", "input": "Hello."})), Value::Null),
    ];
    for (ask, source) in cases {
        let said = holds(&balancer, &ask).await;
        assert_eq!(said["source"], source, "{said}");
        assert_eq!(said["conversation"].is_null(), source.is_null(), "{said}");
    }
}

#[tokio::test]
async fn a_rank_and_a_stored_response_are_found() {
    let engine = Engine::with_ranks(2).await;
    let mut config = one_model([], json!({}));
    config["models"][0]["replicas"] = json!([{"url": engine.url(), "data_parallel_size": 2}]);
    let balancer = Balancer::start(config).await;
    let pinned = Ask::chat("m", "Hello.").session("conversation-a").header("x-data-parallel-rank", "1");
    assert_eq!(holds(&balancer, &pinned).await["replica"], format!("{}#1", engine.name()));
    engine.answers(|request| vllm::response(request, "resp_1", None));
    let ask = |more: Value| Ask::post("/v1/responses", &json!({"model": "m", "input": "Hello."})).with(more);
    let made = balancer.ask(&ask(json!({})).session("conversation-b")).await;
    balancer.idle().await;
    let next = ask(json!({"previous_response_id": "resp_1"}));
    let said = holds(&balancer, &next).await;
    assert_eq!((said["decision"].as_str(), said["replica"].as_str()), (Some("client_pinned"), Some(made.replica())));
    assert_eq!(said["reason"], "the stored response that it goes on from is there");
}

#[tokio::test]
async fn one_that_would_wait_is_said_to_wait_and_takes_no_place_in_line() {
    let mut full = Full::start(json!({"parked_max": 1})).await;
    let said = explained(&full.balancer, &turn("waits")).await;
    assert_eq!((&said["outcome"], &said["parked"]), (&json!("waits"), &json!(0)));
    assert_eq!(full.balancer.routing().await.parked(), 0);
    let mut client = full.park(&turn("waits"), 1).await;
    let said = explained(&full.balancer, &turn("too-many")).await;
    assert_eq!(
        (&said["outcome"], &said["code"], &said["status"]),
        (&json!("refused"), &json!("admission_full"), &json!(503))
    );
    let refused = full.balancer.ask(&turn("too-many")).await;
    assert_eq!((refused.status, refused.header("x-homing-error")), (503, Some("admission_full")));
    full.end("waits");
    full.end("held-1");
    client.response("POST").await.is("placed");
    full.empties().await;
}

#[tokio::test]
async fn what_is_refused_is_said_to_be_refused() {
    let engine = Engine::start().await;
    let models = ["m", "n"].map(|name| model(name, [&engine], json!({})));
    let mut config = json!({"models": models});
    config["callers"] = json!([{
        "name": "team-a", "keys": [KeyHash::of(b"the-key").to_string()], "models": ["n*"], "requests_per_minute": 1
    }]);
    let balancer = Balancer::start(config).await;
    let by = |ask: Ask| ask.header("authorization", "Bearer the-key");
    let cases = [
        (Ask::chat("n", "Hello."), 401, "invalid_api_key"),
        (by(Ask::chat("other", "Hello.")), 404, "model_not_found"),
        (by(Ask::chat("m", "Hello.")), 403, "model_not_allowed"),
        (by(Ask::get("/v1/chat/completions")), 405, "method_not_allowed"),
        (by(Ask::new("POST", "/sleep")), 404, "route_not_open"),
        (by(Ask::new("POST", "/v1/messages").body("no JSON")), 400, "body_not_json"),
    ];
    for (ask, status, code) in &cases {
        let said = explained(&balancer, ask).await;
        assert_eq!(
            (&said["outcome"], &said["status"], &said["code"]),
            (&json!("refused"), &json!(status), &json!(code))
        );
    }
    // Asked twice, the one request of the minute is still there.
    let good = by(Ask::chat("n", "Hello.").session("conversation-a"));
    for _ in 0..2 {
        let said = explained(&balancer, &good).await;
        assert_eq!((&said["outcome"], &said["caller"]), (&json!("goes"), &json!("team-a")), "{said}");
    }
    balancer.ask(&good).await.is("placed");
    let said = explained(&balancer, &good).await;
    assert_eq!((&said["status"], &said["code"]), (&json!(429), &json!("caller_rate")));
    assert_eq!(explained(&balancer, &Ask::get("/health")).await["outcome"], "answered_here");
}

#[tokio::test]
async fn a_file_may_be_written_by_hand_or_saved_in_chunks() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let body = r#"{"model": "m", "messages": [{"role": "user", "content": "Hello."}]}"#;
    let by_hand = format!("POST /v1/chat/completions HTTP/1.1\nx-session-id: conversation-a\n\n{body}\n");
    let chunked = Ask::chat("m", "Hello.").session("conversation-a").chunked(10);
    let hashes = [by_hand.into_bytes(), saved(&chunked)].map(async |file| {
        let run = balancer.command("explain", &["--json"], Some(&file)).await;
        let said: Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!(said["outcome"], "goes", "{said}");
        said["conversation"].clone()
    });
    let [one, other] = hashes;
    assert_eq!(one.await, other.await);
    let run = balancer.command("explain", &[], Some(&saved(&chunked))).await;
    for line in ["request       POST /v1/chat/completions", "decision      placed", "because       "] {
        assert!(run.stdout.contains(line), "{line}: {}", run.stdout);
    }
    assert!(!run.stdout.contains("conversation-a"), "{}", run.stdout);
    for broken in ["", "Hello.", "POST /v1/messages HTTP/1.1\nhost: x", "POST /v1/messages HTTP/2\n\n"] {
        let run = balancer.command("explain", &[], Some(broken.as_bytes())).await;
        assert!(!run.ok && run.stderr.contains("the saved request: "), "{broken}: {}", run.stderr);
    }
    assert_eq!(balancer.ask_admin(&Ask::get("/explain")).await.status, 405);
}

#[tokio::test]
async fn asking_needs_the_token() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({}));
    config["admin"] = json!({"address": "127.0.0.1:0", "token": {"env": "HOMING_TEST_TOKEN"}});
    let balancer = Balancer::start_with(config, &[("HOMING_TEST_TOKEN", "the-token")]).await;
    let ask = Ask::new("POST", "/explain").body(saved(&Ask::chat("m", "Hello.")));
    assert_eq!(balancer.ask_admin(&ask).await.status, 401);
    assert_eq!(balancer.ask_admin(&ask.header("authorization", "Bearer the-token")).await.status, 200);
}

/// The balancer closes the connection before it has such a one whole.
#[tokio::test]
async fn one_that_is_too_large_is_said_to_be() {
    let engines = engines::<1>().await;
    let mut config = one_model(&engines, json!({}));
    config["server"] = json!({"limits": {"body": "1 KiB"}});
    let balancer = Balancer::start(config).await;
    let run = balancer.command("explain", &[], Some(&vec![b'x'; 32 << 20])).await;
    assert!(!run.ok && run.stderr.contains("server.limits.body"), "{run:?}");
    let run = balancer.command("explain", &[], Some(&[b'x'; 2048])).await;
    assert!(!run.ok && run.stderr.contains("answers 413"), "{run:?}");
}
