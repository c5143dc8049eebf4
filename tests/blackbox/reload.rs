//! The configuration read again while the balancer serves.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::vllm::merge;
use crate::harness::*;

fn turn(id: &str) -> Ask {
    Ask::chat("m", "Hello.").session(id)
}

/// `config` with other settings at its top.
fn with(mut config: Value, more: Value) -> Value {
    merge(&mut config, &more);
    config
}

#[tokio::test]
async fn both_ways_to_reload_change_what_can_change() {
    let engines = engines::<2>().await;
    for by_signal in [false, true] {
        let balancer = Balancer::start(one_model(&engines, json!({"max_num_seqs": 32}))).await;
        balancer.ask(&turn("conversation-a")).await.is("placed");
        assert_eq!(balancer.ask(&Ask::chat("m", &"x".repeat(2000))).await.status, 200);
        let changed = with(
            one_model(&engines, json!({"spill_threshold": 3, "conversations_max": 100})),
            json!({"server": {"limits": {"body": "1 KiB"}}}),
        );
        if by_signal {
            balancer.write(&changed);
            balancer.signal(Signal::SIGHUP);
        } else {
            let answer = balancer.reload(&changed).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let routing = balancer.routing_when("the new settings", |routing| routing.0["spill_threshold"] == 3).await;
        assert_eq!(routing.0["spill_threshold_source"], "set");
        assert_eq!(routing.total("placed"), 2, "the counters stay");
        balancer.ask(&turn("conversation-a")).await.is("sticky");
        assert_eq!(balancer.ask(&Ask::chat("m", &"x".repeat(2000))).await.status, 413);
        assert_eq!(balancer.metrics().await.sum("homing_reloads_total", &[("outcome", "ok")]), 1.0);

        let off = one_model(&engines, json!({"affinity": "off"}));
        assert_eq!(balancer.reload(&with(off, json!({"server": {"response_headers": "off"}}))).await.status, 200);
        assert_eq!(balancer.ask(&turn("conversation-a")).await.header("x-homing-decision"), None);
        assert_eq!(balancer.routing().await.total("unrouted"), 1);
    }
}

#[tokio::test]
async fn replicas_that_stay_keep_what_they_had() {
    let engines = engines::<3>().await;
    let [stays, goes, comes] = &engines;
    let balancer = Balancer::start(one_model([stays, goes], json!({}))).await;
    balancer.ask(&turn("conversation-a")).await.is("placed").from(stays);
    balancer.ask(&turn("conversation-b")).await.is("placed").from(goes);
    let gate = Gate::shut();
    [stays, goes].iter().for_each(|engine| engine.holds(&gate));
    let mut streams = Vec::new();
    for id in ["conversation-a", "conversation-b"] {
        let mut client = balancer.client().await;
        client.send(&turn(id).streamed()).await;
        let head = client.head().await;
        client.piece().await;
        streams.push((client, head));
    }

    assert_eq!(balancer.reload(&one_model([stays, comes], json!({}))).await.status, 200);
    let routing = balancer.routing().await;
    assert_eq!(routing.names(), [stays.name(), comes.name(), goes.name()], "what it still has in flight is shown");
    assert_eq!((routing.of(stays, "placed"), routing.of(stays, "sticky"), routing.of(stays, "in_flight")), (1, 1, 1));
    assert_eq!((routing.of(stays, "conversations"), routing.of(comes, "conversations")), (1, 0));
    gate.open();
    for (mut client, head) in streams {
        // Where they were, whatever became of the replica.
        assert!(client.rest(head, "POST").await.text().ends_with("[DONE]\n\n"));
    }
    let routing = balancer.idle().await;
    assert_eq!(routing.names(), [stays.name(), comes.name()]);
    balancer.ask(&turn("conversation-a")).await.is("sticky").from(stays);
    let moved = balancer.ask(&turn("conversation-b")).await;
    moved.is("placed").from(comes);
    assert_eq!(goes.turns(), 2);

    assert_eq!(balancer.reload(&one_model(&engines, json!({}))).await.status, 200);
    balancer.ask(&turn("conversation-b")).await.is("sticky").from(comes);
    balancer.ask(&turn("conversation-c")).await.is("placed").from(goes);
}

#[tokio::test]
async fn models_come_and_go() {
    let engines = engines::<2>().await;
    let (one, two) = (model("one", [&engines[0]], json!({})), model("two", [&engines[1]], json!({})));
    let balancer = Balancer::start(json!({"models": [one.clone()]})).await;
    balancer.ask(&Ask::chat("one", "Hello.").session("session-1")).await.is("placed");
    assert_eq!(balancer.ask(&Ask::chat("two", "Hello.")).await.status, 404);
    assert_eq!(balancer.reload(&json!({"models": [two.clone(), one]})).await.status, 200);
    balancer.ask(&Ask::chat("one", "Hello.").session("session-1")).await.is("sticky");
    balancer.ask(&Ask::chat("two", "Hello.").session("session-1")).await.is("placed");
    assert_eq!(balancer.reload(&json!({"models": [two]})).await.status, 200);
    assert_eq!(balancer.ask(&Ask::chat("one", "Hello.").session("session-1")).await.status, 404);
    balancer.ask(&Ask::chat("two", "Hello.").session("session-1")).await.is("sticky");
}

#[tokio::test]
async fn a_bad_file_leaves_the_running_one_in_place() {
    let engine = Engine::start().await;
    let good = one_model([&engine], json!({"spill_threshold": 5}));
    let balancer = Balancer::start(good).await;
    balancer.ask(&turn("conversation-a")).await.is("placed");
    let url = engine.url();
    let bad = [
        "".to_string(),
        "models: [".into(),
        format!("models: [{{name: m, replicas: [{{url: '{url}'}}], spill_treshold: 3}}]"),
        format!("models: [{{name: m, replicas: [{{url: '{url}'}}], spill_threshold: -3}}]"),
        "models: [{name: m, replicas: [{url: 'ftp://127.0.0.1'}]}]".into(),
        format!("models: [{{name: m, replicas: [{{url: '{url}', api_key: {{env: HOMING_NO_SUCH_KEY}}}}]}}]"),
    ];
    for (n, text) in bad.iter().enumerate() {
        balancer.write_text(text);
        if n % 2 == 0 {
            balancer.signal(Signal::SIGHUP);
        } else {
            let answer = balancer.ask_admin(&Ask::new("POST", "/reload")).await;
            assert!((400..500).contains(&answer.status), "{text}: {}", answer.status);
            assert!(answer.text().contains("line "), "{text}: {}", answer.text());
        }
        balancer.metric_becomes("homing_reloads_total", &[("outcome", "refused")], (n + 1) as f64).await;
        assert_eq!(balancer.routing().await.0["spill_threshold"], 5, "{text}");
        balancer.ask(&turn("conversation-a")).await.is("sticky");
    }
    std::fs::remove_file(balancer.path("homing.yaml")).expect("the file is removed");
    assert!((400..500).contains(&balancer.ask_admin(&Ask::new("POST", "/reload")).await.status));
    balancer.ask(&turn("conversation-a")).await.is("sticky");
}

#[tokio::test]
async fn what_takes_a_restart_is_named_and_the_rest_is_done() {
    let engine = Engine::start().await;
    let config = one_model([&engine], json!({}));
    let balancer = Balancer::start(config.clone()).await;
    let cases = [
        ("listen", json!({"listen": [{"address": "127.0.0.1:1"}]})),
        ("admin.address", json!({"admin": {"address": "127.0.0.1:1"}})),
        ("server.threads", json!({"server": {"threads": 7}})),
    ];
    for (n, (setting, change)) in cases.into_iter().enumerate() {
        let mut changed = with(config.clone(), change);
        changed["models"][0]["spill_threshold"] = json!(n + 1);
        assert_eq!(balancer.reload(&changed).await.status, 200);
        let named = |line: &str| (line.contains(setting) && line.contains("restart")).then_some(());
        balancer.output.line(&format!("warning about {setting}"), named).await;
        assert_eq!(balancer.routing().await.0["spill_threshold"], n + 1);
    }
    balancer.ask(&turn("conversation-a")).await.is("placed");
}

#[tokio::test]
async fn a_key_is_read_again() {
    let engine = Engine::start().await;
    let key = tempfile::NamedTempFile::new().expect("a file for the key");
    let mut config = one_model([&engine], json!({}));
    config["models"][0]["replicas"][0]["api_key"] = json!({"file": key.path()});
    std::fs::write(key.path(), "first-key").expect("the key is written");
    let balancer = Balancer::start(config.clone()).await;
    for (text, sent) in [("first-key", "Bearer first-key"), ("second-key", "Bearer second-key")] {
        std::fs::write(key.path(), text).expect("the key is written");
        assert_eq!(balancer.reload(&config).await.status, 200);
        assert_eq!(balancer.ask(&turn("conversation-a")).await.status, 200);
        assert_eq!(engine.last().header("authorization"), Some(sent));
    }
    balancer.ask(&turn("conversation-a")).await.is("sticky");
}

const RELOADS: usize = 40;

#[tokio::test]
async fn reloads_under_load_lose_nothing() {
    let engines = engines::<3>().await;
    let two = one_model(&engines[..2], json!({"spill_threshold": 1000}));
    let three = one_model(&engines, json!({"spill_threshold": 2000}));
    let balancer = Balancer::start(two.clone()).await;
    let callers = Callers::start(&balancer, &engines[..2]);
    for n in 0..RELOADS {
        let config = if n % 2 == 0 { &three } else { &two };
        if n % 4 < 2 {
            assert_eq!(balancer.reload(config).await.status, 200);
        } else {
            balancer.write(config);
            balancer.signal(Signal::SIGHUP);
            balancer.metric_becomes("homing_reloads_total", &[("outcome", "ok")], (n + 1) as f64).await;
        }
        callers.go_on().await;
    }
    callers.end(&balancer, &engines).await;
}

/// Whoever opens a pipe waits for its other end, and nobody is there.
#[tokio::test]
async fn a_pipe_in_place_of_a_file_holds_up_no_reload() {
    let engine = Engine::start().await;
    let config = one_model([&engine], json!({}));
    let balancer = Balancer::start(config.clone()).await;
    let pipe = balancer.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
    assert!(made.success());
    for more in [
        json!({"callers": {"file": pipe}}),
        json!({"admin": {"address": "127.0.0.1:0", "token": {"file": pipe}}}),
        json!({"listen": [{"address": "127.0.0.1:0", "tls": {"certificate": pipe, "key": pipe}}]}),
    ] {
        let answer = balancer.reload(&with(config.clone(), more)).await;
        assert!((400..500).contains(&answer.status) && answer.text().contains("no regular file"), "{}", answer.text());
    }
    assert_eq!(balancer.reload(&config).await.status, 200);
}

/// What is in flight goes on; added again meanwhile, the model knows of it and of its conversations.
#[tokio::test]
async fn a_model_that_is_removed_and_added_again_goes_on_as_it_was() {
    let engine = Engine::start().await;
    let other = Engine::start().await;
    let both = json!({"models": [model("m", [&engine], json!({})), model("other", [&other], json!({}))]});
    let balancer = Balancer::start(both.clone()).await;
    balancer.ask(&turn("conversation-a")).await.is("placed");
    let gate = Gate::shut();
    engine.holds(&gate);
    let held = ask_all(balancer.listen, [turn("conversation-b").streamed()]);
    engine.saw_turns(2).await;
    let alone = json!({"models": [model("other", [&other], json!({}))]});
    assert_eq!(balancer.reload(&alone).await.status, 200);
    assert_eq!(balancer.reload(&both).await.status, 200);
    let routing = balancer.routing().await;
    assert_eq!((routing.total("in_flight"), routing.total("placed")), (1, 2));
    gate.open();
    for answer in held {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    balancer.idle().await;
    balancer.ask(&turn("conversation-a")).await.is("sticky");
}
