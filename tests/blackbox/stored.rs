//! Stored responses: only the replica that made one has it.

use serde_json::{Value, json};

use crate::harness::*;

const PATH: &str = "/v1/responses";

fn ask(more: Value) -> Ask {
    Ask::post(PATH, &json!({"model": "m", "input": "Hello."})).with(more)
}

fn makes(engine: &Engine, id: &'static str, thread: Option<&'static str>) {
    engine.answers(move |request| vllm::response(request, id, thread));
}

/// Has the second of two replicas make `resp_2`, in the thread `conv_2`.
async fn made_by_the_second(more: Value) -> ([Engine; 2], Balancer) {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, more)).await;
    makes(&engines[1], "resp_2", Some("conv_2"));
    let gate = Gate::shut();
    engines[0].holds(&gate);
    let held = ask_all(balancer.listen, [Ask::chat("m", "Hello.").session("conversation-a")]);
    engines[0].saw_turns(1).await;
    balancer.ask(&ask(json!({})).session("conversation-b")).await.is("placed").from(&engines[1]);
    gate.open();
    for answer in held {
        answer.await.unwrap().is("placed");
    }
    balancer.idle().await;
    (engines, balancer)
}

#[tokio::test]
async fn what_goes_on_from_one_reaches_its_replica_whoever_asks() {
    for streamed in [false, true] {
        let engines = engines::<3>().await;
        let balancer = Balancer::start(one_model(&engines, json!({"spill_threshold": 1}))).await;
        for (engine, (id, thread)) in
            engines.iter().zip([("resp_1", "conv_1"), ("resp_2", "conv_2"), ("resp_3", "conv_3")])
        {
            makes(engine, id, Some(thread));
        }
        let ids = ["conversation-a", "conversation-b", "conversation-c"];
        for (engine, session) in engines.iter().zip(ids) {
            balancer.ask(&ask(json!({"stream": streamed})).session(session)).await.is("placed").from(engine);
        }
        // The conversation in the headers has a home elsewhere, and another caller asks.
        for (engine, number) in [(&engines[2], 3), (&engines[0], 1), (&engines[1], 2), (&engines[2], 3)] {
            let follows = [
                json!({"previous_response_id": format!("resp_{number}")}),
                json!({"previous_response_id": format!("resp_{number}"), "conversation": "conv_1"}),
                json!({"conversation": format!("conv_{number}")}),
                json!({"conversation": {"id": format!("conv_{number}")}, "stream": true}),
            ];
            for more in follows {
                let next = ask(more).session("conversation-a").header("authorization", "Bearer another");
                balancer.ask(&next).await.is("client_pinned").from(engine);
            }
        }
        let routing = balancer.idle().await;
        assert_eq!((routing.total("client_pinned"), routing.decided()), (16, 19));
        assert_eq!(routing.0["stored"], 6);
    }
}

#[tokio::test]
async fn it_is_read_cancelled_and_deleted_there() {
    let (engines, balancer) = made_by_the_second(json!({})).await;
    let asks = [
        Ask::get("/v1/responses/resp_2"),
        Ask::get("/v1/responses/resp_2?stream=true&starting_after=1"),
        Ask::get("/v1/responses/resp_2/input_items?limit=2"),
        Ask::new("POST", "/v1/responses/resp_2/cancel"),
        Ask::new("DELETE", "/v1/responses/resp_2"),
    ];
    for (n, ask) in asks.iter().enumerate() {
        let answer = balancer.ask(ask).await;
        assert_eq!((answer.status, answer.replica()), (200, engines[1].name().as_str()), "{}", ask.target);
        assert_eq!(engines[1].last().target(), ask.target);
        assert_eq!((engines[0].turns(), engines[1].turns()), (1, 2 + n));
    }
    // Reading generates nothing: no decision is counted.
    assert_eq!(balancer.idle().await.decided(), 2);
    balancer.metric_becomes("homing_follow_requests_total", &[], 5.0).await;
}

/// A client may ask for the next turn as soon as it has read the last one, and cancel a stream that runs.
#[tokio::test]
async fn a_stream_that_runs_can_be_cancelled() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let gate = Gate::shut();
    let created = "event: response.created\ndata: {\"response\":{\"id\":\"resp_1\",\"background\":true},\
                   \"type\":\"response.created\"}\n\n";
    let running = Answer::stream(&[created.to_string(), "data: {}\n\n".into()], Some(&gate));
    engines[0].answers(move |request| match request.path() {
        PATH => running.clone(),
        _ => Answer::json("200 OK", &json!({"id": "resp_1", "status": "cancelled"})),
    });
    let mut client = balancer.client().await;
    client.send(&ask(json!({"stream": true, "background": true}))).await;
    client.head().await;
    assert!(client.piece().await.is_some());
    for _ in 0..3 {
        let cancelled = balancer.ask(&Ask::new("POST", "/v1/responses/resp_1/cancel")).await;
        assert_eq!((cancelled.status, cancelled.replica()), (200, engines[0].name().as_str()));
    }
    gate.open();
    assert!(client.piece().await.is_some());
}

#[tokio::test]
async fn among_several_models_the_id_alone_says_which() {
    let engines = engines::<2>().await;
    makes(&engines[1], "resp_2", None);
    let models = [model("one", [&engines[0]], json!({})), model("two", [&engines[1]], json!({}))];
    let balancer = Balancer::start(json!({"models": models})).await;
    let unknown = balancer.ask(&Ask::get("/v1/responses/resp_2")).await;
    assert_eq!((unknown.status, unknown.header("x-homing-error")), (404, Some("response_not_found")));
    assert_eq!(unknown.json()["error"]["type"], "not_found_error");
    balancer.ask(&ask(json!({"model": "two"}))).await.is("placed");
    let known = balancer.ask(&Ask::get("/v1/responses/resp_2")).await;
    assert_eq!((known.status, known.replica()), (200, engines[1].name().as_str()));
}

#[tokio::test]
async fn an_unknown_id_is_routed_like_any_other_request() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let turn = |id: &str| ask(json!({"previous_response_id": "resp_of_yesterday"})).session(id);
    balancer.ask(&turn("conversation-a")).await.is("placed").from(&engines[0]);
    balancer.ask(&turn("conversation-b")).await.is("placed").from(&engines[1]);
    balancer.ask(&turn("conversation-a")).await.is("sticky").from(&engines[0]);
    assert_eq!(balancer.ask(&Ask::get("/v1/responses/resp_of_yesterday")).await.status, 200);
    // Only what speaks the Responses API names one.
    makes(&engines[1], "resp_2", None);
    balancer.ask(&ask(json!({})).session("conversation-b")).await.is("sticky");
    let chat = Ask::chat("m", "Hello.").with(json!({"previous_response_id": "resp_2"})).session("conversation-a");
    balancer.ask(&chat).await.is("sticky").from(&engines[0]);
}

#[track_caller]
fn is_gone(answer: &Response) {
    assert_eq!((answer.status, answer.header("x-homing-error")), (404, Some("response_gone")), "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!((error["type"].as_str(), error["code"].as_str()), (Some("not_found_error"), Some("response_gone")));
    assert!(error["message"].as_str().is_some_and(|message| message.contains("is gone")), "{error}");
}

#[tokio::test]
async fn it_is_gone_with_a_replica_that_is_configured_no_more() {
    let (engines, balancer) = made_by_the_second(json!({})).await;
    assert_eq!(balancer.reload(&one_model(&engines[..1], json!({}))).await.status, 200);
    let before = balancer.routing().await.decided();
    for gone in [
        ask(json!({"previous_response_id": "resp_2"})),
        ask(json!({"conversation": "conv_2", "stream": true})).session("conversation-a"),
        Ask::get("/v1/responses/resp_2"),
        Ask::new("POST", "/v1/responses/resp_2/cancel"),
        Ask::new("DELETE", "/v1/responses/resp_2"),
    ] {
        is_gone(&balancer.ask(&gone).await);
    }
    assert_eq!((balancer.routing().await.decided(), engines[0].turns()), (before, 1));
}

#[tokio::test]
async fn it_is_gone_with_a_restart_of_its_engine() {
    let (engines, balancer) = made_by_the_second(json!({})).await;
    balancer.scraped().await;
    engines[1].vitals(|vitals| vitals.start_time_s += 60.0);
    balancer.routing_when("the restart is seen", |routing| routing.of(&engines[1], "restarts") == 1).await;
    is_gone(&balancer.ask(&ask(json!({"previous_response_id": "resp_2"}))).await);
    balancer.ask(&ask(json!({})).session("conversation-c")).await.is("placed");
}

/// It is not sent anywhere else. While the engine may come back with it the client may try again.
#[tokio::test]
async fn an_engine_that_cannot_be_reached_is_tried_again_until_it_is_out() {
    let (mut engines, balancer) = made_by_the_second(json!({})).await;
    let up = balancer.scraped().await.state(&engines[1]).to_string();
    let next = ask(json!({"previous_response_id": "resp_2"}));
    engines[1].answers(|_| vllm::error("503 Service Unavailable"));
    let busy = balancer.ask(&next).await;
    assert_eq!((busy.status, busy.header("x-homing-error")), (503, None), "the engine's own words");
    engines[1].refuse();
    let refused = balancer.ask(&next).await;
    assert!(matches!(refused.header("x-homing-error"), Some("no_replica" | "response_gone")), "{}", refused.text());
    balancer.routing_when("the replica is out", |routing| routing.state(&engines[1]) != up).await;
    is_gone(&balancer.ask(&next).await);
    is_gone(&balancer.ask(&Ask::get("/v1/responses/resp_2")).await);
    assert_eq!(engines[0].turns(), 1);
    engines[1].listen();
    makes(&engines[1], "resp_2", None);
    balancer.ask(&next).await.is("client_pinned").from(&engines[1]);
}

#[tokio::test]
async fn it_never_waits_for_room_and_is_in_flight() {
    let settings = json!({"kv_cache_tokens": 1000, "admission": "auto"});
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], settings)).await;
    makes(&engine, "resp_1", None);
    balancer.ask(&ask(json!({})).session("conversation-a")).await.is("placed");
    let gate = Gate::shut();
    engine.holds(&gate);
    let long = "word ".repeat(2000);
    let mut asks = ask_all(balancer.listen, [ask(json!({"input": long.clone()})).session("conversation-b")]);
    engine.saw_turns(2).await;
    asks.extend(ask_all(balancer.listen, [ask(json!({"input": long.clone()})).session("conversation-c")]));
    balancer.routing_when("one waits", |routing| routing.0["admission"]["parked"] == 1).await;
    let pinned = ask(json!({"input": long, "previous_response_id": "resp_1"})).session("conversation-d");
    let pinned = ask_all(balancer.listen, [pinned]);
    engine.saw_turns(3).await;
    assert_eq!(balancer.routing().await.total("in_flight"), 2);
    gate.open();
    for answer in pinned {
        answer.await.unwrap().is("client_pinned");
    }
    for answer in asks {
        answer.await.unwrap().is("placed");
    }
}

#[tokio::test]
async fn the_longest_unused_is_forgotten_past_conversations_max() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({"conversations_max": 2}))).await;
    for id in ["resp_1", "resp_2", "resp_3"] {
        makes(&engine, id, None);
        assert_eq!(balancer.ask(&ask(json!({}))).await.status, 200);
    }
    balancer.metric_becomes("homing_stored_responses", &[("model", "m")], 2.0).await;
    balancer.metric_becomes("homing_stored_responses_evicted_total", &[("model", "m")], 1.0).await;
    for (id, decision) in [("resp_3", "client_pinned"), ("resp_1", "sticky")] {
        balancer.ask(&ask(json!({"previous_response_id": id}))).await.is(decision);
    }
}
