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

/// The engine's own administration.
const ADMINISTRATION: [&str; 28] = [
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/pause",
    "/resume",
    "/is_paused",
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
    "/is_scaling_elastic_ep",
    "/fault_tolerance/apply",
    "/abort_requests",
    "/server_info",
    "/load",
    "/metrics",
    "/docs",
    "/redoc",
    "/openapi.json",
    // The balancer's own.
    "/routing",
    "/reload",
    "/readyz",
];

/// A path as somebody would disguise it, who hopes that the engine reads it otherwise than the balancer.
fn disguises(path: &str) -> Vec<String> {
    let name = &path[1..];
    let encoded = |byte: u8| format!("%{byte:02x}");
    let first = encoded(name.as_bytes()[0]);
    let all: String = name.bytes().map(encoded).collect();
    vec![
        path.into(),
        format!("{path}/"),
        format!("{path}?level=1"),
        format!("{path}?"),
        format!("/{path}"),
        format!("//{path}"),
        format!("/.{path}"),
        format!("/%2e{path}"),
        format!("/v1/..{path}"),
        format!("/v1/%2e%2e{path}"),
        format!("/v1/%2E%2E%2F{name}"),
        format!("/v1/..%2f{name}"),
        format!("/v1/..;{path}"),
        format!("/v1/chat/completions/../../..{path}"),
        format!("/v1/chat/completions/..%2f..%2f..%2f{name}"),
        format!("/v1/chat/completions;/../../..{path}"),
        format!("/v1/chat/completions/..%00{path}"),
        format!("/v1/messages/%2e%2e/%2e%2e{path}"),
        format!("/v1/responses/..{path}"),
        format!("/v1/responses/%2e%2e%2f{name}"),
        format!("/v1/audio/..{path}"),
        format!("{path};a=b"),
        format!("{path}%20"),
        format!("{path}%00"),
        format!("{path}%0d%0a"),
        format!("{path}%3f"),
        format!("{path}%23"),
        format!("{path}/."),
        format!("{path}.json"),
        format!("/{first}{}", &name[1..]),
        format!("/{all}"),
        format!("/%25{}{}", &first[1..], &name[1..]),
        path.to_ascii_uppercase(),
        format!("/{}{}", name[..1].to_ascii_uppercase(), &name[1..]),
        format!("http://balancer.test{path}"),
        format!("http://balancer.test/.{path}"),
        format!("HTTP://balancer.test{path}"),
        format!("{path}?{}", "a".repeat(7000)),
        format!("/{}{path}", "a/../".repeat(1000)),
        // What is no target at all is refused before it is one.
        format!("http://other.test{path}"),
        format!("{path}#"),
        format!("\\{name}"),
        format!("/v1/..\\{name}"),
        format!("{path}\0"),
        format!("{path}\t"),
        format!("{path} "),
        name.into(),
        format!("{path}?{}", "a".repeat(9000)),
    ]
}

#[tokio::test]
async fn no_administration_passes_in_any_disguise() {
    let engine = Engine::start().await;
    let mut nameless = model("", [&engine], json!({}));
    nameless.as_object_mut().unwrap().remove("name");
    let balancer = Balancer::start(json!({"models": [nameless]})).await;
    let probes = engine.probes();
    for target in ADMINISTRATION.iter().flat_map(|path| disguises(path)) {
        for method in ["GET", "POST"] {
            let mut client = balancer.client().await;
            client.send(&Ask::new(method, &target).session("session-1")).await;
            let answer = client.response(method).await;
            assert!([400, 404, 414].contains(&answer.status), "{} for {method} {target:?}", answer.status);
            // Its error is one that programs can read.
            assert!(answer.json()["error"]["message"].is_string(), "{method} {target:?}");
        }
    }
    assert_eq!(engine.turns(), 0);
    engine.saw("its probes", |seen| seen.probes.len() > probes).await;
    let asked = engine.probed();
    assert!(asked.iter().all(|probe| probe.header("x-session-id").is_none()), "none of these probes was the client's");
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
