//! What the balancer answers itself, and what it lets nobody ask.

use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test]
async fn it_answers_for_its_own_health() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    balancer.scraped().await;
    let mut client = balancer.client().await;
    for path in ["/health", "/ping", "/version", "/v1/models", "/api/hello"] {
        let whole = client.ask(&Ask::get(path)).await;
        assert_eq!(whole.status, 200, "GET {path}");
        let head = client.ask(&Ask::new("HEAD", path)).await;
        assert_eq!(head.status, 200, "HEAD {path}");
        // On the same connection: a body after HEAD would be read as the next answer.
        assert_eq!(client.ask(&Ask::chat("m", "Hello.")).await.status, 200);
    }
    assert!(client.ask(&Ask::get("/version")).await.json()["version"].is_string());
}

#[tokio::test]
async fn its_models_are_those_that_replicas_serve() {
    let engines = engines::<4>().await;
    for (engine, served) in engines.iter().zip(["one", "two", "two", "three"]) {
        engine.vitals(|vitals| vitals.model = served.into());
    }
    let models = [
        model("one", [&engines[0]], json!({})),
        model("two", [&engines[1], &engines[2]], json!({})),
        model("three", [&engines[3]], json!({})),
    ];
    let balancer = Balancer::start(json!({"models": models})).await;
    let listed = until("all models", async || {
        let list = balancer.ask(&Ask::get("/v1/models")).await.json();
        assert_eq!(list["object"], "list");
        let data = list["data"].as_array().expect("a list").clone();
        (data.len() == 3).then_some(data)
    })
    .await;
    let mut ids: Vec<&str> = listed.iter().filter_map(|model| model["id"].as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["one", "three", "two"], "each once");
    // Clients read from it how much fits.
    assert!(listed.iter().all(|model| model["max_model_len"] == 32768 && model["object"] == "model"), "{listed:?}");
}

/// A key of the balancer's own opens an engine; the client's opens it only where it is passed on.
#[tokio::test]
async fn its_models_are_asked_for_with_the_right_key() {
    let cases = [
        (json!({}), json!(null), "Bearer of-the-client", true),
        (json!({"client_credentials": "drop"}), json!(null), "Bearer of-the-client", false),
        (json!({}), json!({"env": "HOMING_TEST_KEY"}), "Bearer of-the-engine", true),
        (json!({"client_credentials": "drop"}), json!({"env": "HOMING_TEST_KEY"}), "Bearer of-the-engine", true),
    ];
    for (server, api_key, expected, listed) in cases {
        let engine = Engine::start().await;
        engine.answers_probes(move |probe| {
            (probe.header("authorization") != Some(expected)).then(|| vllm::error("401 Unauthorized"))
        });
        let mut config = one_model([&engine], json!({}));
        config["server"] = server.clone();
        if !api_key.is_null() {
            config["models"][0]["replicas"][0]["api_key"] = api_key.clone();
        }
        let balancer = Balancer::start_with(config, &[("HOMING_TEST_KEY", "of-the-engine")]).await;
        let ask = Ask::get("/v1/models").header("authorization", "Bearer of-the-client");
        let list = balancer.ask(&ask).await.json();
        assert_eq!(list["data"].as_array().map(Vec::len), Some(usize::from(listed)), "{server} {api_key}: {list}");
    }
}

#[tokio::test]
async fn an_engine_that_hangs_does_not_hide_the_models_of_others() {
    let mut engines = engines::<3>().await;
    engines[0].answers_all_probes(Answer::new().wait(&Gate::shut()));
    engines[1].refuse();
    engines[2].vitals(|vitals| vitals.model = "there".into());
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let list = balancer.ask(&Ask::get("/v1/models")).await.json();
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["data"][0]["id"], "there");
}

/// The engine's own administration, as the engine knows it and as somebody would disguise it.
const CLOSED: [&str; 33] = [
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/pause",
    "/resume",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/start_profile",
    "/stop_profile",
    "/collective_rpc",
    "/update_weights",
    "/scale_elastic_ep",
    "/fault_tolerance/apply",
    "/abort_requests",
    "/server_info",
    "/docs",
    "/metrics",
    "/sleep/",
    "//sleep",
    "/sleep?level=1",
    "/%73leep",
    "/v1/../sleep",
    "/./sleep",
    "/v1/chat/completions/../../../sleep",
    "/v1/chat/completions/..%2f..%2f..%2fsleep",
    "/v1/chat/completions;/../../../sleep",
    "/SLEEP",
    "http://balancer.test/sleep",
    "/routing",
    "/reload",
];

#[tokio::test]
async fn what_is_not_open_to_the_outside_is_404() {
    let engine = Engine::start().await;
    let mut nameless = model("", [&engine], json!({}));
    nameless.as_object_mut().unwrap().remove("name");
    let balancer = Balancer::start(json!({"models": [nameless]})).await;
    for target in CLOSED {
        for method in ["GET", "POST"] {
            let answer = balancer.ask(&Ask::new(method, target).session("session-1")).await;
            assert_eq!(answer.status, 404, "{method} {target}");
            // Its error is one that programs can read.
            assert!(answer.json()["error"]["message"].is_string(), "{method} {target}");
        }
    }
    assert_eq!(engine.turns(), 0);
}

#[tokio::test]
async fn other_paths_are_404_in_the_dialect_of_the_path() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for (path, anthropic) in [
        ("/", false),
        ("/v1/nothing", false),
        ("/v1/chat/completions/more", false),
        ("/v1/messages/more", true),
        ("/v1/messages/batches", true),
    ] {
        let answer = balancer.ask(&Ask::turn(path, "m", "Hello.")).await;
        assert_eq!(answer.status, 404, "{path}");
        let body: Value = answer.json();
        assert_eq!(body["type"] == "error", anthropic, "{path}: {body}");
        assert_eq!(body["error"]["type"], "not_found_error", "{path}: {body}");
    }
    assert_eq!(engine.turns(), 0);
}
