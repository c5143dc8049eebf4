//! States of a replica other than up and out: draining, asleep, left alone because requests fail there.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::vllm::error;
use crate::harness::*;

fn ask(id: &str) -> Ask {
    Ask::chat("m", "Hello.").session(id)
}

fn drain(engine: &Engine, verb: &str) -> Ask {
    Ask::new("POST", &format!("/replicas/{}/{verb}", engine.name()))
}

/// Waits until the replica is in this state, and returns its row.
async fn becomes(balancer: &Balancer, engine: &Engine, state: &str) -> Value {
    let routing = balancer.routing_when(state, |routing| routing.state(engine) == state).await;
    balancer.metric_becomes("homing_replica_state", &[("replica", &engine.name()), ("state", state)], 1.0).await;
    routing.replica(&engine.name()).clone()
}

#[tokio::test]
async fn a_drain_empties_a_replica_and_loses_nothing() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    balancer.ask(&ask("conversation-a")).await.is("placed").from(&engines[0]);
    balancer.ask(&ask("conversation-b")).await.is("placed").from(&engines[1]);
    let gate = Gate::shut();
    engines[0].holds(&gate);
    let held = ask_all(balancer.listen, [ask("conversation-a").streamed()]);
    engines[0].saw_turns(2).await;

    let told = balancer.ask_admin(&drain(&engines[0], "drain")).await;
    let expected = json!({"replica": engines[0].name(), "model": "m", "draining": true, "in_flight": 1});
    assert_eq!((told.status, told.json()), (200, expected));
    let row = becomes(&balancer, &engines[0], "draining").await;
    assert_eq!((&row["drained"], &row["state_why"]), (&json!(false), &json!("told to drain")));
    balancer.ask(&ask("conversation-a")).await.is("placed").from(&engines[1]);
    for n in 0..4 {
        balancer.ask(&ask(&format!("conversation-{n}"))).await.is("placed").from(&engines[1]);
    }
    balancer.ask(&ask("conversation-a")).await.is("sticky").from(&engines[1]);
    gate.open();
    for answer in held {
        answer.await.unwrap().is("sticky").from(&engines[0]);
    }
    balancer.routing_when("nothing is in flight", |r| r.replica(&engines[0].name())["drained"] == true).await;
    balancer.output.line("a drained replica", |line| line.contains("is drained").then_some(())).await;
    assert_eq!(engines[0].turns(), 2);

    assert_eq!(balancer.ask_admin(&drain(&engines[0], "undrain")).await.json()["draining"], false);
    becomes(&balancer, &engines[0], "up").await;
    balancer.ask(&ask("conversation-a")).await.is("sticky").from(&engines[1]);
    let decided = balancer.idle().await;
    assert_eq!(decided.decided(), 2 + 1 + 1 + 4 + 2);
}

#[tokio::test]
async fn with_all_draining_they_serve_all_the_same() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    balancer.ask(&ask("conversation-a")).await.is("placed").from(&engines[0]);
    for engine in &engines {
        assert_eq!(balancer.ask_admin(&drain(engine, "drain")).await.status, 200);
    }
    balancer.ask(&ask("conversation-a")).await.is("sticky").from(&engines[0]);
    assert_eq!(balancer.ask(&ask("conversation-b")).await.status, 200);
    assert_eq!(balancer.ask(&Ask::get("/health")).await.status, 200);
}

#[tokio::test]
async fn what_cannot_be_drained_is_told_apart() {
    let engine = Engine::start().await;
    let ranked = Engine::with_ranks(2).await;
    let models = ["one", "two"].map(|name| {
        let mut model = model(name, [&engine, &ranked], json!({}));
        model["replicas"][1]["data_parallel_size"] = 2.into();
        model
    });
    let balancer = Balancer::start(json!({"models": models})).await;
    let name = engine.name();
    let post = |path: String| Ask::new("POST", &path);
    let cases = [
        (Ask::get(&format!("/replicas/{name}/drain")), 405),
        (post(format!("/replicas/{name}/stop")), 404),
        (post(format!("/replicas/{name}")), 404),
        (post("/replicas/127.0.0.1:1/drain".into()), 404),
        (post(format!("/replicas/{}%230/drain?model=one", ranked.name())), 404),
        (post(format!("/replicas/{name}/drain")), 409),
        (post(format!("/replicas/{name}/drain?model=three")), 404),
        (post(format!("/replicas/{name}/drain?model=two")).header("origin", "http://elsewhere.example"), 403),
        (post(format!("/replicas/{name}/drain?model=two")).header("origin", "http://balancer.test"), 200),
        (post(format!("/replicas/{}/drain?model=one", ranked.name())), 200),
    ];
    for (ask, status) in cases {
        let answer = balancer.ask_admin(&ask).await;
        assert_eq!(answer.status, status, "{}: {}", ask.target, answer.text());
        assert!(answer.json()["error"].is_string() != (status == 200), "{}", answer.text());
    }
    let states = async |model: &str| {
        let routing = balancer.routing_of(model).await;
        routing.replicas().iter().map(|row| row["state"].as_str().expect("a state").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states("one").await, ["up", "draining", "draining"], "ranks drain together");
    assert_eq!(states("two").await, ["draining", "up", "up"]);
}

/// The last word counts: the admin address's, until the file says otherwise than it did before.
#[tokio::test]
async fn the_file_and_the_admin_address_drain_alike() {
    let engines = engines::<2>().await;
    let config = |draining: bool| {
        let mut config = one_model(&engines, json!({}));
        config["models"][0]["replicas"][0]["draining"] = draining.into();
        config
    };
    let balancer = Balancer::start(config(false)).await;
    enum Word {
        Admin(&'static str),
        File(bool),
    }
    use Word::{Admin, File};
    let words = [
        (File(true), "draining"),
        (File(true), "draining"),
        (File(false), "up"),
        (Admin("drain"), "draining"),
        (File(false), "draining"),
        (File(true), "draining"),
        (File(false), "up"),
        (File(true), "draining"),
        (Admin("undrain"), "up"),
        (File(true), "up"),
        (File(false), "up"),
    ];
    for (step, (word, state)) in words.into_iter().enumerate() {
        let answer = match word {
            Admin(verb) => balancer.ask_admin(&drain(&engines[0], verb)).await,
            File(draining) => balancer.reload(&config(draining)).await,
        };
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(balancer.routing().await.state(&engines[0]), state, "step {step}");
    }
    let from_the_start = Balancer::start(config(true)).await;
    assert_eq!(from_the_start.routing().await.state(&engines[0]), "draining");
}

#[tokio::test]
async fn an_engine_that_sleeps_gets_nothing_until_it_wakes() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    balancer.scraped().await;
    balancer.ask(&ask("conversation-a")).await.is("placed").from(&engines[0]);
    engines[0].vitals(|vitals| vitals.asleep = true);
    becomes(&balancer, &engines[0], "asleep").await;
    balancer.ask(&ask("conversation-a")).await.is("placed").from(&engines[1]);
    engines[0].vitals(|vitals| vitals.asleep = false);
    becomes(&balancer, &engines[0], "up").await;
    balancer.ask(&ask("conversation-a")).await.is("sticky").from(&engines[1]);
    balancer.ask(&ask("conversation-b")).await.is("placed").from(&engines[0]);
}

/// It answers its checks, and 503 to every request.
#[tokio::test]
async fn one_at_which_requests_fail_is_left_alone_and_tried_with_one() {
    let engines = engines::<2>().await;
    let recovery = json!({"recovery": {"failures": 3, "pause": "400 ms", "pause_max": "400 ms"}});
    let balancer = Balancer::start(one_model(&engines, recovery)).await;
    engines[0].answers(|_| error("503 Service Unavailable"));
    for n in 0..6 {
        balancer.ask(&ask(&format!("conversation-f{n}"))).await.is("placed").from(&engines[1]);
    }
    becomes(&balancer, &engines[0], "suspect").await;
    let opened = [("replica", engines[0].name())].map(|(label, name)| (label, name.leak() as &str));
    let asked = AtomicUsize::new(0);
    // Each is a conversation of its own, and would go there, since nothing is in flight or lives there.
    let newcomer = || ask(&format!("conversation-{}", asked.fetch_add(1, Ordering::Relaxed)));
    until("it is tried, and fails again", async || {
        balancer.ask(&newcomer()).await;
        (balancer.metrics().await.sum("homing_replica_circuit_opened_total", &opened) >= 2.0).then_some(())
    })
    .await;
    // From now on it answers, but slowly: while one request tries it, no other goes there.
    let gate = Gate::shut();
    let before = engines[0].turns();
    engines[0].holds(&gate);
    let trial = until("one request tries it", async || {
        let mut asked = ask_all(balancer.listen, [newcomer()]);
        let asked = asked.remove(0);
        until("it came somewhere", async || (asked.is_finished() || engines[0].turns() > before).then_some(())).await;
        (engines[0].turns() > before).then_some(asked)
    })
    .await;
    for n in 0..10 {
        balancer.ask(&ask(&format!("conversation-o{n}"))).await.from(&engines[1]);
    }
    assert_eq!(engines[0].turns(), before + 1);
    gate.open();
    trial.await.unwrap().from(&engines[0]);
    becomes(&balancer, &engines[0], "up").await;
}
