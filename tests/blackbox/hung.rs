//! An engine whose core has stopped: its server answers `/health` with 200 and `/metrics` with old values, takes requests and
//! begins streams, and nothing is ever generated. So does a vLLM whose core was sent SIGSTOP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::harness::ask::DIALECTS;
use crate::harness::engine::{Request, Seen, Speaks};
use crate::harness::vllm::{USAGE, turn};
use crate::harness::*;

fn timeouts(more: Value) -> Value {
    let mut timeouts = json!({"hang": "1 s"});
    vllm::merge(&mut timeouts, &more);
    json!({"timeouts": timeouts})
}

/// Generates nothing until the gate opens; then it goes on with what it has, and with what comes.
fn stops(engine: &Engine, gate: &Gate) {
    let gate = gate.clone();
    engine.answers(move |request| stopped(request, &gate));
}

fn stopped(request: &Request, gate: &Gate) -> Answer {
    let answer = turn(request, USAGE);
    let streamed = request.json().is_some_and(|body| body["stream"] == true);
    if !streamed {
        return answer.after(gate);
    }
    // The server sends the header all the same.
    let mut steps = answer.steps;
    let head = steps.remove(0);
    let mut held = Answer::new();
    held.steps.push(head);
    held = held.wait(gate);
    held.steps.extend(steps);
    held
}

async fn pair(http2: bool, more: Value) -> ([Engine; 2], Balancer) {
    let speaks = Speaks { http2, ..Speaks::default() };
    let engines = [Engine::speaking(speaks.clone(), 1).await, Engine::speaking(speaks, 1).await];
    let mut settings = timeouts(more);
    settings["http2"] = json!(http2);
    let balancer = Balancer::start(one_model(&engines, settings)).await;
    balancer.scraped().await;
    (engines, balancer)
}

/// Whoever waits there, streamed or not, over either version of HTTP, gets an answer from the other replica.
#[tokio::test]
async fn those_who_wait_are_answered_by_another() {
    for http2 in [false, true] {
        let (engines, balancer) = pair(http2, json!({})).await;
        let gate = Gate::shut();
        stops(&engines[0], &gate);
        let mut asks = Vec::new();
        for (n, path) in DIALECTS.into_iter().enumerate() {
            for streamed in [false, true] {
                // Two new conversations: one of them is placed on each engine.
                for m in 0..2 {
                    let ask = Ask::turn(path, "m", "Hello.").session(&format!("conversation-{n}-{streamed}-{m}"));
                    asks.push(if streamed { ask.streamed() } else { ask });
                }
            }
        }
        let over_h1 = ask_all(balancer.listen, asks.clone());
        let over_h2: Vec<_> = asks
            .into_iter()
            .map(|ask| async move { H2Client::connect(balancer.listen).await.ask(&ask).await })
            .collect();
        for answer in futures::future::join_all(over_h2).await {
            assert_eq!((answer.status, answer.replica()), (200, engines[1].name().as_str()), "{}", answer.text());
        }
        for answer in over_h1 {
            let answer = answer.await.unwrap();
            assert_eq!((answer.status, answer.replica()), (200, engines[1].name().as_str()), "{}", answer.text());
        }
        let routing = balancer.idle().await;
        assert_eq!(routing.state(&engines[0]), "suspect");
        let metrics = balancer.metrics().await;
        assert_eq!(metrics.sum("homing_hangs_total", &[("engine", &engines[0].name())]), 1.0);
        let moved = metrics.sum("homing_retries_total", &[("reason", "hung")]);
        assert!(moved > 0.0 && moved == routing.total("failed_over") as f64, "{moved}");
        // Their conversations live elsewhere now, and new ones go there too.
        let before = engines[0].requests().iter().filter(|request| request.path() != "/v1/completions").count();
        for n in 0..4 {
            balancer.ask(&Ask::chat("m", "Hello.").session(&format!("conversation-{n}"))).await.from(&engines[1]);
        }
        let after = engines[0].requests().iter().filter(|request| request.path() != "/v1/completions").count();
        assert_eq!(before, after, "a suspect engine was sent a turn");
        gate.open();
    }
}

/// Both hang, and the first comes back: who has tried both is answered by it.
#[tokio::test]
async fn one_that_comes_back_is_asked_again() {
    let (engines, balancer) = pair(false, json!({})).await;
    let gates = [Gate::shut(), Gate::shut()];
    engines.iter().zip(&gates).for_each(|(engine, gate)| stops(engine, gate));
    let ask = Ask::chat("m", "Hello.").session("conversation");
    let answers = ask_all(balancer.listen, vec![ask.clone(), ask.streamed()]);
    balancer.routing_when("both hang", |routing| engines.iter().all(|engine| routing.state(engine) == "suspect")).await;
    assert_eq!(balancer.routing().await.total("failed_over"), 2, "both requests have tried both");
    gates[0].open();
    for answer in answers {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.replica()), (200, engines[0].name().as_str()), "{}", answer.text());
    }
    gates[1].open();
}

/// It is asked for a token, with the name that it itself gives its model and with its own key, and taken back when one comes.
#[tokio::test]
async fn it_is_taken_back_when_it_generates() {
    let (engines, gate) = (engines::<2>().await, Gate::shut());
    stops(&engines[0], &gate);
    engines[0].vitals(|vitals| vitals.model = "served-name".into());
    let mut settings = timeouts(json!({}));
    let replicas: Vec<Value> =
        engines.iter().map(|engine| json!({"url": engine.url(), "api_key": {"env": "KEY_OF_ENGINES"}})).collect();
    settings["replicas"] = json!(replicas);
    let balancer = Balancer::start_with(one_model(&engines, settings), &[("KEY_OF_ENGINES", "of-the-engine")]).await;
    balancer.scraped().await;
    for n in 0..2 {
        balancer.ask(&Ask::chat("m", "Hello.").session(&format!("conversation-{n}"))).await.from(&engines[1]);
    }
    balancer.routing_when("it is suspect", |routing| routing.state(&engines[0]) == "suspect").await;
    let asked = |request: &Arc<Request>| request.path() == "/v1/completions";
    engines[0].saw("a request for a token", |seen| seen.requests.iter().any(asked)).await;
    let request = engines[0].requests().into_iter().find(asked).expect("it was seen");
    let body = request.json().expect("a JSON body");
    assert_eq!((&body["max_tokens"], &body["model"]), (&json!(1), &json!("served-name")));
    assert_eq!(request.header("authorization"), Some("Bearer of-the-engine"));
    assert_eq!(balancer.routing().await.state(&engines[0]), "suspect");
    gate.open();
    balancer.routing_when("it is back", |routing| routing.state(&engines[0]) == "up").await;
    balancer.ask(&Ask::chat("m", "Hello.").session("conversation-new")).await.from(&engines[0]);
}

/// Each hang has one who asks for a token, however soon it follows the last.
#[tokio::test]
async fn one_asks_at_a_time() {
    let (engines, balancer) = pair(false, json!({})).await;
    let gate = Gate::shut();
    stops(&engines[0], &gate);
    let is_ask = |request: &Arc<Request>| request.path() == "/v1/completions";
    for hang in 1..=3 {
        for n in 0..2 {
            let ask = Ask::chat("m", "Hello.").session(&format!("conversation-{hang}-{n}"));
            balancer.ask(&ask).await.from(&engines[1]);
        }
        let asks = |seen: &Seen| seen.requests.iter().filter(|request| is_ask(request)).count();
        engines[0].saw("a request for a token", |seen| asks(seen) == hang).await;
        // Whoever asked at the hang before has left, and so have the turns.
        engines[0].saw("all others leave", |seen| seen.requests.len() == seen.left + 1).await;
        // A counter that moves brings the engine back before the token has come.
        engines[0].vitals(|vitals| vitals.ranks[0].generation_tokens += 1.0);
        balancer.routing_when("it is back", |routing| routing.state(&engines[0]) == "up").await;
    }
}

/// A long answer that is not streamed sends no byte, and its engine's counters move.
#[tokio::test]
async fn a_long_answer_is_left_alone() {
    let limits = json!({"first_byte": "1 s", "idle_stream": "1 s"});
    let (engines, balancer) = pair(false, limits).await;
    let gate = Gate::shut();
    engines.iter().for_each(|engine| engine.holds(&gate));
    let mut asks = Vec::new();
    for n in 0..2 {
        let ask = Ask::chat("m", "Hello.").session(&format!("conversation-{n}"));
        asks.extend([ask.clone(), ask.streamed()]);
    }
    let answers = ask_all(balancer.listen, asks);
    // Four times as long as any limit allows an engine that does nothing.
    for step in 0..40 {
        engines.iter().for_each(|engine| engine.vitals(|vitals| vitals.ranks[0].generation_tokens += f64::from(step)));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    gate.open();
    for answer in answers {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().contains("Do"), "{}", answer.text());
    }
    let metrics = balancer.metrics().await;
    assert_eq!(metrics.sum("homing_hangs_total", &[]), 0.0);
    assert_eq!(metrics.sum("homing_limits_hit_total", &[]), 0.0);
    assert_eq!(balancer.idle().await.total("failed_over"), 0);
}

/// With nowhere else to go, a request waits there, and is answered if the engine goes on.
#[tokio::test]
async fn without_another_a_request_waits() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], timeouts(json!({})))).await;
    balancer.scraped().await;
    let gate = Gate::shut();
    stops(&engine, &gate);
    let answers = ask_all(balancer.listen, [Ask::chat("m", "Hello."), Ask::chat("m", "Hello.").streamed()]);
    balancer.metric_becomes("homing_hangs_total", &[("model", "m")], 1.0).await;
    gate.open();
    for answer in answers {
        assert_eq!(answer.await.unwrap().from(&engine).status, 200);
    }
    balancer.routing_when("it is back", |routing| routing.state(&engine) == "up").await;
}

/// What an engine keeps, it alone can go on from.
#[tokio::test]
async fn what_only_it_can_answer_waits_for_it() {
    let (engines, balancer) = pair(false, json!({"first_byte": "3 s"})).await;
    let ask = |fields: Value| Ask::post("/v1/responses", &json!({"model": "m", "input": "Hello."})).with(fields);
    engines[0].answers(|request| vllm::response(request, "resp_1", None));
    balancer.ask(&ask(json!({}))).await.from(&engines[0]);
    stops(&engines[0], &Gate::shut());
    let answer = balancer.ask(&ask(json!({"previous_response_id": "resp_1"}))).await;
    assert_eq!((answer.status, answer.header("x-homing-error")), (504, Some("replica_timeout")));
    assert_eq!(engines[1].turns(), 0);
}

/// A stream that has begun stays where it is, and ends with an error in its client's dialect.
#[tokio::test]
async fn a_stream_that_had_begun_waits_until_its_limit() {
    let (engines, balancer) = pair(false, json!({"idle_stream": "2 s"})).await;
    let gate = Gate::shut();
    engines.iter().for_each(|engine| engine.holds(&gate));
    for (n, path) in DIALECTS.into_iter().enumerate() {
        let answer = balancer.ask(&Ask::turn(path, "m", "Hello.").streamed()).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("Do"), "{}", answer.text());
        assert!(answer.text().contains("replica_timeout"), "{}", answer.text());
        assert_eq!(answer.text().contains("event: error"), path == "/v1/messages", "{}", answer.text());
        balancer.metric_becomes("homing_limits_hit_total", &[("limit", "idle_stream")], n as f64 + 1.0).await;
    }
    assert_eq!(balancer.idle().await.total("failed_over"), 0);
}

/// What was held back for as long as it may be has gone to the client: from then on the stream stays where it is, and another
/// replica does not begin it again.
#[tokio::test]
async fn a_stream_whose_beginning_was_let_go_stays_where_it_is() {
    let (engines, balancer) = pair(false, json!({"idle_stream": "4 s"})).await;
    let role = json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]});
    let gate = Gate::shut();
    for engine in &engines {
        let (role, gate) = (format!("data: {role}\n\n"), gate.clone());
        engine.answers(move |_| Answer::stream(&[role.clone(), "data: [DONE]\n\n".into()], Some(&gate)));
    }
    let mut client = balancer.client().await;
    client.send(&Ask::chat("m", "Hello.").streamed()).await;
    // Until then the engine has others to generate for.
    let busy = async {
        loop {
            engines.iter().for_each(|engine| engine.vitals(|vitals| vitals.ranks[0].generation_tokens += 1.0));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let head = tokio::select! {
        head = client.head() => head,
        () = busy => unreachable!(),
    };
    let answer = client.rest(head, "POST").await;
    assert_eq!(answer.text().matches("assistant").count(), 1, "{}", answer.text());
    assert!(answer.text().contains("replica_timeout"), "{}", answer.text());
    balancer.metric_becomes("homing_hangs_total", &[], 1.0).await;
    assert_eq!(balancer.idle().await.total("failed_over"), 0);
}

/// One that is spoken to in another way from now on is looked at anew.
#[tokio::test]
async fn a_reload_that_changes_how_it_is_spoken_to_suspects_it_no_more() {
    let (engines, balancer) = pair(false, json!({})).await;
    let gate = Gate::shut();
    stops(&engines[0], &gate);
    for n in 0..2 {
        balancer.ask(&Ask::chat("m", "Hello.").session(&format!("conversation-{n}"))).await.from(&engines[1]);
    }
    balancer.routing_when("it is suspect", |routing| routing.state(&engines[0]) == "suspect").await;
    for http2 in [true, false] {
        let mut settings = timeouts(json!({}));
        settings["http2"] = json!(http2);
        assert_eq!(balancer.reload(&one_model(&engines, settings)).await.status, 200);
    }
    balancer.routing_when("it is up", |routing| routing.state(&engines[0]) == "up").await;
    gate.open();
}

#[tokio::test]
async fn each_limit_ends_a_request() {
    for (setting, streamed) in [("first_byte", false), ("first_byte", true), ("total", false), ("total", true)] {
        let engine = Engine::start().await;
        let balancer = Balancer::start(one_model([&engine], timeouts(json!({setting: "1 s"})))).await;
        stops(&engine, &Gate::shut());
        for (n, path) in DIALECTS.into_iter().enumerate() {
            let ask = Ask::turn(path, "m", "Hello.");
            let answer = balancer.ask(&if streamed { ask.streamed() } else { ask }).await;
            assert_eq!((answer.status, answer.header("x-homing-error")), (504, Some("replica_timeout")), "{setting}");
            assert!(answer.header("retry-after").is_some());
            balancer.metric_becomes("homing_limits_hit_total", &[("limit", setting)], n as f64 + 1.0).await;
        }
        balancer.idle().await;
    }
}

/// A total that is over ends a stream that is well.
#[tokio::test]
async fn the_total_holds_for_a_stream_too() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], timeouts(json!({"total": "1 s"})))).await;
    engine.holds(&Gate::shut());
    let answer = balancer.ask(&Ask::chat("m", "Hello.").streamed()).await;
    assert_eq!((answer.status, answer.text().contains("replica_timeout")), (200, true), "{}", answer.text());
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "total")], 1.0).await;
}

/// A client that leaves while its engine hangs frees its place.
#[tokio::test]
async fn a_client_may_leave_meanwhile() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], timeouts(json!({})))).await;
    balancer.scraped().await;
    stops(&engine, &Gate::shut());
    let mut client = balancer.client().await;
    client.send(&Ask::chat("m", "Hello.").streamed()).await;
    balancer.metric_becomes("homing_hangs_total", &[("model", "m")], 1.0).await;
    drop(client);
    balancer.idle().await;
}

/// An address where nobody accepts: once some wait there, the next get no answer at all.
async fn takes_no_connection() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().unwrap()).expect("a port");
    let listener = socket.listen(1).expect("it listens");
    let (address, mut waiting) = (listener.local_addr().unwrap(), Vec::new());
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        waiting.push(stream);
    }
    (address, (listener, waiting))
}

/// An engine that takes no connection in time is as good as one that refuses.
#[tokio::test]
async fn a_connection_that_does_not_come_is_tried_elsewhere() {
    let engine = Engine::start().await;
    let (address, _full) = takes_no_connection().await;
    let mut config = one_model([&engine], json!({"timeouts": {"connect": "200 ms"}}));
    config["models"][0]["replicas"]
        .as_array_mut()
        .expect("a list")
        .insert(0, json!({"url": format!("http://{address}")}));
    let balancer = Balancer::start(config).await;
    for n in 0..2 {
        balancer.ask(&Ask::chat("m", "Hello.").session(&format!("conversation-{n}"))).await.from(&engine);
    }
    assert!(balancer.metrics().await.sum("homing_limits_hit_total", &[("limit", "connect")]) >= 1.0);
}

/// An engine that nothing is known of is not called hung: its long answers look the same.
#[tokio::test]
async fn an_engine_without_metrics_is_not_suspected() {
    let engines = engines::<2>().await;
    let no_metrics = |request: &Request| (request.path() == "/metrics").then(|| vllm::error("404 Not Found"));
    engines.iter().for_each(|engine| engine.answers_probes(no_metrics));
    let balancer = Balancer::start(one_model(&engines, timeouts(json!({"first_byte": "3 s"})))).await;
    let held = Arc::new(AtomicBool::new(true));
    let gate = Gate::shut();
    let (once, shut) = (held.clone(), gate.clone());
    engines[0].answers(move |request| match once.swap(false, Ordering::Relaxed) {
        true => turn(request, USAGE).after(&shut),
        false => turn(request, USAGE),
    });
    // The limit on the first byte ends the wait instead, and another is asked.
    balancer.ask(&Ask::chat("m", "Hello.")).await.from(&engines[1]);
    let metrics = balancer.metrics().await;
    assert_eq!(metrics.sum("homing_hangs_total", &[]), 0.0);
    assert_eq!(metrics.sum("homing_retries_total", &[("reason", "first_byte")]), 1.0);
    gate.open();
}
