//! Requests that generate nothing: they follow their conversation and are counted nowhere.

use serde_json::json;

use crate::harness::*;

const PATHS: [&str; 5] = [
    "/v1/messages/count_tokens",
    "/tokenize",
    "/v1/chat/completions/render",
    "/v1/completions/render",
    "/v1/messages/render",
];

#[tokio::test]
async fn they_follow_the_home_and_are_counted_nowhere() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({"spill_threshold": 1}))).await;
    let [first, home] = &engines;
    let turn = |id: &str| Ask::messages("m", "Hello.").session(id);
    balancer.ask(&turn("conversation-a")).await.is("placed").from(first);
    balancer.ask(&turn("conversation-b")).await.is("placed").from(home);
    balancer.idle().await;
    let gate = Gate::shut();
    home.holds(&gate);
    let held = ask_all(balancer.listen, PATHS.map(|path| Ask::turn(path, "m", "Hello.").session("conversation-b")));
    // The home's threshold is one, and yet all of them come here: nothing is in flight.
    home.saw_turns(1 + PATHS.len()).await;
    let routing = balancer.routing().await;
    assert_eq!((routing.total("in_flight"), routing.decided(), first.turns()), (0, 2, 1));
    gate.open();
    for answer in held {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_eq!(balancer.routing().await.decided(), 2);
}

#[tokio::test]
async fn without_a_home_they_go_to_the_least_loaded_and_make_none() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let gate = Gate::shut();
    engines[0].holds(&gate);
    let held = ask_all(balancer.listen, [Ask::chat("m", "Hello.").session("conversation-a")]);
    engines[0].saw_turns(1).await;
    for (n, path) in PATHS.iter().enumerate() {
        let ask = Ask::turn(path, "m", "Hello.").session("conversation-b");
        assert_eq!(balancer.ask(&ask).await.status, 200, "{path}");
        assert_eq!(engines[1].turns(), n + 1, "{path}");
    }
    let routing = balancer.routing().await;
    assert_eq!((routing.decided(), routing.total("in_flight")), (1, 1));
    assert_eq!(routing.column("conversations"), [1, 0]);
    gate.open();
    for answer in held {
        answer.await.unwrap().is("placed");
    }
    balancer.ask(&Ask::chat("m", "Hello.").session("conversation-b")).await.is("placed");
}
