//! Which conversations go on at once when the cache is full, which wait, and in which order they go on.

use serde_json::json;

use crate::harness::full::{Full, ROOM_FOR_TWO, adds_up, room_for_two, turn};
use crate::harness::*;

#[tokio::test]
async fn those_for_whom_there_is_no_room_wait_in_the_order_in_which_they_came() {
    let mut full = Full::start_with(json!({"server": {"access_log": "json"}}), json!({})).await;
    let mut first = full.park(&turn("waits-1"), 1).await;
    let mut second = full.park(&turn("waits-2"), 2).await;
    let routing = full.balancer.routing().await;
    assert_eq!((full.engine.turns(), routing.total("in_flight"), routing.decided()), (2, 2, 2));
    assert!(routing.of(&full.engine, "held_tokens") > ROOM_FOR_TWO / 2);
    full.end("held-2");
    full.came(3, "waits-1").await;
    full.parked(1).await;
    full.end("held-1");
    full.came(4, "waits-2").await;
    for (client, id) in [(&mut first, "waits-1"), (&mut second, "waits-2")] {
        full.end(id);
        client.response("POST").await.is("placed");
    }
    full.empties().await;
    let waited = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["decision"].is_string().then(|| line["parked_s"].as_f64())
    };
    let waits = full.balancer.output.count("the access log", 4, waited).await;
    assert_eq!(waits.iter().flatten().count(), 2, "{waits:?}");
    assert!(waits.iter().flatten().all(|seconds| (0.0..30.0).contains(seconds)), "{waits:?}");
}

#[tokio::test]
async fn a_conversation_with_a_place_never_waits() {
    let mut full = Full::start(json!({"linger": "10 min"})).await;
    let mut waits = full.park(&turn("waits"), 1).await;
    full.end("held-1");
    let routing = full.balancer.routing_when("its end", |routing| routing.total("in_flight") == 1).await;
    assert_eq!(routing.parked(), 1, "an idle conversation keeps its place");
    for _ in 0..3 {
        full.balancer.ask(&turn("held-1")).await.is("sticky");
    }
    assert_eq!(full.balancer.routing().await.parked(), 1);
    // Without its place it still has its cache, until someone needs the room.
    full.reload(json!({"linger": "0 s"})).await;
    full.came(6, "waits").await;
    full.end("waits");
    waits.response("POST").await.is("placed");
    full.empties().await;
}

/// Ten of one caller do not stand before the first of another.
#[tokio::test]
async fn callers_take_turns() {
    let mut full = Full::start(json!({})).await;
    let mut clients = Vec::new();
    let ids = ["a-1", "a-2", "a-3", "b-1", "b-2"];
    for (n, id) in ids.iter().enumerate() {
        let ask = turn(id).header("authorization", &format!("Bearer {}", &id[..1]));
        clients.push(full.park(&ask, n as u64 + 1).await);
    }
    let order = ["held-1", "a-1", "b-1", "a-2", "b-2", "a-3"];
    for (n, pair) in order.windows(2).enumerate() {
        full.end(pair[0]);
        full.came(3 + n, pair[1]).await;
    }
    full.end("a-3");
    for client in &mut clients {
        client.response("POST").await.is("placed");
    }
    full.empties().await;
}

#[tokio::test]
async fn observing_counts_and_parks_nothing() {
    let mut full = Full::start(json!({"mode": "observe"})).await;
    for id in ["third", "fourth"] {
        full.end(id);
        full.balancer.ask(&turn(id)).await.is("placed");
    }
    let routing = full.balancer.routing().await;
    assert_eq!((routing.admission("would_park"), routing.admission("parked")), (2, 0));
    assert_eq!(routing.0["admission"]["in_force"], false);
    full.balancer.metric_becomes("homing_would_park_total", &[("model", "m")], 2.0).await;
    full.empties().await;
}

#[tokio::test]
async fn off_is_as_if_it_were_not_there() {
    let mut full = Full::start(json!({"mode": "off"})).await;
    full.end("third");
    full.balancer.ask(&turn("third")).await.is("placed");
    let routing = full.balancer.routing().await;
    assert_eq!((routing.admission("would_park"), routing.admission("parked")), (0, 0));
    full.empties().await;
}

/// What the engine says of its cache is enough.
#[tokio::test]
async fn the_engine_s_word_is_taken_for_its_capacity() {
    let engine = Engine::start().await;
    engine.vitals(|vitals| vitals.kv_cache_tokens = Some(ROOM_FOR_TWO));
    let balancer = Balancer::start(one_model([&engine], json!({"admission": {"linger": "0 s"}}))).await;
    let routing = balancer.scraped().await;
    let row = routing.replica(&engine.name());
    assert_eq!((&row["capacity_tokens"], &row["capacity_source"]), (&json!(ROOM_FOR_TWO), &json!("engine")));
    let gate = Gate::shut();
    engine.holds(&gate);
    let answers = ask_all(balancer.listen, ["one", "two", "three"].map(turn));
    balancer.routing_when("one parked", |routing| routing.parked() == 1).await;
    engine.saw_turns(2).await;
    gate.open();
    for answer in answers {
        answer.await.unwrap().is("placed");
    }
    adds_up(&balancer).await;
}

#[tokio::test]
async fn a_replica_that_comes_back_takes_those_who_wait() {
    let engines = engines::<2>().await;
    let [busy, back] = &engines;
    back.answers_all_probes(vllm::error("500 Internal Server Error"));
    let balancer = Balancer::start(one_model(&engines, room_for_two(json!({"linger": "10 min"})))).await;
    balancer.routing_when("a replica that is out", |routing| routing.state(back) == "out").await;
    let gate = Gate::shut();
    busy.holds(&gate);
    let mut answers = ask_all(balancer.listen, ["held-1", "held-2"].map(turn));
    busy.saw_turns(2).await;
    answers.extend(ask_all(balancer.listen, ["waits".to_string()].iter().map(|id| turn(id))));
    balancer.routing_when("one parked", |routing| routing.parked() == 1).await;
    back.answers_probes(|_| None);
    answers.pop().unwrap().await.unwrap().is("placed").from(back);
    gate.open();
    for answer in answers {
        answer.await.unwrap().is("placed").from(busy);
    }
    adds_up(&balancer).await;
}

/// The log and /routing say which admission is in force, and why.
#[tokio::test]
async fn what_is_in_force_is_told() {
    let engines = engines::<2>().await;
    engines[1].vitals(|vitals| vitals.kv_cache_tokens = Some(1_000_000));
    let cases = [
        ("set", json!({"kv_cache_tokens": 1000}), 0, true, "in force, capacity set"),
        ("engine", json!({}), 1, true, "in force, capacity from the engine"),
        ("unknown", json!({}), 0, true, "in force, capacity not known yet"),
        ("observe", json!({"kv_cache_tokens": 1000, "admission": "observe"}), 0, false, "only observes, capacity set"),
        ("off", json!({"admission": "off"}), 0, false, "off as configured"),
        ("no-affinity", json!({"affinity": "off"}), 0, false, "off because affinity is off"),
    ];
    let models: Vec<_> =
        cases.iter().map(|(name, settings, engine, ..)| model(name, [&engines[*engine]], settings.clone())).collect();
    let balancer = Balancer::start(json!({"models": models})).await;
    for (name, _, _, in_force, why) in &cases {
        let line = format!("model {name}: admission {why}");
        balancer.output.line(&line, |said| said.ends_with(&line).then_some(())).await;
        let admission = balancer.routing_of(name).await.0["admission"].clone();
        assert_eq!((&admission["in_force"], &admission["why"]), (&json!(in_force), &json!(why)), "{name}");
    }
}
