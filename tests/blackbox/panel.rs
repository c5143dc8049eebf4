//! The page and what it shows: parts, headers, escaping, history, decisions.

use serde_json::{Value, json};

use crate::harness::full::{Full, turn};
use crate::harness::vllm::Usage;
use crate::harness::*;

const FRAME: [&str; 4] = ["/", "/panel.css", "/panel.js", "/icon.svg"];
const PARTS: [&str; 3] = ["/panel/models", "/panel/history", "/panel/decisions"];

async fn text(balancer: &Balancer, path: &str) -> String {
    let response = balancer.ask_admin(&Ask::get(path)).await;
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.text()
}

async fn json_of(balancer: &Balancer, path: &str) -> Value {
    balancer.ask_admin(&Ask::get(path)).await.json()
}

/// The last decisions, once there are so many.
async fn decisions(balancer: &Balancer, count: usize) -> Vec<Value> {
    until(&format!("{count} decisions"), async || {
        let decisions = json_of(balancer, "/decisions").await["decisions"].as_array().expect("a list").clone();
        (decisions.len() == count).then_some(decisions)
    })
    .await
}

#[tokio::test]
async fn the_page_runs_nothing_but_its_own_files() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for path in FRAME.iter().chain(&PARTS) {
        let response = balancer.ask_admin(&Ask::get(path)).await;
        assert_eq!(response.status, 200, "{path}");
        let policy = response.header("content-security-policy").unwrap_or_default();
        for rule in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
        let others = ["x-content-type-options", "referrer-policy", "cache-control"].map(|name| response.header(name));
        assert_eq!(others, [Some("nosniff"), Some("no-referrer"), Some("no-store")], "{path}");
        let body = response.text();
        for inline in ["<style", " style=", " onclick=", "<script>", "javascript:"] {
            assert!(!body.contains(inline), "{path} has {inline}");
        }
        for elsewhere in ["src=\"http", "href=\"http", "url(", "@import", "//cdn"] {
            assert!(!body.contains(elsewhere), "{path} has {elsewhere}");
        }
        assert_eq!(balancer.ask_admin(&Ask::new("POST", path)).await.status, 405, "{path}");
        let head = balancer.ask_admin(&Ask::new("HEAD", path)).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
    }
}

#[tokio::test]
async fn the_frame_needs_no_token_and_holds_no_data_and_all_else_does() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({"name": "a-model-of-ours"}));
    config["admin"] = json!({"address": "127.0.0.1:0", "token": {"env": "HOMING_TEST_TOKEN"}});
    let balancer = Balancer::start_with(config, &[("HOMING_TEST_TOKEN", "the-token")]).await;
    for path in FRAME {
        let body = text(&balancer, path).await;
        for data in ["a-model-of-ours", &engine.name(), "the-token"] {
            assert!(!body.contains(data), "{path} says {data}");
        }
    }
    for path in PARTS.iter().chain(&["/decisions", "/history/a-model-of-ours"]) {
        let ask = Ask::get(path);
        assert_eq!(balancer.ask_admin(&ask).await.status, 401, "{path}");
        let wrong = ask.clone().header("authorization", "Bearer the-toke");
        assert_eq!(balancer.ask_admin(&wrong).await.status, 401, "{path}");
        assert_eq!(balancer.ask_admin(&ask.header("authorization", "Bearer the-token")).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn names_are_escaped_wherever_they_stand() {
    const HOSTILE: &str = "<script>alert(1)</script>\"'&amp;";
    let engine = Engine::start().await;
    let balancer = Balancer::start(json!({"models": [model(HOSTILE, [&engine], json!({}))]})).await;
    assert_eq!(balancer.ask(&Ask::chat(HOSTILE, "Hello.").session("conversation-a")).await.status, 200);
    assert_eq!(decisions(&balancer, 1).await[0]["model"], HOSTILE);
    for path in PARTS {
        let body = text(&balancer, path).await;
        assert!(body.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;amp;"), "{path}");
        assert!(!body.contains("<script"), "{path}");
    }
    // What a filter is asked for is not sent back.
    let body = text(&balancer, "/panel/decisions?conversation=%3Cscript%3E&model=%22%3E%3Cscript%3E&decision=x").await;
    assert!(!body.contains("<script") && !body.contains("%3C"), "{body}");
}

#[tokio::test]
async fn cards_say_what_routing_says() {
    let engines = engines::<2>().await;
    let settings = json!({"max_num_seqs": 32, "kv_cache_tokens": 100_000});
    let balancer = Balancer::start(one_model(&engines, settings)).await;
    for _ in 0..3 {
        assert_eq!(balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.status, 200);
    }
    balancer.idle().await;
    balancer.scraped().await;
    let cards = text(&balancer, "/panel/models").await;
    for badge in [
        "affinity <strong>on</strong>",
        "spill threshold <strong>8 (auto)</strong>",
        "sticky <strong>100.0\u{a0}%</strong>",
        "in flight <strong>0</strong>",
        "admission <strong>auto</strong>",
        "parked <strong>0</strong>",
        "requests routed 3,",
        "Conversations 1 of at most 8,192",
    ] {
        assert!(cards.contains(badge), "{badge} in {cards}");
    }
    let held = balancer.routing().await.of(&engines[0], "held_tokens");
    assert!(held > 0 && cards.contains(" of 100,000"), "{held} in {cards}");
    engines[1].answers_all_probes(vllm::error("500 Internal Server Error"));
    until("the reason of its state", async || {
        text(&balancer, "/panel/models").await.contains("failed its checks").then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_history_counts_what_ended() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for (prompt, cached) in [(100, Some(30)), (50, None), (10, Some(10))] {
        engine.reports(Usage { prompt, cached, completion: 7 });
        assert_eq!(balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.status, 200);
    }
    // What follows a conversation and is no turn of it does not count.
    assert_eq!(balancer.ask(&Ask::turn("/v1/messages/count_tokens", "m", "Hello.")).await.status, 200);
    let sums = async |span: &str| {
        let history = json_of(&balancer, &format!("/history/m?span={span}")).await;
        let buckets = history["buckets"].as_array().expect("a list").iter().chain([&history["filling"]]);
        let sum = |name: &str| buckets.clone().map(|bucket| bucket[name].as_u64().expect("a number")).sum::<u64>();
        ["requests", "cached_tokens", "computed_tokens", "unmeasured_tokens", "completion_tokens", "waits"].map(sum)
    };
    for span in ["hour", "day"] {
        until("all that ended", async || (sums(span).await == [3, 40, 70, 50, 21, 0]).then_some(())).await;
    }
    let metrics = balancer.metrics().await;
    let tokens = |source| metrics.sum("homing_prompt_tokens_total", &[("model", "m"), ("source", source)]);
    assert_eq!(["cached", "computed", "unmeasured"].map(tokens), [40.0, 70.0, 50.0]);
    for (path, status) in [("/history/m", 200), ("/history/other", 404), ("/history/m?span=year", 404)] {
        assert_eq!(balancer.ask_admin(&Ask::get(path)).await.status, status, "{path}");
    }
}

/// Buckets close as time passes, and the chart has a column for each.
#[tokio::test]
async fn buckets_close_and_are_drawn() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    assert_eq!(balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.status, 200);
    let history = until("a bucket", async || {
        Some(json_of(&balancer, "/history/m").await).filter(|history| history["buckets"][0].is_object())
    })
    .await;
    let bucket = &history["buckets"][0];
    assert_eq!((bucket["at"].as_u64().expect("a moment") % 10, &bucket["requests"]), (0, &json!(1)));
    assert!(bucket["first_byte_p50_s"].is_number() && bucket["first_byte_p95_s"].is_number(), "{bucket}");
    assert_eq!((&history["step_s"], &history["buckets_max"]), (&json!(10), &json!(360)));
    for width in ["", "?width=1", "?width=99999", "?width=x", "?width=390"] {
        let body = text(&balancer, &format!("/panel/history{width}")).await;
        assert!(body.contains("<title>") && body.contains("1 requests"), "{width}: {body}");
    }
}

#[tokio::test]
async fn each_decision_says_why() {
    let engines = engines::<2>().await;
    let [first, second] = &engines;
    let balancer = Balancer::start(one_model(&engines, json!({"spill_threshold": 1, "admission": "off"}))).await;
    let turn = |id: &str| Ask::chat("m", "Hello.").session(id);
    for decision in ["placed", "sticky"] {
        balancer.ask(&turn("conversation-a")).await.is(decision);
        balancer.idle().await;
    }
    let gate = Gate::shut();
    first.holds(&gate);
    let held = ask_all(balancer.listen, [turn("conversation-a")]);
    first.saw_turns(3).await;
    balancer.ask(&turn("conversation-a")).await.is("spilled").from(second);
    gate.open();
    for answer in held {
        answer.await.unwrap().is("sticky");
    }
    balancer.idle().await;
    let others = [
        (Ask::post("/v1/embeddings", &json!({"model": "m", "input": "Hello."})), "balanced"),
        (turn("conversation-a").header("x-data-parallel-rank", "0"), "client_pinned"),
        (turn("conversation-a").header("x-data-parallel-rank", "9"), "unrouted"),
    ];
    for (ask, decision) in others {
        balancer.ask(&ask).await.is(decision);
        balancer.idle().await;
    }
    let listed = decisions(&balancer, 7).await;
    let reasons: Vec<(&str, &str)> = listed
        .iter()
        .map(|decided| (decided["decision"].as_str().unwrap(), decided["reason"].as_str().unwrap()))
        .collect();
    let spilled = format!("home {} had 1 in flight, threshold 1; {} had 0", first.name(), second.name());
    assert_eq!(
        reasons,
        [
            ("unrouted", "the client named a rank that there is not"),
            ("client_pinned", "the client named rank 0"),
            ("balanced", "nothing told its conversation, least load 0.0"),
            ("spilled", spilled.as_str()),
            ("sticky", "home, its cache is there; 0 in flight, threshold 1"),
            ("sticky", "home, its cache is there; 0 in flight, threshold 1"),
            ("placed", "a new conversation, least load 0.0"),
        ]
    );
    let page = text(&balancer, "/panel/decisions").await;
    assert!(page.contains(&spilled), "{page}");
}

#[tokio::test]
async fn one_placed_by_room_says_for_how_much_and_one_that_waited_for_how_long() {
    let mut full = Full::start(json!({})).await;
    let mut client = full.park(&turn("waits"), 1).await;
    let parked = text(&full.balancer, "/panel/models").await;
    assert!(parked.contains("parked <strong>1, for "), "{parked}");
    full.end("waits");
    full.end("held-1");
    client.response("POST").await.is("placed");
    full.empties().await;
    let listed = decisions(&full.balancer, 3).await;
    let waited: Vec<&Value> = listed.iter().filter(|decided| decided["parked_s"].is_number()).collect();
    assert_eq!(waited.len(), 1, "{listed:?}");
    for decided in &listed {
        let reason = decided["reason"].as_str().expect("a reason");
        assert!(
            reason.starts_with("a new conversation, room for ") && reason.contains("least expected time"),
            "{reason}"
        );
    }
    let history = json_of(&full.balancer, "/history/m?span=day").await;
    let buckets = history["buckets"].as_array().expect("a list").iter().chain([&history["filling"]]);
    assert_eq!(buckets.map(|bucket| bucket["waits"].as_u64().expect("a number")).sum::<u64>(), 1);
}

#[tokio::test]
async fn a_failed_try_is_told_with_the_decision() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    engines[0].answers(|_| vllm::error("503 Service Unavailable"));
    balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.is("placed").from(&engines[1]);
    let listed = decisions(&balancer, 1).await;
    let reason = listed[0]["reason"].as_str().expect("a reason");
    let end = format!("; {} failed, then {}", engines[0].name(), engines[1].name());
    assert!(reason.ends_with(&end), "{reason}");
    assert_eq!(listed[0]["replica"], engines[1].name());
}

#[tokio::test]
async fn the_last_two_hundred_are_kept_newest_first_and_filtered() {
    let engine = Engine::start().await;
    engine.reports(Usage { prompt: 1000, cached: Some(600), completion: 5 });
    let names = ["one", "two"];
    let models = names.map(|name| model(name, [&engine], json!({})));
    let balancer = Balancer::start(json!({"models": models})).await;
    let mut client = balancer.client().await;
    for n in 0..205 {
        let ask = Ask::chat(names[n % 2], "Hello.").session(&format!("conversation-{}", n / 4));
        assert_eq!(client.ask(&ask).await.status, 200);
    }
    balancer.metric_becomes("homing_requests_total", &[], 205.0).await;
    let listed = decisions(&balancer, 200).await;
    let newest = &listed[0];
    assert_eq!((&newest["model"], &newest["decision"]), (&json!("one"), &json!("placed")));
    assert_eq!((&newest["prompt_tokens"], &newest["cached_tokens"]), (&json!(1000), &json!(600)));
    assert_eq!(newest["cache"], "first_turn");
    let times: Vec<&str> = listed.iter().map(|decided| decided["time"].as_str().expect("a time")).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older));
    let count = async |query: &str| {
        json_of(&balancer, &format!("/decisions?{query}")).await["decisions"].as_array().map(Vec::len)
    };
    assert_eq!(count("model=one").await, Some(100));
    assert_eq!(count("decision=placed&model=two").await, Some(50));
    assert_eq!(count("decision=spilled").await, Some(0));
    let conversation = listed[1]["conversation"].as_str().expect("a hash");
    assert_eq!(count(&format!("conversation={conversation}")).await, Some(4));
    assert_eq!(count("model=&decision=&conversation=").await, Some(200));
}

#[tokio::test]
async fn nothing_says_who_asked_or_what() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let ask =
        Ask::chat("m", "a-secret-opening").session("a-secret-session").header("authorization", "Bearer a-secret-key");
    assert_eq!(balancer.ask(&ask).await.status, 200);
    let listed = decisions(&balancer, 1).await;
    let hash = listed[0]["conversation"].as_str().expect("a hash");
    assert!(hash.len() == 8 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()), "{hash}");
    for path in PARTS.iter().chain(&["/decisions", "/history/m", "/routing", "/metrics"]) {
        assert!(!text(&balancer, path).await.contains("secret"), "{path}");
    }
    // Another process calls the same conversation otherwise.
    let other = Balancer::start(one_model([&engine], json!({}))).await;
    assert_eq!(other.ask(&ask).await.status, 200);
    assert_ne!(decisions(&other, 1).await[0]["conversation"], hash);
}
