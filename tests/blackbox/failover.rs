//! When a replica does not answer: another is tried, and nothing is sent twice once an answer began.

use serde_json::json;

use crate::harness::vllm::{USAGE, error, turn};
use crate::harness::*;

/// The routes that a replica answers, in both dialects and in neither.
const ROUTES: [&str; 13] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/pooling",
    "/classify",
    "/score",
    "/v1/score",
    "/rerank",
    "/v2/rerank",
    "/tokenize",
];

/// What an engine can do instead of answering, so that another is tried.
fn refusals() -> Vec<(&'static str, Answer)> {
    vec![
        ("closes without a byte", Answer::new().close()),
        ("resets without a byte", Answer::new().reset()),
        ("502", error("502 Bad Gateway")),
        ("503", error("503 Service Unavailable")),
        ("429", error("429 Too Many Requests")),
    ]
}

fn ask(id: &str) -> Ask {
    Ask::chat("m", "Hello.").session(id)
}

#[tokio::test]
async fn another_replica_answers_on_every_route() {
    let mut engines = engines::<2>().await;
    // None of them is left alone for it.
    let patient = json!({"recovery": {"failures": 1000}});
    let balancer = Balancer::start(json!({"models": [model("m", &engines, patient)]})).await;
    let mut refused = 0;
    for (what, answer) in refusals() {
        engines[0].answers(move |_| answer.clone());
        for route in ROUTES {
            // Two new conversations: one of them is placed on the first engine.
            for n in 0..2 {
                let ask =
                    Ask::turn(route, "m", "Hello.").session(&format!("{n}-{what}-{route}").replace([' ', '/'], "."));
                let answer = balancer.ask(&ask).await;
                assert_eq!(answer.status, 200, "{route}, the engine {what}: {}", answer.text());
            }
        }
        assert!(engines[0].turns() > refused, "the engine that {what} was never tried");
        refused = engines[0].turns();
    }
    let failed_over = balancer.routing().await.total("failed_over");
    assert!(failed_over > 0);
    engines[0].refuse();
    for (n, route) in ROUTES.into_iter().enumerate() {
        let answer = balancer.ask(&Ask::turn(route, "m", "Hello.").session(&format!("refused-{n}"))).await;
        assert_eq!(answer.status, 200, "{route}, the engine refuses: {}", answer.text());
    }
}

/// The engine closes a connection that was idle in the balancer's pool, as uvicorn does after 5 s.
#[tokio::test]
async fn a_reused_connection_that_is_closed_costs_nothing() {
    for rude in [Answer::new().close(), Answer::new().reset()] {
        let engines = engines::<2>().await;
        engines.iter().for_each(|engine| {
            let rude = rude.clone();
            engine.answers(move |request| match request.nth_on_connection {
                0 => turn(request, USAGE),
                _ => rude.clone(),
            });
        });
        // With another replica to go to, and with none: then the same is asked once more, on a fresh connection.
        for engines in [&engines[..], &engines[..1]] {
            let balancer = Balancer::start(one_model(engines, json!({}))).await;
            balancer.ask(&ask("conversation-a")).await.is("placed");
            for _ in 0..6 {
                balancer.ask(&ask("conversation-a")).await.is("sticky");
            }
        }
        let reused = engines[0].requests().iter().filter(|request| request.nth_on_connection > 0).count();
        assert!(reused > 1, "no connection was used again");
    }
}

/// Requests that wait for their first byte when their engine dies.
#[tokio::test]
async fn an_engine_that_dies_loses_none_that_wait() {
    let mut engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let gate = Gate::shut();
    engines.iter().for_each(|engine| engine.holds(&gate));
    let answers = ask_all(balancer.listen, (0..20).map(|n| ask(&format!("conversation-{n}"))));
    engines[0].saw_turns(10).await;
    engines[0].refuse();
    engines[1].saw_turns(20).await;
    gate.open();
    for answer in answers {
        answer.await.unwrap().is("placed").from(&engines[1]);
    }
    let routing = balancer.idle().await;
    assert_eq!((routing.decided(), routing.total("failed_over")), (20, 10));
}

/// Engines before vLLM 0.14 fail a second request of the same id while the first is in flight.
#[tokio::test]
async fn each_try_carries_an_id_of_its_own() {
    let engines = engines::<3>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    engines.iter().for_each(|engine| engine.answers(|_| error("503 Service Unavailable")));
    for ask in [ask("conversation-a"), ask("conversation-b").header("x-request-id", "of-the-client")] {
        balancer.ask(&ask).await;
        let mut ids: Vec<_> =
            engines.iter().map(|engine| engine.last().header("x-request-id").map(str::to_string)).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 3, "{ids:?}");
    }
}

#[tokio::test]
async fn a_request_keeps_its_first_decision_and_is_counted_once() {
    for (what, refusal) in refusals() {
        let engines = engines::<2>().await;
        let balancer = Balancer::start(one_model(&engines, json!({}))).await;
        balancer.ask(&ask("conversation-a")).await.is("placed").from(&engines[0]);
        engines[0].answers(move |_| refusal.clone());
        balancer.ask(&ask("conversation-a")).await.is("sticky").from(&engines[1]);
        balancer.ask(&ask("conversation-b")).await.is("placed").from(&engines[1]);
        let routing = balancer.idle().await;
        let counted = ["placed", "sticky", "spilled", "failed_over"].map(|name| routing.total(name));
        // The new conversation may have been tried on the first engine too.
        assert_eq!((counted[0], counted[1], counted[2], routing.decided()), (2, 1, 0, 3), "{what}");
        assert_eq!(counted[3], engines[0].turns() as u64 - 1, "{what}");
    }
}

#[tokio::test]
async fn a_conversation_whose_home_is_down_gets_a_new_home() {
    let mut engines = engines::<3>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    balancer.ask(&ask("conversation-a")).await.is("placed").from(&engines[0]);
    let up = balancer.scraped().await.state(&engines[0]).to_string();
    engines[0].refuse();
    let moved = balancer.ask(&ask("conversation-a")).await;
    assert_eq!(moved.status, 200);
    balancer.routing_when("the engine is down", |routing| routing.state(&engines[0]) != up).await;
    let settled = balancer.ask(&ask("conversation-a")).await;
    assert_eq!(settled.status, 200);
    assert_ne!(settled.replica(), engines[0].name());
    engines[0].listen();
    balancer.routing_when("the engine is back", |routing| routing.state(&engines[0]) == up).await;
    let stays = balancer.ask(&ask("conversation-a")).await;
    stays.is("sticky");
    assert_eq!(stays.replica(), settled.replica());
}

/// No scrape has to fail first: a connection refused says enough.
#[tokio::test]
async fn the_next_turn_goes_straight_to_the_new_home() {
    let mut engines = engines::<2>().await;
    let mut config = one_model(&engines, json!({}));
    config["scrape"] = json!({"interval": "5 min"});
    let balancer = Balancer::start(config).await;
    balancer.scraped().await;
    balancer.ask(&ask("conversation-a")).await.is("placed").from(&engines[0]);
    engines[0].refuse();
    // The first may meet a connection of before, whose end alone says little; the second is refused for certain.
    for _ in 0..2 {
        balancer.ask(&ask("conversation-a")).await.is("sticky").from(&engines[1]);
    }
    let settled = balancer.idle().await.total("failed_over");
    for _ in 0..3 {
        balancer.ask(&ask("conversation-a")).await.is("sticky").from(&engines[1]);
    }
    let routing = balancer.idle().await;
    assert_eq!(routing.total("failed_over"), settled);
    assert_eq!(routing.column("conversations"), [0, 1]);
}

#[tokio::test]
async fn at_most_two_more_replicas_are_tried() {
    let engines = engines::<5>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    for (n, status) in ["502 Bad Gateway", "503 Service Unavailable", "429 Too Many Requests"].iter().enumerate() {
        engines.iter().for_each(|engine| engine.answers(|_| error(status)));
        let before = engines.each_ref().map(Engine::turns);
        let answer = balancer.ask(&ask(&format!("conversation-{n}"))).await;
        let tried = std::iter::zip(&engines, before).map(|(engine, before)| engine.turns() - before);
        let tried: Vec<usize> = tried.filter(|count| *count > 0).collect();
        assert_eq!(tried, [1, 1, 1], "three engines, each once");
        // The engine's own words, not the balancer's.
        assert_eq!(answer.status.to_string(), status[..3]);
        assert_eq!(answer.json()["error"]["message"], format!("the engine says {}", answer.status));
    }
    let routing = balancer.routing().await;
    assert_eq!((routing.total("placed"), routing.decided(), routing.total("failed_over")), (3, 3, 6));
}

/// With one replica there is none to try after it: its own error reaches the client whole.
#[tokio::test]
async fn a_lone_engine_s_error_is_passed_on() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    engine.answers(|_| Answer::whole("503 Service Unavailable", &[("retry-after", "7"), ("x-why", "busy")], b"busy"));
    let answer = balancer.ask(&ask("conversation-a")).await;
    assert_eq!((answer.status, answer.text().as_str()), (503, "busy"));
    assert_eq!((answer.header("retry-after"), answer.header("x-why")), (Some("7"), Some("busy")));
    assert_eq!(engine.turns(), 1);
}

#[tokio::test]
async fn what_an_engine_decided_is_not_asked_again() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    for (n, status) in ["400 Bad Request", "404 Not Found", "422 Unprocessable", "500 Internal Server Error", "501 No"]
        .iter()
        .enumerate()
    {
        engines.iter().for_each(|engine| engine.answers(|_| error(status)));
        assert_eq!(balancer.ask(&ask(&format!("conversation-{n}"))).await.status.to_string(), status[..3]);
        assert_eq!(engines.iter().map(Engine::turns).sum::<usize>(), n + 1, "{status}");
    }
    assert_eq!(balancer.routing().await.total("failed_over"), 0);
}

/// Replayed after both kinds of failure: before a connection, and after the whole body was sent.
#[tokio::test]
async fn the_next_replica_gets_the_whole_body() {
    let mut engines = engines::<3>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    engines[0].refuse();
    engines[1].answers(|_| error("503 Service Unavailable"));
    for (n, chunks) in [None, Some(9973)].into_iter().enumerate() {
        let text: String = (0..700_000).map(|i| format!("{i:07}")).collect();
        let mut ask = Ask::chat("m", &text).session(&format!("conversation-{n}"));
        ask.chunks_of = chunks;
        let answer = balancer.ask(&ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(engines[2].last().body == ask.body, "the body differs");
    }
}

#[tokio::test]
async fn nothing_is_tried_again_once_an_answer_began() {
    let first_event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Do\"}}]}\n\n";
    let deaths = [
        (
            "after an event",
            Answer::new().send(answer::stream_head()).send(answer::chunk(first_event.as_bytes())).close(),
        ),
        ("within a length", Answer::new().send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\":").close()),
        ("with a reset", Answer::new().send(answer::stream_head()).send(answer::chunk(first_event.as_bytes())).reset()),
    ];
    for (what, death) in deaths {
        let engines = engines::<2>().await;
        engines.iter().for_each(|engine| {
            let death = death.clone();
            engine.answers(move |_| death.clone());
        });
        let balancer = Balancer::start(one_model(&engines, json!({}))).await;
        let mut client = balancer.client().await;
        client.send(&ask("conversation-a").streamed()).await;
        // What was sent may come, and then the answer ends, well or cut; it never starts anew.
        within("the end", async {
            if let Ok(Some(head)) = client.wire.head().await
                && let Ok(Some(framing)) = head.framing()
            {
                let _ = client.wire.body(framing).await;
            }
        })
        .await;
        assert_eq!(engines.iter().map(Engine::turns).sum::<usize>(), 1, "died {what}");
        let routing = balancer.idle().await;
        assert_eq!((routing.total("failed_over"), routing.decided()), (0, 1), "died {what}");
    }
}

/// An engine that answers something broken has done the work: it is not asked, nor is another, to do it again.
#[tokio::test]
async fn a_broken_answer_is_not_tried_again() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let answers = [
        "HTTP/1.1 200 OK\r\nx y: z\r\nContent-Length: 6\r\n\r\nsecret",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nsecret",
    ];
    for (asked, answer) in answers.into_iter().enumerate() {
        engines.iter().for_each(|engine| engine.answers(move |_| Answer::new().send(answer).close()));
        let response = balancer.ask(&Ask::chat("m", "Hello.")).await;
        assert_eq!((response.status, response.header("x-homing-error")), (502, Some("replica_failed")), "{answer}");
        let turns: usize = engines.iter().map(Engine::turns).sum();
        assert_eq!(turns, asked + 1, "{answer}");
    }
    assert!(!balancer.output.lines().iter().any(|line| line.contains("secret")), "an answer stands in the log");
}
