//! Where a new conversation goes, and that its later turns follow it.

use serde_json::json;

use crate::harness::ask::DIALECTS;
use crate::harness::*;

#[tokio::test]
async fn a_conversation_stays_where_it_was_placed() {
    let engines = engines::<3>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    for (path, streamed) in DIALECTS.into_iter().flat_map(|path| [(path, false), (path, true)]) {
        let id = format!("{}-{streamed}", path.replace('/', "."));
        let turn = |text: &str| {
            let turn = Ask::turn(path, "m", text).session(&id);
            if streamed { turn.streamed() } else { turn }
        };
        let first = balancer.ask(&turn("Find the bug.")).await;
        first.is("placed");
        for text in ["Now mend it.", "Now test it.", "Thank you."] {
            let next = balancer.ask(&turn(text)).await;
            next.is("sticky");
            assert_eq!(next.replica(), first.replica(), "{path}, streamed: {streamed}");
        }
    }
    let routing = balancer.idle().await;
    assert_eq!((routing.total("placed"), routing.total("sticky"), routing.decided()), (4, 12, 16));
    assert_eq!(routing.column("placed"), [2, 1, 1]);
    assert_eq!(routing.column("sticky"), [6, 3, 3]);
    assert_eq!(routing.column("conversations"), [2, 1, 1]);
    assert_eq!(engines.each_ref().map(Engine::turns), [8, 4, 4]);
}

#[tokio::test]
async fn equal_replicas_take_turns_by_live_conversations_then_order() {
    let engines = engines::<3>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    for n in 0..7 {
        let answer = balancer.ask(&Ask::chat("m", "Hello.").session(&format!("session-{n}"))).await;
        answer.is("placed").from(&engines[n % 3]);
    }
}

#[tokio::test]
async fn a_burst_of_new_conversations_spreads_evenly() {
    let engines = engines::<7>().await;
    let four = model("four", &engines[..4], json!({}));
    let three = model("three", &engines[4..], json!({}));
    let balancer = Balancer::start(json!({"models": [four, three]})).await;
    for (name, engines, evenly) in
        [("four", &engines[..4], &[25, 25, 25, 25][..]), ("three", &engines[4..], &[33, 33, 34])]
    {
        let gate = Gate::shut();
        engines.iter().for_each(|engine| engine.holds(&gate));
        let asks = (0..100).map(|n| Ask::turn(DIALECTS[n % 2], name, "Hello.").session(&format!("session-{n}")));
        let answers = ask_all(balancer.listen, asks);
        until("100 requests at the engines", async || {
            (engines.iter().map(Engine::turns).sum::<usize>() == 100).then_some(())
        })
        .await;
        let mut counts = balancer.routing_of(name).await.column("in_flight");
        counts.sort_unstable();
        assert_eq!(counts, evenly);
        gate.open();
        for answer in answers {
            answer.await.unwrap().is("placed");
        }
        until("nothing in flight", async || (balancer.routing_of(name).await.total("in_flight") == 0).then_some(()))
            .await;
    }
}

/// The first turns of one conversation, all at once: it is placed once, and the others find that home.
#[tokio::test]
async fn a_conversation_that_begins_many_times_has_one_home() {
    let engines = engines::<4>().await;
    let balancer = Balancer::start(one_model(&engines, json!({"spill_threshold": 100}))).await;
    let gate = Gate::shut();
    engines.iter().for_each(|engine| engine.holds(&gate));
    let answers = ask_all(balancer.listen, (0..40).map(|_| Ask::chat("m", "Hello.").session("session-1")));
    until("40 requests", async || (engines.iter().map(Engine::turns).sum::<usize>() == 40).then_some(())).await;
    gate.open();
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    let routing = balancer.routing().await;
    assert_eq!((routing.total("placed"), routing.total("sticky"), routing.decided()), (1, 39, 40));
    assert_eq!(routing.column("conversations"), [1, 0, 0, 0]);
}

/// Places new conversations one after the other, all held, and says which engine each went to.
async fn places(balancer: &Balancer, engines: &[Engine], count: usize, held: bool) -> Vec<usize> {
    let gate = Gate::shut();
    if held {
        engines.iter().for_each(|engine| engine.holds(&gate));
    }
    let (mut went, mut answers) = (Vec::new(), Vec::new());
    for n in 0..count {
        let before: Vec<usize> = engines.iter().map(Engine::turns).collect();
        answers.extend(ask_all(balancer.listen, [Ask::chat("m", "Hello.").session(&format!("session-{n}"))]));
        let moved = until("the next request at an engine", async || {
            engines.iter().zip(&before).position(|(engine, before)| engine.turns() > *before)
        });
        went.push(moved.await);
        if !held {
            answers.pop().unwrap().await.unwrap().is("placed");
            balancer.idle().await;
        }
    }
    gate.open();
    for answer in answers {
        answer.await.unwrap().is("placed");
    }
    went
}

/// Half of the cache in use weighs as much as four conversations, on a replica or in flight there. So says the rule; with
/// admission, what the conversations there take weighs instead.
#[tokio::test]
async fn a_full_cache_weighs_on_placement() {
    for (full, held, expected) in [
        (0, false, [1, 1, 1, 1, 0, 1, 0]),
        (0, true, [1, 1, 0, 1, 0, 1, 0]),
        // At equal loads, fewer live conversations come before the order.
        (1, false, [0, 0, 0, 0, 1, 0, 1]),
    ] {
        let engines = engines::<2>().await;
        engines[full].vitals(|vitals| vitals.ranks[0].kv_cache_usage = Some(0.5));
        let balancer = Balancer::start(one_model(&engines, json!({"admission": "off"}))).await;
        balancer.scraped().await;
        assert_eq!(places(&balancer, &engines, 7, held).await, expected, "{full} is half full, held: {held}");
    }
}

#[tokio::test]
async fn a_missing_reading_leaves_the_cache_out_for_all() {
    let engines = engines::<2>().await;
    engines[0].vitals(|vitals| vitals.ranks[0].kv_cache_usage = Some(0.9));
    engines[1].vitals(|vitals| vitals.ranks[0].kv_cache_usage = None);
    let balancer = Balancer::start(one_model(&engines, json!({"admission": "off"}))).await;
    let routing = balancer.scraped().await;
    assert_eq!(routing.replica(&engines[0].name())["kv_cache_usage"], 0.9);
    assert!(routing.replica(&engines[1].name())["kv_cache_usage"].is_null());
    assert_eq!(places(&balancer, &engines, 4, false).await, [0, 1, 0, 1]);
}

#[tokio::test]
async fn a_reading_older_than_15_s_leaves_the_cache_out_for_all() {
    let engines = engines::<2>().await;
    engines[0].vitals(|vitals| vitals.ranks[0].kv_cache_usage = Some(0.9));
    let mut config = one_model(&engines, json!({"admission": "off"}));
    // Only the first scrape, which comes at once, falls into this test.
    config["scrape"] = json!({"interval": "5 min"});
    let balancer = Balancer::start(config).await;
    balancer.scraped().await;
    balancer.ask(&Ask::chat("m", "Hello.").session("while-fresh")).await.is("placed").from(&engines[1]);
    let old = |routing: &routing::Routing| {
        let age = |row: &serde_json::Value| row["reading_age_s"].as_f64().unwrap();
        routing.replicas().iter().any(|row| age(row) > 15.0)
    };
    balancer.routing_when("a reading older than 15 s", old).await;
    balancer.ask(&Ask::chat("m", "Hello.").session("when-stale")).await.is("placed").from(&engines[0]);
}

#[tokio::test]
async fn only_a_request_without_a_user_s_words_is_balanced() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let wordless = Ask::chat("m", "").with(json!({"messages": [{"role": "system", "content": "You are terse."}]}));
    for _ in 0..2 {
        balancer.ask(&wordless).await.is("balanced");
    }
    let routing = balancer.routing().await;
    assert_eq!((routing.total("balanced"), routing.decided()), (2, 2));
    assert_eq!(routing.column("conversations"), [0, 0]);
    let first = balancer.ask(&Ask::chat("m", "Hello.")).await;
    first.is("placed");
    let again = Ask::chat("m", "").with(json!({"messages": [
        {"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And now?"},
    ]}));
    let second = balancer.ask(&again).await;
    second.is("sticky");
    assert_eq!(second.replica(), first.replica());
}
