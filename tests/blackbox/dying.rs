//! An engine that dies says so within a stream of status 200. Before any content that is as good as a 503: another replica is
//! asked, and the client sees nothing of it.

use serde_json::json;

use crate::harness::engine::{Request, Speaks};
use crate::harness::*;

/// What vLLM 0.32 streams on each route before it has generated anything, and how it says there that it failed.
struct Route {
    path: &'static str,
    opening: &'static [&'static str],
    content: &'static str,
    error: &'static str,
}

const DEAD: &str = "data: {\"error\": {\"message\": \"EngineCore encountered an issue.\", \"type\": \"InternalServerError\", \
                    \"param\": null, \"code\": 500}}\n\n";

const ROUTES: [Route; 4] = [
    Route {
        path: "/v1/chat/completions",
        opening: &[
            ": keep-alive\n\n",
            "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\
             \"logprobs\":null,\"finish_reason\":null}],\"prompt_token_ids\":null}\n\n",
        ],
        content: "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Do\"},\"finish_reason\":null}]}\n\n",
        error: DEAD,
    },
    Route {
        path: "/v1/completions",
        opening: &[],
        content: "data: {\"choices\":[{\"index\":0,\"text\":\"Do\",\"finish_reason\":null}]}\n\n",
        error: DEAD,
    },
    Route {
        path: "/v1/responses",
        opening: &[
            "event: response.created\ndata: {\"response\":{\"id\":\"r\",\"error\":null,\"output\":[]},\"type\":\"response.created\"}\n\n",
            "event: response.in_progress\ndata: {\"response\":{\"id\":\"r\"},\"type\":\"response.in_progress\"}\n\n",
        ],
        content: "event: response.output_text.delta\ndata: {\"delta\":\"Do\",\"type\":\"response.output_text.delta\"}\n\n",
        error: "event: response.failed\ndata: {\"response\":{\"id\":\"r\",\"error\":{\"code\":\"server_error\"}},\
                \"type\":\"response.failed\"}\n\n",
    },
    Route {
        path: "/v1/messages",
        opening: &[
            "event: ping\ndata: {\"type\": \"ping\"}\n\n",
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"a\",\"content\":[]}}\n\n",
        ],
        content: "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\
                  \"text\":\"Do\"},\"index\":0}\n\n",
        // The Anthropic side of vLLM reads the error of the OpenAI side as a chunk, and says that this failed.
        error: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"2 validation errors \
                for ChatCompletionStreamResponse\"}}\n\n",
    },
];

impl Route {
    /// The stream up to its error; with content, if `said`. Each event comes as a piece of its own.
    fn failing(&self, said: bool) -> Answer {
        let events = self.opening.iter().copied().chain(said.then_some(self.content)).chain([self.error]);
        let answer = events.fold(Answer::new().send(answer::stream_head()), |answer, event| {
            answer.send(answer::chunk(event.as_bytes()))
        });
        answer.send(answer::chunk(b"data: [DONE]\n\n")).send("0\r\n\r\n")
    }

    fn ask(&self, id: &str) -> Ask {
        Ask::turn(self.path, "m", "Hello.").session(id).streamed()
    }
}

/// Two engines, over either version of HTTP.
async fn pair(http2: bool) -> ([Engine; 2], Balancer) {
    let speaks = Speaks { http2, ..Speaks::default() };
    let engines = [Engine::speaking(speaks.clone(), 1).await, Engine::speaking(speaks, 1).await];
    // No replica is left alone for its failures.
    let more = json!({"http2": http2, "recovery": {"failures": 1000}});
    let balancer = Balancer::start(one_model(&engines, more)).await;
    (engines, balancer)
}

#[tokio::test]
async fn an_error_before_content_is_asked_elsewhere() {
    for http2 in [false, true] {
        let (engines, balancer) = pair(http2).await;
        for route in &ROUTES {
            for over_h2 in [false, true] {
                let failing = route.failing(false);
                engines[0].answers(move |_| failing.clone());
                let before = engines[0].turns();
                // New conversations, until one of them is placed on the engine that fails.
                for n in 0..20 {
                    if engines[0].turns() > before {
                        break;
                    }
                    let ask = route.ask(&format!("{}-{over_h2}-{n}", route.path.replace('/', ".")));
                    let answer = match over_h2 {
                        true => H2Client::connect(balancer.listen).await.ask(&ask).await,
                        false => balancer.ask(&ask).await,
                    };
                    answer.is("placed").from(&engines[1]);
                    assert!(!answer.text().contains("rror"), "{}: {}", route.path, answer.text());
                    assert!(answer.text().contains("Do"), "{}: {}", route.path, answer.text());
                }
                assert!(engines[0].turns() > before, "{}: the failing engine was never tried", route.path);
            }
        }
        let failed_over = balancer.idle().await.total("failed_over") as f64;
        let retries = balancer.metrics().await.sum("homing_retries_total", &[("reason", "error_event")]);
        assert_eq!(retries, failed_over);
    }
}

/// Nothing is held back or changed once content has come.
#[tokio::test]
async fn an_error_after_content_reaches_the_client_and_is_counted() {
    for http2 in [false, true] {
        let (engines, balancer) = pair(http2).await;
        for (n, route) in ROUTES.iter().enumerate() {
            engines.iter().for_each(|engine| {
                let failing = route.failing(true);
                engine.answers(move |_| failing.clone());
            });
            let answer = balancer.ask(&route.ask("conversation-a")).await;
            assert_eq!(answer.status, 200);
            let expected = [route.opening.concat().as_str(), route.content, route.error, "data: [DONE]\n\n"].concat();
            assert_eq!(answer.text(), expected);
            balancer.metric_becomes("homing_stream_errors_total", &[("model", "m")], n as f64 + 1.0).await;
        }
        assert_eq!(balancer.idle().await.total("failed_over"), 0);
    }
}

/// A vLLM whose core has died answers 500 to what it had in flight, and its health says 503 from then on.
#[tokio::test]
async fn a_500_of_an_engine_that_has_died_is_asked_elsewhere() {
    for http2 in [false, true] {
        let (engines, balancer) = pair(http2).await;
        engines[0].answers(|_| vllm::error("500 Internal Server Error"));
        let ask = |n: usize| Ask::chat("m", "Hello.").session(&format!("conversation-{n}"));
        let first = [balancer.ask(&ask(0)).await.status, balancer.ask(&ask(1)).await.status];
        assert!(first.contains(&500), "a request that fails at an engine that is well is not asked again: {first:?}");
        let dead = |request: &Request| (request.path() == "/health").then(|| vllm::error("503 Service Unavailable"));
        engines[0].answers_probes(dead);
        for n in 0..4 {
            balancer.ask(&ask(n)).await.from(&engines[1]);
        }
        // By now it may be out, since its checks fail.
        assert!(balancer.metrics().await.sum("homing_retries_total", &[]) <= 4.0);
    }
}

/// It may be back before it could be asked how it is.
#[tokio::test]
async fn a_500_of_an_engine_known_to_be_out_is_asked_elsewhere() {
    let engines: [Engine; 2] = engines().await;
    let never = Gate::shut();
    for engine in &engines {
        let never = never.clone();
        engine.answers_probes(move |request| (request.path() == "/metrics").then(|| Answer::new().after(&never)));
    }
    engines[0].answers(|_| vllm::error("500 Internal Server Error"));
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    balancer.routing_when("no replica up", |routing| engines.iter().all(|engine| routing.state(engine) == "out")).await;
    for n in 0..4 {
        balancer.ask(&Ask::chat("m", "Hello.").session(&format!("conversation-{n}"))).await.from(&engines[1]);
    }
    assert!(engines[0].turns() > 0);
}

/// With no other replica left, the client reads what the engine said.
#[tokio::test]
async fn the_error_of_a_lone_engine_is_passed_on() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for route in &ROUTES {
        let failing = route.failing(false);
        engine.answers(move |_| failing.clone());
        let answer = balancer.ask(&route.ask("conversation-a")).await;
        assert_eq!((answer.status, answer.text().contains(route.error)), (200, true), "{}", answer.text());
    }
    assert_eq!(balancer.metrics().await.sum("homing_stream_errors_total", &[]), ROUTES.len() as f64);
}

/// The whole body goes to the next replica, also where it is larger than what Pingora keeps of one.
#[tokio::test]
async fn the_next_replica_gets_the_whole_request() {
    for http2 in [false, true] {
        let (engines, balancer) = pair(http2).await;
        let route = &ROUTES[0];
        let failing = route.failing(false);
        engines[0].answers(move |_| failing.clone());
        let text = "0123456789".repeat(70_000);
        for n in 0..2 {
            let ask = Ask::chat("m", &text).session(&format!("conversation-{n}")).streamed();
            balancer.ask(&ask).await.is("placed").from(&engines[1]);
            assert!(engines[1].last().body == ask.body, "the body differs");
        }
        assert_eq!(engines[0].turns(), 1);
    }
}

/// An engine that ends within its opening has said nothing either.
#[tokio::test]
async fn a_stream_cut_before_content_is_asked_elsewhere() {
    for http2 in [false, true] {
        let (engines, balancer) = pair(http2).await;
        for (n, route) in ROUTES.iter().enumerate() {
            let opened = route.opening.iter().fold(Answer::new().send(answer::stream_head()), |answer, event| {
                answer.send(answer::chunk(event.as_bytes()))
            });
            let cut = if n % 2 == 0 { opened.close() } else { opened.reset() };
            engines[0].answers(move |_| cut.clone());
            for turn in 0..2 {
                balancer.ask(&route.ask(&format!("conversation-{n}-{turn}"))).await.is("placed").from(&engines[1]);
            }
        }
        assert!(balancer.idle().await.total("failed_over") >= ROUTES.len() as u64);
    }
}

/// One that ends in good order without an event has said nothing, whatever its framing says.
#[tokio::test]
async fn a_stream_that_ends_without_an_event_is_asked_elsewhere() {
    for http2 in [false, true] {
        let (engines, balancer) = pair(http2).await;
        for (n, route) in ROUTES.iter().enumerate() {
            let opened = route.opening.iter().fold(Answer::new().send(answer::stream_head()), |answer, event| {
                answer.send(answer::chunk(event.as_bytes()))
            });
            let bare = Answer::whole("200 OK", &[("content-type", "text/event-stream")], b"");
            let unended =
                Answer::new().send(answer::stream_head()).send(answer::chunk(route.content.trim_end().as_bytes()));
            for (m, empty) in [opened.send("0\r\n\r\n"), bare, unended.send("0\r\n\r\n")].into_iter().enumerate() {
                engines[0].answers(move |_| empty.clone());
                for turn in 0..2 {
                    let ask = route.ask(&format!("conversation-{n}-{m}-{turn}"));
                    let answer = balancer.ask(&ask).await;
                    answer.is("placed").from(&engines[1]);
                    assert!(answer.text().contains("Do"), "{}: {}", route.path, answer.text());
                }
            }
        }
        let failed_over = balancer.idle().await.total("failed_over");
        assert!(failed_over >= 3 * ROUTES.len() as u64, "{failed_over}");
        let retries = balancer.metrics().await.sum("homing_retries_total", &[("reason", "empty")]);
        assert_eq!(retries, failed_over as f64);
    }
}

/// With no other replica left, the client is told so: an empty answer would look like one that is done.
#[tokio::test]
async fn an_empty_stream_of_a_lone_engine_is_an_error() {
    let engine = Engine::start().await;
    let more = json!({"timeouts": {"hang": "1 s"}, "recovery": {"failures": 1000}});
    let balancer = Balancer::start(one_model([&engine], more)).await;
    let empty = Answer::new().send(answer::stream_head()).send("0\r\n\r\n");
    engine.answers(move |_| empty.clone());
    for route in &ROUTES {
        let over_h1 = balancer.ask(&route.ask("conversation-a")).await;
        let over_h2 = H2Client::connect(balancer.listen).await.ask(&route.ask("conversation-a")).await;
        for answer in [over_h1, over_h2] {
            assert_eq!((answer.status, answer.header("x-homing-error")), (502, Some("replica_failed")));
        }
    }
    // One that was held for as long as that goes has its header out: the error comes as its event.
    let gate = Gate::shut();
    let late = Answer::new().send(answer::stream_head()).wait(&gate).send("0\r\n\r\n");
    engine.answers(move |_| late.clone());
    let mut client = balancer.client().await;
    client.send(&ROUTES[0].ask("conversation-a")).await;
    let head = client.head().await;
    gate.open();
    let text = client.rest(head, "POST").await.text();
    assert!(text.starts_with("\n\ndata: ") && text.contains("replica_failed"), "{text}");
    balancer.metric_becomes("homing_requests_total", &[("status", "broken")], 1.0).await;
}

/// A packed stream cannot be read, so it is not known to be empty.
#[tokio::test]
async fn a_packed_stream_passes_as_it_is() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for body in [&b"\x1f\x8b packed"[..], b""] {
        let headers = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
        let packed = Answer::whole("200 OK", &headers, body);
        engine.answers(move |_| packed.clone());
        let answer = balancer.ask(&ROUTES[0].ask("conversation-a")).await;
        assert_eq!((answer.status, &answer.body[..]), (200, body));
    }
}

/// A silent stream is not held for ever: its header comes, and what follows passes as it is.
#[tokio::test]
async fn a_header_is_not_held_for_ever() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({"timeouts": {"hang": "1 s"}}))).await;
    let gate = Gate::shut();
    let silent = Answer::new().send(answer::stream_head()).wait(&gate).send(answer::chunk(DEAD.as_bytes()));
    engine.answers(move |_| silent.clone().send("0\r\n\r\n"));
    let (mut h1, mut h2) = (balancer.client().await, H2Client::connect(balancer.listen).await);
    h1.send(&ROUTES[0].ask("conversation-a")).await;
    let mut exchange = h2.send(&ROUTES[0].ask("conversation-b")).await;
    let head = h1.head().await;
    exchange.head().await.expect("a header");
    gate.open();
    assert_eq!(h1.rest(head, "POST").await.text(), DEAD);
    assert_eq!(exchange.piece().await.expect("the rest").as_deref(), Some(DEAD.as_bytes()));
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "hold")], 2.0).await;
}
