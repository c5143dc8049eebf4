//! Which replicas are asked: those whose metrics can be read, and all where none can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use crate::harness::vllm::error;
use crate::harness::*;

fn ask(n: usize) -> Ask {
    Ask::chat("m", "Hello.").session(&format!("session-{n}"))
}

/// Of the readings or of the health that an engine states itself.
#[tokio::test]
async fn three_failures_take_a_replica_out_and_a_good_one_brings_it_back() {
    for path in ["/metrics", "/health"] {
        let engines = engines::<2>().await;
        let mut config = one_model(&engines, json!({}));
        config["scrape"] = json!({"interval": "100 ms", "timeout": "1 min"});
        let balancer = Balancer::start(config).await;
        let up = balancer.scraped().await.state(&engines[0]).to_string();
        // Two fail, the third is held: until it has failed too, the replica is up. No fourth comes to an end.
        let (gate, fourth) = (Gate::shut(), Gate::shut());
        let failed = Arc::new(AtomicUsize::new(0));
        let (third, never, count) = (gate.clone(), fourth.clone(), failed.clone());
        engines[0].answers_probes(move |probe| {
            let failure = error("500 Internal Server Error");
            (probe.path() == path).then(|| match count.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => failure,
                2 => failure.after(&third),
                _ => failure.after(&never),
            })
        });
        engines[0].saw("three failures", |_| failed.load(Ordering::SeqCst) == 3).await;
        assert_eq!(balancer.routing().await.state(&engines[0]), up, "{path}: two failures are not three");
        gate.open();
        balancer.routing_when("the replica is out", |routing| routing.state(&engines[0]) != up).await;
        assert_eq!(balancer.routing().await.state(&engines[1]), up);
        for n in 0..4 {
            balancer.ask(&ask(n)).await.is("placed").from(&engines[1]);
        }
        engines[0].answers_probes(|_| None);
        fourth.open();
        balancer.routing_when("the replica is back", |routing| routing.state(&engines[0]) == up).await;
        balancer.ask(&ask(4)).await.is("placed").from(&engines[0]);
    }
}

#[tokio::test]
async fn a_scrape_that_is_slow_or_endless_fails() {
    let answers: [(&str, Answer, &str); 3] = [
        ("hangs", Answer::new().wait(&Gate::shut()), "fetch_time"),
        ("hangs within", Answer::new().send(answer::stream_head()).wait(&Gate::shut()), "fetch_time"),
        ("is too large", Answer::whole("200 OK", &[], &b"# a comment\n".repeat(1000)), "fetch_size"),
    ];
    for (what, answer, limit) in answers {
        let engines = engines::<2>().await;
        let mut config = one_model(&engines, json!({}));
        config["scrape"] = json!({"interval": "100 ms", "timeout": "200 ms", "max_size": "8 KiB"});
        let balancer = Balancer::start(config).await;
        let up = balancer.scraped().await.state(&engines[0]).to_string();
        engines[0].answers_all_probes(answer);
        balancer.routing_when(what, |routing| routing.state(&engines[0]) != up).await;
        assert!(balancer.metrics().await.sum("homing_limits_hit_total", &[("limit", limit)]) >= 3.0, "{what}");
    }
}

#[tokio::test]
async fn with_none_left_all_are_tried() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let up = balancer.scraped().await.state(&engines[0]).to_string();
    engines.iter().for_each(|engine| engine.answers_all_probes(error("500 Internal Server Error")));
    balancer.routing_when("both are out", |routing| engines.iter().all(|engine| routing.state(engine) != up)).await;
    for n in 0..4 {
        assert_eq!(balancer.ask(&ask(n)).await.status, 200);
    }
}

/// A scrape that never ends is the worst there is for a request path that would wait for one.
#[tokio::test]
async fn a_replica_not_yet_scraped_counts_as_up() {
    let engines = engines::<2>().await;
    engines.iter().for_each(|engine| engine.answers_all_probes(Answer::new().wait(&Gate::shut())));
    let mut config = one_model(&engines, json!({}));
    config["scrape"] = json!({"interval": "5 min", "timeout": "1 min"});
    // Where admission places depends on how long ago the others ended.
    config["models"][0]["admission"] = json!("off");
    let balancer = Balancer::start(config).await;
    for n in 0..4 {
        balancer.ask(&ask(n)).await.is("placed").from(&engines[n % 2]);
        balancer.idle().await;
    }
    assert!(balancer.routing().await.replicas().iter().all(|row| row["reading_age_s"].is_null()));
}

#[tokio::test]
async fn the_first_scrape_is_immediate() {
    let engines = engines::<3>().await;
    let mut config = one_model(&engines, json!({}));
    config["scrape"] = json!({"interval": "5 min"});
    let balancer = Balancer::start(config).await;
    balancer.scraped().await;
}

#[tokio::test]
async fn no_replica_means_503_that_may_be_tried_again() {
    let mut engines = engines::<2>().await;
    engines.iter_mut().for_each(Engine::refuse);
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    for (path, kind) in [("/v1/chat/completions", None), ("/v1/messages", Some("overloaded_error"))] {
        let answer = balancer.ask(&Ask::turn(path, "m", "Hello.").session("session-1")).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        let seconds = answer.header("retry-after").and_then(|value| value.parse::<u32>().ok());
        assert!(seconds.is_some_and(|seconds| seconds > 0), "{path}: {:?}", answer.head);
        match kind {
            Some(kind) => assert_eq!(answer.json()["error"]["type"], kind),
            None => assert!(answer.json()["error"]["code"].is_string(), "{}", answer.text()),
        }
    }
    let routing = balancer.idle().await;
    assert_eq!(routing.decided(), 2);
}

#[tokio::test]
async fn ready_once_a_replica_answered() {
    let engine = Engine::start().await;
    let well = Arc::new(AtomicBool::new(false));
    let told = well.clone();
    engine.answers_probes(move |_| (!told.load(Ordering::SeqCst)).then(|| error("500 Internal Server Error")));
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    assert_eq!(balancer.ask_admin(&Ask::get("/healthz")).await.status, 200);
    assert_eq!(balancer.ask_admin(&Ask::get("/readyz")).await.status, 503);
    well.store(true, Ordering::SeqCst);
    until("ready", async || (balancer.ask_admin(&Ask::get("/readyz")).await.status == 200).then_some(())).await;
}
