//! Who may call, where callers are configured, and what each of them may do.

use homing::config::KeyHash;
use serde_json::{Value, json};

use crate::harness::ask::DIALECTS;
use crate::harness::full::{Full, turn};
use crate::harness::*;

/// A caller with this name and the key `key-of-NAME`.
fn caller(name: &str, more: Value) -> Value {
    let mut caller = json!({"name": name, "keys": [hash(&key(name))]});
    vllm::merge(&mut caller, &more);
    caller
}

fn key(name: &str) -> String {
    format!("key-of-{name}")
}

fn hash(key: &str) -> String {
    KeyHash::of(key.as_bytes()).to_string()
}

fn by(name: &str, ask: Ask) -> Ask {
    ask.header("authorization", &format!("Bearer {}", key(name)))
}

/// A configuration of one model, `m`, with these callers.
fn config(engine: &Engine, callers: Value) -> Value {
    let mut config = one_model([engine], json!({}));
    config["callers"] = callers;
    config
}

async fn start(engine: &Engine, callers: Value) -> Balancer {
    Balancer::start(config(engine, callers)).await
}

#[track_caller]
fn is_refused(answer: &Response, status: u16, code: &str, kind: &str) {
    assert_eq!((answer.status, answer.header("x-homing-error")), (status, Some(code)), "{}", answer.text());
    assert_eq!(answer.json()["error"]["type"], kind, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], code);
}

#[tokio::test]
async fn only_a_key_that_is_configured_opens() {
    let engine = Engine::start().await;
    let ann = json!({"name": "ann", "keys": [hash("key-of-ann"), hash("second-key-of-ann")]});
    let balancer = start(&engine, json!([ann, caller("bob", json!({}))])).await;
    let ask = |headers: &[(&str, &str)], path: &str| {
        headers.iter().fold(Ask::turn(path, "m", "Hello."), |ask, (name, value)| ask.header(name, value))
    };
    let good: [&[(&str, &str)]; 7] = [
        &[("authorization", "Bearer key-of-ann")],
        &[("authorization", "bearer  key-of-ann ")],
        &[("Authorization", "Bearer second-key-of-ann")],
        &[("x-api-key", "key-of-ann")],
        &[("X-Api-Key", "key-of-bob")],
        &[("x-api-key", "key-of-ann"), ("authorization", "Bearer key-of-ann")],
        &[("x-api-key", "key-of-ann"), ("authorization", "Bearer second-key-of-ann")],
    ];
    let bad: [&[(&str, &str)]; 12] = [
        &[],
        &[("authorization", "Bearer ")],
        &[("authorization", "Bearer key-of-an")],
        &[("authorization", "Bearer key-of-annn")],
        &[("authorization", "Bearer KEY-OF-ANN")],
        &[("authorization", "key-of-ann")],
        &[("authorization", "Basic key-of-ann")],
        &[("x-api-key", "")],
        &[("x-api-key", "Bearer key-of-ann")],
        &[("x-api-key", "key-of-ann"), ("authorization", "Bearer other")],
        // Two callers are none.
        &[("x-api-key", "key-of-ann"), ("authorization", "Bearer key-of-bob")],
        &[("authorization", "Bearer key-of-ann"), ("authorization", "Bearer key-of-bob")],
    ];
    let hash_as_key = [("x-api-key", hash("key-of-ann"))];
    for path in DIALECTS {
        for headers in good {
            assert_eq!(balancer.ask(&ask(headers, path)).await.status, 200, "{headers:?}");
        }
        let turns = engine.turns();
        let hash_as_key: Vec<(&str, &str)> = hash_as_key.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for headers in bad.into_iter().chain([&hash_as_key[..]]) {
            let answer = balancer.ask(&ask(headers, path)).await;
            is_refused(&answer, 401, "invalid_api_key", "authentication_error");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert_eq!((answer.header("retry-after"), engine.turns()), (None, turns), "{headers:?}");
        }
    }
    for request in engine.requests() {
        assert_eq!((request.header("authorization"), request.header("x-api-key")), (None, None));
    }
    let metrics = balancer.metrics().await;
    assert_eq!(metrics.sum("homing_errors_total", &[("code", "invalid_api_key")]), 26.0);
}

/// Which routes need a key: all but those that say nothing.
#[tokio::test]
async fn probes_need_no_key_and_all_else_does() {
    let engine = Engine::start().await;
    let balancer = start(&engine, json!([caller("ann", json!({}))])).await;
    balancer.scraped().await;
    for path in ["/health", "/ping", "/api/hello"] {
        assert_eq!(balancer.ask(&Ask::get(path)).await.status, 200, "{path}");
    }
    for path in ["/v1/models", "/version", "/metrics", "/sleep", "/nothing", "/", "/v1/responses/resp_1"] {
        for method in ["GET", "POST", "OPTIONS"] {
            let answer = balancer.ask(&Ask::new(method, path)).await;
            assert_eq!((answer.status, answer.header("x-homing-error")), (401, Some("invalid_api_key")), "{path}");
        }
    }
    for (path, status) in [("/v1/models", 200), ("/version", 200), ("/metrics", 404), ("/nothing", 404)] {
        assert_eq!(balancer.ask(&by("ann", Ask::get(path))).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn the_engine_gets_its_own_key_alone() {
    let engine = Engine::start().await;
    let mut config = config(&engine, json!([caller("ann", json!({}))]));
    config["models"][0]["replicas"][0]["api_key"] = json!({"env": "HOMING_TEST_KEY"});
    let balancer = Balancer::start_with(config, &[("HOMING_TEST_KEY", "of-the-engine")]).await;
    for path in DIALECTS {
        let ask = Ask::turn(path, "m", "Hello.").header("x-api-key", &key("ann"));
        assert_eq!(balancer.ask(&ask).await.status, 200);
        let seen = engine.last();
        assert_eq!((seen.header("authorization"), seen.header("x-api-key")), (Some("Bearer of-the-engine"), None));
    }
}

#[tokio::test]
async fn a_caller_sees_and_uses_its_models_alone() {
    let engines = engines::<3>().await;
    let names = ["qwen-small", "qwen-large", "other"];
    let models: Vec<Value> = names
        .iter()
        .zip(&engines)
        .map(|(name, engine)| {
            engine.vitals(|vitals| vitals.model = name.to_string());
            model(name, [engine], json!({}))
        })
        .collect();
    let callers = [
        caller("all", json!({})),
        caller("some", json!({"models": ["qwen-*"]})),
        caller("one", json!({"models": ["other", "nothing"]})),
    ];
    let balancer = Balancer::start(json!({"models": models, "callers": callers})).await;
    for (who, may) in [("all", &names[..]), ("some", &names[..2]), ("one", &names[2..])] {
        for path in DIALECTS {
            for name in names {
                let answer = balancer.ask(&by(who, Ask::turn(path, name, "Hello."))).await;
                match may.contains(&name) {
                    true => assert_eq!(answer.status, 200, "{who}, {name}"),
                    false => is_refused(&answer, 403, "model_not_allowed", "permission_error"),
                }
            }
            is_refused(
                &balancer.ask(&by(who, Ask::turn(path, "none", "Hello."))).await,
                404,
                "model_not_found",
                "not_found_error",
            );
        }
        let listed = until("its models", async || {
            let list = balancer.ask(&by(who, Ask::get("/v1/models"))).await.json();
            let ids: Vec<String> =
                list["data"].as_array()?.iter().filter_map(|model| Some(model["id"].as_str()?.to_string())).collect();
            (ids.len() == may.len()).then_some(ids)
        })
        .await;
        assert!(may.iter().all(|name| listed.iter().any(|id| id == name)), "{who}: {listed:?}");
    }
    let metrics = balancer.metrics().await;
    let refused = [("caller", "some"), ("reason", "model")];
    assert_eq!(metrics.sum("homing_caller_refused_total", &refused), 2.0);
}

#[tokio::test]
async fn requests_a_minute_have_a_limit() {
    let engine = Engine::start().await;
    // Three at once, and then one every twenty seconds.
    let callers = [caller("ann", json!({"requests_per_minute": 3})), caller("bob", json!({}))];
    let balancer = start(&engine, json!(callers)).await;
    for path in [DIALECTS[0], DIALECTS[1], "/v1/messages/count_tokens"] {
        assert_eq!(balancer.ask(&by("ann", Ask::turn(path, "m", "Hello."))).await.status, 200);
    }
    for path in DIALECTS {
        let answer = balancer.ask(&by("ann", Ask::turn(path, "m", "Hello."))).await;
        is_refused(&answer, 429, "caller_rate", "rate_limit_error");
        let seconds: u64 = answer.header("retry-after").and_then(|value| value.parse().ok()).expect("whole seconds");
        assert!((1..=20).contains(&seconds), "{seconds}");
        assert_eq!(balancer.ask(&by("bob", Ask::turn(path, "m", "Hello."))).await.status, 200, "others go on");
    }
    assert_eq!(balancer.ask(&by("ann", Ask::get("/v1/models"))).await.status, 200, "what no engine computes is free");
    let metrics = balancer.metrics().await;
    let refused = [("caller", "ann"), ("reason", "requests_per_minute")];
    assert_eq!(metrics.sum("homing_caller_refused_total", &refused), 2.0);
    assert_eq!(metrics.sum("homing_errors_total", &[("code", "caller_rate")]), 2.0);
}

#[tokio::test]
async fn requests_in_flight_have_a_limit() {
    let engine = Engine::start().await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let callers = |most: u32| json!([caller("ann", json!({"in_flight": most}))]);
    let balancer = start(&engine, callers(2)).await;
    let ask = |id: &str| by("ann", Ask::chat("m", "Hello.").session(id));
    let mut held = ask_all(balancer.listen, ["session-1", "session-2"].map(ask));
    engine.saw_turns(2).await;
    let answer = balancer.ask(&ask("session-3")).await;
    is_refused(&answer, 429, "caller_in_flight", "rate_limit_error");
    assert_eq!(answer.header("retry-after"), Some("1"));
    balancer.metric_becomes("homing_caller_in_flight", &[("caller", "ann")], 2.0).await;
    // What is in flight stays counted over a reload.
    assert_eq!(balancer.reload(&config(&engine, callers(3))).await.status, 200);
    held.extend(ask_all(balancer.listen, [ask("session-3")]));
    engine.saw_turns(3).await;
    is_refused(&balancer.ask(&ask("session-4")).await, 429, "caller_in_flight", "rate_limit_error");
    // A client that leaves gives its place back.
    let mut leaving = held.remove(0);
    leaving.abort();
    let _ = (&mut leaving).await;
    balancer.metric_becomes("homing_caller_in_flight", &[("caller", "ann")], 2.0).await;
    gate.open();
    assert_eq!(balancer.ask(&ask("session-4")).await.status, 200);
    for answer in held {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    balancer.metric_becomes("homing_caller_in_flight", &[("caller", "ann")], 0.0).await;
    let metrics = balancer.metrics().await;
    assert_eq!(metrics.sum("homing_caller_requests_total", &[("caller", "ann"), ("status", "2xx")]), 3.0);
    assert_eq!(metrics.sum("homing_caller_requests_total", &[("caller", "ann"), ("status", "client_closed")]), 1.0);
    assert_eq!(metrics.sum("homing_caller_tokens_total", &[("caller", "ann"), ("kind", "completion")]), 21.0);
}

#[tokio::test]
async fn conversations_have_a_limit() {
    let engine = Engine::start().await;
    let callers = [caller("ann", json!({"conversations": 2})), caller("bob", json!({}))];
    let balancer = start(&engine, json!(callers)).await;
    let ask = |who: &str, id: &str| by(who, Ask::messages("m", "Hello.").session(id));
    for id in ["session-1", "session-2", "session-1", "session-2"] {
        assert_eq!(balancer.ask(&ask("ann", id)).await.status, 200, "{id}");
    }
    let answer = balancer.ask(&ask("ann", "session-3")).await;
    is_refused(&answer, 429, "caller_conversations", "rate_limit_error");
    let seconds: u64 = answer.header("retry-after").and_then(|value| value.parse().ok()).expect("whole seconds");
    assert!((1..=300).contains(&seconds), "{seconds}");
    assert_eq!(balancer.ask(&ask("ann", "session-2")).await.status, 200, "those that it has go on");
    assert_eq!(balancer.ask(&ask("bob", "session-3")).await.status, 200, "and so do others");
    let keyless = by("ann", Ask::post("/v1/embeddings", &json!({"model": "m", "input": "Hello."})));
    assert_eq!(balancer.ask(&keyless).await.status, 200, "what is no conversation is not counted as one");
}

/// Over HTTP/1 the rest of a body that is not read would stand before the next request; without one there is nothing to read.
#[tokio::test]
async fn a_refusal_keeps_the_connection_where_the_request_was_read_whole() {
    let engine = Engine::start().await;
    let callers = [caller("ann", json!({"conversations": 1})), caller("bob", json!({"requests_per_minute": 1}))];
    let balancer = start(&engine, json!(callers)).await;
    let mut client = balancer.client().await;
    let ask = |who: &str, id: &str| by(who, Ask::messages("m", "Hello.").session(id));
    assert_eq!(client.ask(&ask("ann", "session-1")).await.status, 200);
    for _ in 0..2 {
        let answer = client.ask(&ask("ann", "session-2")).await;
        is_refused(&answer, 429, "caller_conversations", "rate_limit_error");
        assert_ne!(answer.header("connection"), Some("close"));
    }
    assert_eq!(client.ask(&ask("ann", "session-1")).await.status, 200);
    assert_eq!(client.ask(&ask("bob", "session-1")).await.status, 200);
    let bare = by("bob", Ask::get("/v1/responses/resp_1"));
    for _ in 0..2 {
        let answer = client.ask(&bare).await;
        is_refused(&answer, 429, "caller_rate", "rate_limit_error");
        assert_ne!(answer.header("connection"), Some("close"));
    }
    let answer = client.ask(&ask("bob", "session-1")).await;
    is_refused(&answer, 429, "caller_rate", "rate_limit_error");
    assert_eq!(answer.header("connection"), Some("close"), "its body is not read");
    within("the end of the connection", client.wire.closed()).await;
}

/// The same session id from two callers is two conversations; from one caller with two keys it is one.
#[tokio::test]
async fn nobody_reaches_the_conversation_of_another_by_its_id() {
    let engines = engines::<2>().await;
    let mut config = one_model(&engines, json!({}));
    let ann = json!({"name": "ann", "keys": [hash("key-of-ann"), hash("second")]});
    config["callers"] = json!([ann, caller("bob", json!({}))]);
    let balancer = Balancer::start(config).await;
    let ask = |key: &str| Ask::chat("m", "Hello.").session("session-1").header("x-api-key", key);
    let first = balancer.ask(&ask("key-of-ann")).await;
    first.is("placed");
    let other = balancer.ask(&ask("key-of-bob")).await;
    other.is("placed");
    assert_ne!(first.replica(), other.replica(), "it is new, and goes where there is less");
    for key in ["key-of-ann", "second"] {
        let next = balancer.ask(&ask(key)).await;
        next.is("sticky");
        assert_eq!(next.replica(), first.replica());
    }
    balancer.ask(&ask("key-of-bob")).await.is("sticky");
    let sum: u64 = balancer.idle().await.column("conversations").iter().sum();
    assert_eq!(sum, 2);
}

/// What an engine keeps of one caller is not read or gone on from by another who knows its id.
#[tokio::test]
async fn nobody_reaches_the_stored_response_of_another_by_its_id() {
    let engine = Engine::start().await;
    let balancer = start(&engine, json!([caller("ann", json!({})), caller("bob", json!({}))])).await;
    engine.answers(|request| vllm::response(request, "resp_1", Some("conv_1")));
    let make = |more: Value| Ask::post("/v1/responses", &json!({"model": "m", "input": "Hello."})).with(more);
    assert_eq!(balancer.ask(&by("ann", make(json!({})))).await.status, 200);
    balancer.idle().await;
    let follows = || {
        [
            Ask::get("/v1/responses/resp_1"),
            Ask::new("DELETE", "/v1/responses/resp_1"),
            Ask::new("POST", "/v1/responses/resp_1/cancel"),
            make(json!({"previous_response_id": "resp_1"})),
            make(json!({"previous_response_id": "resp_1", "stream": true})),
        ]
    };
    for ask in follows() {
        let turns = engine.turns();
        is_refused(&balancer.ask(&by("bob", ask)).await, 404, "response_not_found", "not_found_error");
        assert_eq!(engine.turns(), turns);
    }
    for ask in follows() {
        assert_eq!(balancer.ask(&by("ann", ask)).await.status, 200);
    }
}

/// Of those who wait for room, one caller with a weight of 2 has two go on where another has one.
#[tokio::test]
async fn callers_take_turns_by_their_weights() {
    let callers = ["heavy", "light", "held"].map(|name| {
        let weight = if name == "heavy" { 2 } else { 1 };
        // The harness knows of no keys: the callers of its own two turns have this one.
        let key = if name == "held" { hash("key-of-the-harness") } else { hash(&key(name)) };
        json!({"name": name, "keys": [key], "weight": weight})
    });
    let harness = [("authorization", "Bearer key-of-the-harness")];
    let mut full = Full::start_by(&harness, json!({"callers": callers}), json!({})).await;
    let mut clients = Vec::new();
    let ids = ["heavy-1", "heavy-2", "heavy-3", "heavy-4", "light-1", "light-2", "light-3"];
    for (n, id) in ids.iter().enumerate() {
        let name = id.split('-').next().unwrap_or_default();
        clients.push(full.park(&by(name, turn(id)), n as u64 + 1).await);
    }
    let order = ["held-1", "heavy-1", "heavy-2", "light-1", "heavy-3", "heavy-4", "light-2", "light-3"];
    for (n, pair) in order.windows(2).enumerate() {
        full.end(pair[0]);
        full.came(3 + n, pair[1]).await;
    }
    full.end("light-3");
    for client in &mut clients {
        client.response("POST").await.is("placed");
    }
    full.empties().await;
}

#[tokio::test]
async fn callers_may_stand_in_a_file_beside_and_change_on_a_reload() {
    let engine = Engine::start().await;
    let balancer = start(&engine, json!([caller("ann", json!({}))])).await;
    let status = async |name: &str| balancer.ask(&by(name, Ask::chat("m", "Hello."))).await.status;
    assert_eq!((status("ann").await, status("bob").await), (200, 401));
    let beside = |callers: Value| std::fs::write(balancer.path("callers.yaml"), callers.to_string()).expect("a file");
    beside(json!([caller("bob", json!({}))]));
    let by_file = config(&engine, json!({"file": "callers.yaml"}));
    assert_eq!(balancer.reload(&by_file).await.status, 200);
    assert_eq!((status("ann").await, status("bob").await), (401, 200));
    beside(json!([caller("ann", json!({})), caller("bob", json!({}))]));
    balancer.signal(nix::sys::signal::Signal::SIGHUP);
    until("the new file", async || (status("ann").await == 200).then_some(())).await;
    // What does not check changes nothing, and says where the fault is.
    beside(json!([{"name": "ann", "keys": ["key-of-ann"]}]));
    let refused = balancer.reload(&by_file).await;
    assert_eq!(refused.status, 422);
    let told = refused.text();
    assert!(told.contains("callers.file") && told.contains("callers.yaml: line 1, column"), "{told}");
    assert!(!told.contains("key-of-ann"), "what stands in place of a hash may be a key: {told}");
    assert_eq!((status("ann").await, status("bob").await), (200, 200));
    assert_eq!(balancer.reload(&one_model([&engine], json!({}))).await.status, 200);
    assert_eq!(status("anyone").await, 200, "without callers anyone may call");
}

#[tokio::test]
async fn callers_have_their_names_in_the_log_and_in_the_metrics() {
    let engine = Engine::start().await;
    for form in ["json", "text"] {
        let mut config = config(&engine, json!([caller("ann", json!({}))]));
        config["server"] = json!({"access_log": form});
        let balancer = Balancer::start(config).await;
        balancer.ask(&by("ann", Ask::chat("m", "Hello."))).await;
        balancer.ask(&Ask::chat("m", "Hello.")).await;
        let (named, unnamed) = match form {
            "json" => (r#""caller":"ann""#, r#""caller":null"#),
            _ => (" caller=ann ", " caller=- "),
        };
        for part in [named, unnamed] {
            balancer.output.line(part, |line| line.contains(part).then_some(())).await;
        }
    }
}

/// Without keys, on an address that others may reach, the log says so.
#[tokio::test]
async fn an_open_door_is_told() {
    let engine = Engine::start().await;
    let warning = |line: &str| line.contains("no callers are configured").then(|| line.to_string());
    for (address, callers, told) in [
        ("0.0.0.0:0", json!(null), true),
        ("[::1]:0", json!(null), false),
        ("127.0.0.1:0", json!(null), false),
        ("0.0.0.0:0", json!([caller("ann", json!({}))]), false),
    ] {
        let mut config = one_model([&engine], json!({"admission": "off"}));
        config["listen"] = json!([{"address": address}]);
        if !callers.is_null() {
            config["callers"] = callers;
        }
        let balancer = Balancer::start(config).await;
        let lines = balancer.output.lines();
        assert_eq!(lines.iter().any(|line| warning(line).is_some()), told, "{address}: {lines:?}");
    }
}

#[test]
fn a_new_key_comes_with_its_hash() {
    let made = || {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_homing")).arg("key").output().expect("it starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let (one, other) = (made(), made());
    assert_ne!(one, other);
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("its line");
        line.trim().to_string()
    };
    let key = value(&one, "key:");
    assert!(key.len() >= 64 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{key}");
    assert_eq!(value(&one, "hash:"), hash(&key));
}
