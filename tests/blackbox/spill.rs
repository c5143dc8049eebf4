//! When a conversation's home is too busy for its next turn.

use serde_json::json;

use crate::harness::*;

#[tokio::test]
async fn a_turn_spills_from_a_busy_home_and_the_home_stays() {
    let engines = engines::<3>().await;
    let balancer = Balancer::start(one_model(&engines, json!({"max_num_seqs": 8}))).await;
    let [home, busy, idle] = &engines;
    let turn = |id: &str| Ask::chat("m", "Hello.").session(id);
    balancer.ask(&turn("conversation-a")).await.is("placed").from(home);
    balancer.ask(&turn("conversation-b")).await.is("placed").from(busy);
    balancer.idle().await;

    let gate = Gate::shut();
    [home, busy].iter().for_each(|engine| engine.holds(&gate));
    let mut held = Vec::new();
    for (engine, id) in [(busy, "conversation-b"), (home, "conversation-a"), (home, "conversation-a")] {
        let before = engine.turns();
        held.extend(ask_all(balancer.listen, [turn(id)]));
        engine.saw_turns(before + 1).await;
    }
    for _ in 0..2 {
        balancer.ask(&turn("conversation-a")).await.is("spilled").from(idle);
        balancer.routing_when("the held ones alone", |routing| routing.total("in_flight") == 3).await;
    }
    let routing = balancer.routing().await;
    assert_eq!(routing.total("spilled"), 2);
    assert_eq!(routing.column("spilled_in"), [0, 0, 2]);
    assert_eq!(routing.column("conversations"), [1, 1, 0]);

    gate.open();
    for answer in held {
        answer.await.unwrap().is("sticky");
    }
    balancer.idle().await;
    balancer.ask(&turn("conversation-a")).await.is("sticky").from(home);
}

/// What is in flight at a home counts whoever sent it.
#[tokio::test]
async fn other_conversations_fill_a_home_too() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({"spill_threshold": 1}))).await;
    let turn = |id: &str| Ask::chat("m", "Hello.").session(id);
    for (n, id) in ["conversation-a", "conversation-b", "conversation-c"].iter().enumerate() {
        balancer.ask(&turn(id)).await.is("placed").from(&engines[n % 2]);
    }
    balancer.idle().await;
    let gate = Gate::shut();
    engines[0].holds(&gate);
    let held = ask_all(balancer.listen, [turn("conversation-a")]);
    engines[0].saw_turns(3).await;
    balancer.ask(&turn("conversation-c")).await.is("spilled").from(&engines[1]);
    balancer.routing_when("the held one alone", |routing| routing.total("in_flight") == 1).await;
    balancer.ask(&turn("conversation-b")).await.is("sticky").from(&engines[1]);
    gate.open();
    for answer in held {
        answer.await.unwrap().is("sticky");
    }
}

#[tokio::test]
async fn nothing_spills_to_a_replica_that_is_out() {
    let engines = engines::<3>().await;
    let balancer = Balancer::start(one_model(&engines, json!({"spill_threshold": 1}))).await;
    let [home, out, busy] = &engines;
    let turn = |id: &str| Ask::chat("m", "Hello.").session(id);
    for (id, engine) in [("conversation-a", home), ("conversation-b", out), ("conversation-c", busy)] {
        balancer.ask(&turn(id)).await.is("placed").from(engine);
    }
    let up = balancer.scraped().await.state(out).to_string();
    out.answers_all_probes(vllm::error("500 Internal Server Error"));
    balancer.routing_when("the replica is out", |routing| routing.state(out) != up).await;
    balancer.idle().await;
    let gate = Gate::shut();
    [home, busy].iter().for_each(|engine| engine.holds(&gate));
    let mut held = ask_all(balancer.listen, [turn("conversation-a"), turn("conversation-c")]);
    home.saw_turns(2).await;
    busy.saw_turns(2).await;
    // The one that is out has nothing in flight, and yet it is not taken.
    held.extend(ask_all(balancer.listen, [turn("conversation-a")]));
    until("the next turn", async || (home.turns() + busy.turns() == 5).then_some(())).await;
    gate.open();
    for answer in held {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_eq!(out.turns(), 1);
}

#[tokio::test]
async fn the_threshold_follows_from_the_engine_s_size_unless_set() {
    let engine = Engine::start().await;
    let cases = [
        (json!({}), 64, "auto"),
        (json!({"max_num_seqs": 32}), 8, "auto"),
        (json!({"max_num_seqs": 7, "spill_threshold": "auto"}), 1, "auto"),
        (json!({"max_num_seqs": 3}), 1, "auto"),
        (json!({"max_num_seqs": 32, "spill_threshold": 5}), 5, "set"),
    ];
    let names: Vec<String> = (0..cases.len()).map(|n| format!("model-{n}")).collect();
    let models: Vec<_> =
        names.iter().zip(&cases).map(|(name, (settings, ..))| model(name, [&engine], settings.clone())).collect();
    let balancer = Balancer::start(json!({"models": models})).await;
    for (name, (settings, threshold, source)) in names.iter().zip(&cases) {
        let routing = balancer.routing_of(name).await.0;
        assert_eq!(routing["spill_threshold"], *threshold, "{settings}");
        assert_eq!(routing["spill_threshold_source"], *source, "{settings}");
    }
}
