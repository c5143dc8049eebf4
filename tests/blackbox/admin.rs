//! The admin address: what it shows, and to whom.

use serde_json::{Value, json};

use crate::harness::*;

fn is_number_or_null(value: &Value) -> bool {
    value.is_number() || value.is_null()
}

#[tokio::test]
async fn routing_is_shown_whole() {
    let engines = engines::<2>().await;
    engines[0].vitals(|vitals| {
        let rank = &mut vitals.ranks[0];
        (rank.running, rank.waiting, rank.kv_cache_usage) = (3.0, 2.0, Some(0.25));
        (rank.prefix_queries, rank.prefix_hits) = (1000.0, 600.0);
    });
    let unread = Engine::start().await;
    unread.answers_all_probes(vllm::error("500 Internal Server Error"));
    let balancer = Balancer::start(one_model(engines.iter().chain([&unread]), json!({"max_num_seqs": 32}))).await;
    let read = |routing: &routing::Routing| {
        engines.iter().all(|engine| routing.replica(&engine.name())["reading_age_s"].is_number())
    };
    let routing = balancer.routing_when("the readings", read).await;
    let whole = &routing.0;
    assert_eq!(
        [&whole["model"], &whole["affinity"], &whole["spill_threshold"], &whole["spill_threshold_source"]],
        [&json!("m"), &json!("on"), &json!(8), &json!("auto")]
    );
    assert!(whole["since"].is_number() || whole["since"].is_string(), "{whole}");
    let totals = ["in_flight", "placed", "sticky", "spilled", "client_pinned", "balanced", "unrouted", "failed_over"];
    for total in totals {
        assert_eq!(routing.total(total), 0, "{total}");
    }
    let counts = ["in_flight", "placed", "sticky", "spilled_in", "client_pinned", "conversations"];
    let readings = ["running", "waiting", "kv_cache_usage", "prefix_cache_hit_ratio", "reading_age_s"];
    for row in routing.replicas() {
        assert!(row["replica"].is_string() && row["state"].is_string(), "{row}");
        for count in counts {
            assert_eq!(row[count], 0, "{count} in {row}");
        }
        for reading in readings {
            assert!(row.get(reading).is_some_and(is_number_or_null), "{reading} in {row}");
        }
        assert_eq!((&row["held_tokens"], &row["capacity_tokens"]), (&json!(0), &json!(null)), "{row}");
    }
    let admission = &whole["admission"];
    assert_eq!(
        [&admission["mode"], &admission["overdue"], &admission["max_wait_s"], &admission["parked_max"]],
        [&json!("auto"), &json!("refuse"), &json!(240.0), &json!(1024)]
    );
    assert!(admission["rotate"].is_null() && admission["linger_source"] == "auto", "{admission}");
    assert_eq!((&admission["parked"], &admission["longest_wait_s"]), (&json!(0), &json!(0.0)));
    let waits = ["parked", "admitted", "forced", "left", "overdue", "full", "would_park"];
    assert!(waits.iter().all(|count| routing.admission(count) == 0), "{admission}");
    assert_eq!(whole["cache"]["turns"].as_object().map(|turns| turns.len()), Some(8), "{}", whole["cache"]);
    assert!(whole["advice"].is_null());
    let row = routing.replica(&engines[0].name());
    assert_eq!(
        readings[..4].iter().map(|reading| row[reading].as_f64()).collect::<Vec<_>>(),
        [Some(3.0), Some(2.0), Some(0.25), Some(0.6)]
    );
    let row = routing.replica(&unread.name());
    assert!(readings.iter().all(|reading| row[reading].is_null()), "nothing is known of it: {row}");
}

#[tokio::test]
async fn models_are_shown_together_and_by_name() {
    let engine = Engine::start().await;
    let names = ["one", "Some/Model-4B"];
    let models = names.map(|name| model(name, [&engine], json!({})));
    let balancer = Balancer::start(json!({"models": models})).await;
    balancer.ask(&Ask::chat("Some/Model-4B", "Hello.").session("session-1")).await.is("placed");
    let all = balancer.ask_admin(&Ask::get("/routing")).await.json();
    let shown: Vec<&Value> = all["models"].as_array().expect("a list of models").iter().collect();
    assert_eq!(shown.iter().map(|model| &model["model"]).collect::<Vec<_>>(), names);
    assert_eq!(shown[1]["totals"]["placed"], 1);
    for path in ["/routing/one", "/routing/Some/Model-4B", "/routing/Some%2FModel-4B"] {
        assert_eq!(balancer.ask_admin(&Ask::get(path)).await.status, 200, "{path}");
    }
    for path in ["/routing/two", "/routing/Some", "/nothing", "/v1/models", "/v1/chat/completions"] {
        assert_eq!(balancer.ask_admin(&Ask::get(path)).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_token_guards_all_but_the_probes() {
    let engine = Engine::start().await;
    let file = tempfile::NamedTempFile::new().expect("a file for the token");
    std::fs::write(file.path(), "the-token\n").expect("the token is written");
    for token in [json!({"file": file.path()}), json!({"env": "HOMING_TEST_TOKEN"})] {
        let mut config = one_model([&engine], json!({}));
        config["admin"] = json!({"address": "127.0.0.1:0", "token": token});
        let balancer = Balancer::start_with(config, &[("HOMING_TEST_TOKEN", "the-token")]).await;
        let paths = [("GET", "/metrics"), ("GET", "/routing"), ("GET", "/routing/m"), ("POST", "/reload")];
        for (method, path) in paths {
            let ask = Ask::new(method, path);
            assert_eq!(balancer.ask_admin(&ask).await.status, 401, "{path}");
            for wrong in ["Bearer ", "Bearer the-toke", "Bearer the-token2", "the-token", "Basic the-token"] {
                let asked = ask.clone().header("authorization", wrong);
                assert_eq!(balancer.ask_admin(&asked).await.status, 401, "{path} with {wrong}");
            }
            let asked = ask.header("authorization", "Bearer the-token");
            assert_eq!(balancer.ask_admin(&asked).await.status, 200, "{path}");
        }
        for path in ["/healthz", "/readyz"] {
            assert_ne!(balancer.ask_admin(&Ask::get(path)).await.status, 401, "{path}");
        }
        assert!(balancer.output.lines().iter().all(|line| !line.contains("the-token")), "the token is shown");
    }
}

#[tokio::test]
async fn it_answers_heads_and_refuses_other_methods() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let mut client = Client::connect(balancer.admin).await;
    for path in ["/metrics", "/routing", "/routing/m", "/healthz"] {
        assert_eq!(client.ask(&Ask::new("HEAD", path)).await.status, 200, "{path}");
        assert_eq!(client.ask(&Ask::new("POST", path).body("x")).await.status, 405, "{path}");
        assert_eq!(client.ask(&Ask::get(path)).await.status, 200, "{path}");
    }
    assert_eq!(client.ask(&Ask::get("/reload")).await.status, 405);
}
