//! An engine that restarts has lost its cache, so the conversations homed there are forgotten.

use serde_json::json;

use crate::harness::vllm::Vitals;
use crate::harness::*;

#[tokio::test]
async fn a_restart_forgets_the_conversations_of_that_engine_alone() {
    type Change = fn(&mut Vitals);
    let restarts: [(&str, Change); 2] = [
        ("a new start time", |vitals| vitals.start_time_s += 60.0),
        ("counters that fall", |vitals| {
            let rank = &mut vitals.ranks[0];
            (rank.prefix_queries, rank.prefix_hits) = (0.0, 0.0);
            (rank.prompt_tokens, rank.generation_tokens) = (0.0, 0.0);
        }),
    ];
    let turn = |id: &str| Ask::chat("m", "Hello.").session(id);
    for (what, restart) in restarts {
        let engines = engines::<2>().await;
        let balancer = Balancer::start(one_model(&engines, json!({}))).await;
        balancer.scraped().await;
        balancer.ask(&turn("conversation-a")).await.is("placed").from(&engines[0]);
        balancer.ask(&turn("conversation-b")).await.is("placed").from(&engines[1]);
        engines[0].vitals(restart);
        balancer.routing_when(what, |routing| routing.of(&engines[0], "conversations") == 0).await;
        balancer.ask(&turn("conversation-b")).await.is("sticky").from(&engines[1]);
        balancer.ask(&turn("conversation-a")).await.is("placed");
        balancer.ask(&turn("conversation-a")).await.is("sticky");
    }
}

/// Counters that rise, as they do all day, are no restart.
#[tokio::test]
async fn an_engine_that_goes_on_keeps_its_conversations() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    balancer.scraped().await;
    balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.is("placed");
    engine.vitals(|vitals| {
        vitals.ranks[0].prompt_tokens += 5000.0;
        vitals.ranks[0].running = 2.0;
    });
    balancer.routing_when("the new reading", |routing| routing.replicas()[0]["running"].as_f64() == Some(2.0)).await;
    balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.is("sticky");
}
