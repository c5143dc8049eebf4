//! Large bodies arrive byte for byte, however they are framed, on every way in and out.

use std::sync::Arc;

use serde_json::json;

use crate::harness::engine::Speaks;
use crate::harness::wire::Framing;
use crate::harness::*;

const SIZE: usize = 40_000_000;

/// JSON of that size whose model stands at its end.
fn large() -> Vec<u8> {
    let (before, after) = (&br#"{"messages":[{"role":"user","content":""#[..], &br#""}],"model":"m"}"#[..]);
    let filler = (0..SIZE - before.len() - after.len()).map(|i| b'a' + (i % 23) as u8);
    before.iter().copied().chain(filler).chain(after.iter().copied()).collect()
}

/// With a length, and in pieces that do not align with anything.
fn asks(body: &[u8]) -> [Ask; 2] {
    let ask = Ask::new("POST", "/v1/chat/completions").header("content-type", "application/json").body(body);
    [ask.clone(), ask.chunked(100_003)]
}

/// An engine of each kind, with what its entry says besides its URL.
async fn engines(pki: &Pki) -> Vec<Engine> {
    let pair = pki.issue("engine", "127.0.0.1");
    let speaks = [
        Speaks::default(),
        Speaks { tls: None, http2: true },
        Speaks { tls: Some(pair.acceptor(&["http/1.1"])), http2: false },
        Speaks { tls: Some(pair.acceptor(&["h2"])), http2: true },
    ];
    let mut engines = Vec::new();
    for speaks in speaks {
        engines.push(Engine::speaking(speaks, 1).await);
    }
    engines
}

#[tokio::test]
async fn forty_megabytes_arrive_in_every_framing() {
    let pki = Arc::new(Pki::new());
    let body = large();
    for engine in engines(&pki).await {
        let mut replica = json!({"url": engine.url(), "http2": engine.speaks.http2});
        if engine.speaks.tls.is_some() {
            replica["tls"] = json!({"ca": pki.ca()});
        }
        let balancer = Balancer::start(json!({
            "listen": [
                {"address": "127.0.0.1:0"},
                {"address": "127.0.0.2:0", "tls": pki.issue("balancer", "balancer.test").settings()},
            ],
            "models": [{"name": "m", "replicas": [replica]}],
        }))
        .await;
        let secure = balancer.output.line("address", |line| balancer::address(line, "listening on https://")).await;
        let shaken = async |protocol| {
            pki.client().alpn(&[protocol]).connect(secure, "balancer.test").await.expect("a handshake")
        };
        let (mut h1, mut h2) = (balancer.client().await, H2Client::connect(balancer.listen).await);
        let (mut h1_secure, mut h2_secure) =
            (Client::over(shaken("http/1.1").await), H2Client::over(shaken("h2").await).await);
        for ask in asks(&body) {
            for way in 0..4 {
                let answer = match way {
                    0 => h1.ask(&ask).await,
                    1 => h2.ask(&ask).await,
                    2 => h1_secure.ask(&ask).await,
                    _ => h2_secure.ask(&ask).await,
                };
                let what = format!("way {way}, pieces {:?}, to {}", ask.chunks_of, engine.url());
                answer.from(&engine);
                let seen = engine.last();
                assert!(seen.body == body, "{what}: the body differs");
                assert_eq!(seen.framing, Some(Framing::Length(SIZE)), "{what}");
                engine.forget();
            }
        }
        balancer.metric_becomes("homing_buffered_bytes", &[], 0.0).await;
    }
}
