//! Separate engines with affinity off: each request goes where the least is running and waiting.

use serde_json::json;

use crate::harness::*;

#[tokio::test]
async fn requests_go_where_least_is_running_and_waiting() {
    let engines = engines::<2>().await;
    engines[0].vitals(|vitals| (vitals.ranks[0].running, vitals.ranks[0].waiting) = (3.0, 40.0));
    engines[1].vitals(|vitals| vitals.ranks[0].running = 4.0);
    let balancer = Balancer::start(one_model(&engines, json!({"affinity": "off"}))).await;
    balancer.scraped().await;
    for _ in 0..10 {
        balancer.ask(&Ask::chat("m", "Hello.").session("session-0")).await.is("unrouted").from(&engines[1]);
    }
    let routing = balancer.routing().await;
    assert_eq!((routing.total("unrouted"), routing.decided()), (10, 10));
    assert_eq!(routing.column("conversations"), [0, 0]);
}

/// The readings of the engines do not move here: only the balancer's own count can spread these.
#[tokio::test]
async fn what_is_in_flight_counts_at_once() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({"affinity": "off"}))).await;
    balancer.scraped().await;
    let gate = Gate::shut();
    engines.iter().for_each(|engine| engine.holds(&gate));
    let answers = ask_all(balancer.listen, (0..20).map(|_| Ask::chat("m", "Hello.").session("session-0")));
    until("20 requests", async || (engines.iter().map(Engine::turns).sum::<usize>() == 20).then_some(())).await;
    assert_eq!(balancer.routing().await.column("in_flight"), [10, 10]);
    gate.open();
    for answer in answers {
        answer.await.unwrap().is("unrouted");
    }
}
