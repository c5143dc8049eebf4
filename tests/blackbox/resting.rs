//! Requests in flight that their engine has nothing to do for: none of them makes an engine that does nothing one that hangs.

use serde_json::json;

use crate::harness::*;

const SWITCHES: &str =
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: x\r\n\r\n";

/// More than all the sockets on the way from an engine to a client take.
const ANSWER: usize = 64 << 20;

/// Two models of one engine each: what is in flight at the first rests, and at the second somebody waits in vain.
struct Both {
    engines: [Engine; 2],
    balancer: Balancer,
}

impl Both {
    async fn start() -> Both {
        let engines = engines::<2>().await;
        let hang = json!({"timeouts": {"hang": "1 s"}});
        let models = [model("rests", [&engines[0]], hang.clone()), model("waits", [&engines[1]], hang)];
        let balancer = Balancer::start(json!({"models": models})).await;
        let gate = Gate::shut();
        engines[1].answers(move |request| vllm::turn(request, vllm::USAGE).after(&gate));
        Both { engines, balancer }
    }

    /// What rests at the first engine has begun before: had it counted as work, that engine would hang as the second does.
    async fn only_the_second_hangs(&self) {
        let Both { engines, balancer } = self;
        let mut waits = balancer.client().await;
        waits.send(&Ask::chat("waits", "Hello.")).await;
        balancer.metric_becomes("homing_hangs_total", &[("model", "waits")], 1.0).await;
        let checked = engines[0].probes();
        engines[0].saw("two more checks", |seen| seen.probes.len() > checked + 4).await;
        let metrics = balancer.metrics().await;
        assert_eq!(
            metrics.sum("homing_replica_in_flight", &[("replica", &engines[0].name())]),
            1.0,
            "it rests there still"
        );
        assert_eq!(metrics.sum("homing_hangs_total", &[("model", "rests")]), 0.0);
        assert_eq!(metrics.sum("homing_replica_up", &[("replica", &engines[0].name())]), 1.0);
    }
}

#[tokio::test]
async fn a_websocket_on_which_nobody_speaks() {
    let both = Both::start().await;
    let silent = Gate::shut();
    both.engines[0].answers(move |_| Answer::new().send(SWITCHES).wait(&silent).close());
    let mut client = both.balancer.client().await;
    let handshake = Ask::get("/v1/realtime?model=rests")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    client.send(&handshake).await;
    assert_eq!(client::status(&client.head().await), 101);
    both.only_the_second_hangs().await;
}

#[tokio::test]
async fn an_answer_that_its_client_does_not_take() {
    for streamed in [false, true] {
        let both = Both::start().await;
        let text = "x".repeat(1 << 20);
        let event = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
        both.engines[0].answers(move |_| match streamed {
            true => Answer::stream(&vec![event.clone(); ANSWER >> 20], None),
            false => Answer::whole("200 OK", &[("content-type", "application/json")], &vec![b' '; ANSWER]),
        });
        let mut client = both.balancer.client().await;
        let ask = Ask::chat("rests", "Hello.");
        client.send(&if streamed { ask.streamed() } else { ask }).await;
        both.engines[0].saw_turns(1).await;
        both.only_the_second_hangs().await;
    }
}

/// Beside them, one who waits for the engine counts.
#[tokio::test]
async fn an_engine_that_has_something_to_do_beside_them_is_noticed() {
    let both = Both::start().await;
    let silent = Gate::shut();
    let waits = silent.clone();
    both.engines[0].answers(move |request| match request.path() {
        "/v1/realtime" => Answer::new().send(SWITCHES).wait(&silent).close(),
        _ => vllm::turn(request, vllm::USAGE).after(&waits),
    });
    let mut websocket = both.balancer.client().await;
    let handshake = Ask::get("/v1/realtime?model=rests").header("connection", "Upgrade").header("upgrade", "websocket");
    websocket.send(&handshake).await;
    assert_eq!(client::status(&websocket.head().await), 101);
    let mut client = both.balancer.client().await;
    client.send(&Ask::chat("rests", "Hello.")).await;
    both.balancer.metric_becomes("homing_hangs_total", &[("model", "rests")], 1.0).await;
}
