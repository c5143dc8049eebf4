//! Engines with data-parallel ranks, and clients that choose a rank themselves.

use serde_json::{Value, json};

use crate::harness::*;

const RANK: &str = "x-data-parallel-rank";

/// A model `m` of engines with so many ranks each.
async fn ranked<const N: usize>(ranks: [usize; N], more: Value) -> ([Engine; N], Value) {
    let mut engines = Vec::new();
    for ranks in ranks {
        engines.push(Engine::with_ranks(ranks).await);
    }
    let replicas: Vec<Value> = std::iter::zip(&engines, ranks)
        .map(|(engine, ranks)| json!({"url": engine.url(), "data_parallel_size": ranks}))
        .collect();
    let mut config = one_model([], more);
    config["models"][0]["replicas"] = replicas.into();
    (engines.try_into().unwrap_or_else(|_| unreachable!("N engines were started")), config)
}

fn rank(engine: &Engine, rank: usize) -> String {
    format!("{}#{rank}", engine.name())
}

fn turn(id: &str) -> Ask {
    Ask::chat("m", "Hello.").session(id)
}

#[tokio::test]
async fn each_rank_is_a_replica_and_is_named_to_the_engine() {
    let ([engine], config) = ranked([4], json!({})).await;
    engine.vitals(|vitals| {
        for (rank, readings) in vitals.ranks.iter_mut().enumerate() {
            readings.running = rank as f64;
        }
    });
    let balancer = Balancer::start(config).await;
    for n in 0..8 {
        let id = format!("session-{}", n % 4);
        let answer = balancer.ask(&turn(&id)).await;
        answer.is(if n < 4 { "placed" } else { "sticky" });
        assert_eq!(answer.replica(), rank(&engine, n % 4));
        assert_eq!(engine.last().header(RANK), Some((n % 4).to_string().as_str()));
    }
    let routing = balancer.scraped().await;
    for n in 0..4 {
        assert_eq!(routing.replica(&rank(&engine, n))["running"].as_f64(), Some(n as f64));
    }
    let names = |metrics: &prometheus::Samples| {
        metrics.samples.iter().filter_map(|sample| sample.labels.get("replica").cloned()).collect::<Vec<_>>()
    };
    assert!(names(&balancer.metrics().await).contains(&rank(&engine, 3)));
}

#[tokio::test]
async fn a_rank_of_the_client_s_choice_is_within_its_home() {
    let ([first, second], config) = ranked([2, 2], json!({"spill_threshold": 1})).await;
    let balancer = Balancer::start(config).await;
    for (id, home) in [("session-0", rank(&first, 0)), ("session-1", rank(&first, 1)), ("session-2", rank(&second, 0))]
    {
        let answer = balancer.ask(&turn(id)).await;
        answer.is("placed");
        assert_eq!(answer.replica(), home);
    }
    // However busy that rank is, the choice stands.
    let gate = Gate::shut();
    second.holds(&gate);
    let mut held = Vec::new();
    for n in 0..3 {
        held.extend(ask_all(balancer.listen, [turn("session-2").header(RANK, "1")]));
        second.saw_turns(2 + n).await;
        assert_eq!(second.last().header(RANK), Some("1"));
    }
    let routing = balancer.routing().await;
    assert_eq!(routing.total("client_pinned"), 3);
    assert_eq!(routing.replica(&rank(&second, 1))["client_pinned"], 3);
    assert_eq!(routing.replica(&rank(&second, 1))["in_flight"], 3);
    gate.open();
    for answer in held {
        let answer = answer.await.unwrap();
        answer.is("client_pinned");
        assert_eq!(answer.replica(), rank(&second, 1));
    }
    let next = balancer.ask(&turn("session-2")).await;
    next.is("sticky");
    assert_eq!(next.replica(), rank(&second, 0), "the home stays");
}

#[tokio::test]
async fn a_rank_without_a_home_is_on_the_least_loaded_engine_that_has_it() {
    let ([small, large, other], config) = ranked([2, 4, 4], json!({})).await;
    let balancer = Balancer::start(config).await;
    let gate = Gate::shut();
    [&small, &large, &other].iter().for_each(|engine| engine.holds(&gate));
    let mut held = Vec::new();
    for (n, (choice, engine)) in
        [("1", &small), ("1", &large), ("3", &other), ("3", &large), ("3", &other)].into_iter().enumerate()
    {
        let before = engine.turns();
        held.extend(ask_all(balancer.listen, [turn(&format!("session-{n}")).header(RANK, choice)]));
        engine.saw_turns(before + 1).await;
        assert_eq!(engine.last().header(RANK), Some(choice));
    }
    gate.open();
    for answer in held {
        answer.await.unwrap().is("client_pinned");
    }
}

#[tokio::test]
async fn an_invalid_rank_is_passed_on_as_it_came() {
    let ([engine], config) = ranked([2], json!({})).await;
    let balancer = Balancer::start(config).await;
    let invalid = ["2", "7", "-1", "1.0", "one", "0x1", "99999999999999999999"];
    for choice in invalid {
        balancer.ask(&turn("session-0").header(RANK, choice)).await.is("unrouted");
        assert_eq!(engine.last().header(RANK), Some(choice));
        assert_eq!(engine.last().head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(RANK)).count(), 1);
    }
    let routing = balancer.routing().await;
    assert_eq!((routing.total("unrouted"), routing.decided()), (invalid.len() as u64, invalid.len() as u64));
}

/// The ranks of a dead engine are all dead: the tries that are left go elsewhere.
#[tokio::test]
async fn a_dead_engine_s_other_ranks_are_not_tried() {
    let ([mut dead, alive], config) = ranked([4, 2], json!({})).await;
    let balancer = Balancer::start(config).await;
    balancer.ask(&turn("session-0")).await.is("placed");
    assert_eq!(dead.turns(), 1);
    dead.refuse();
    for n in 0..6 {
        let answer = balancer.ask(&turn(&format!("session-{n}"))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.replica().starts_with(&alive.name()), "{}", answer.replica());
        // The rank that it is sent is one of the engine that answers.
        let sent = alive.last().header(RANK).map(str::to_string);
        assert_eq!(answer.replica().split_once('#').map(|(_, rank)| rank.to_string()), sent);
    }
}

#[tokio::test]
async fn a_restart_forgets_the_conversations_of_all_ranks() {
    let ([engine], config) = ranked([2], json!({})).await;
    let balancer = Balancer::start(config).await;
    balancer.scraped().await;
    for id in ["session-0", "session-1"] {
        balancer.ask(&turn(id)).await.is("placed");
    }
    engine.vitals(|vitals| vitals.start_time_s += 60.0);
    balancer.routing_when("no conversation left", |routing| routing.column("conversations") == [0, 0]).await;
    for id in ["session-0", "session-1"] {
        balancer.ask(&turn(id)).await.is("placed");
    }
}

#[tokio::test]
async fn without_affinity_the_engine_balances_its_ranks() {
    let ([engine], config) = ranked([4], json!({"affinity": "off"})).await;
    let balancer = Balancer::start(config).await;
    for _ in 0..4 {
        balancer.ask(&turn("session-0")).await.is("unrouted");
        assert_eq!(engine.last().header(RANK), None);
    }
    balancer.ask(&turn("session-0").header(RANK, "3")).await;
    assert_eq!(engine.last().header(RANK), Some("3"), "a client's own choice still stands");
    let routing = balancer.routing().await;
    assert_eq!(routing.0["affinity"], "off");
    assert_eq!(routing.decided(), 5);
}
