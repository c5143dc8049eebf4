//! Engines behind https, and engines that speak HTTP/2.

use serde_json::{Value, json};

use crate::harness::engine::Speaks;
use crate::harness::vllm::{self, USAGE};
use crate::harness::*;

/// A configuration of one model, `m`, with these settings for its only replica.
fn config(engine: &Engine, more: Value) -> Value {
    let mut replica = json!({"url": engine.url()});
    vllm::merge(&mut replica, &more);
    json!({"models": [{"name": "m", "replicas": [replica]}]})
}

async fn over_tls(pki: &Pki, name: &str, alpn: &[&str]) -> Engine {
    let acceptor = pki.issue(name, name).acceptor(alpn);
    Engine::speaking(Speaks { tls: Some(acceptor), http2: alpn.contains(&"h2") }, 1).await
}

fn ask() -> Ask {
    Ask::chat("m", "Hello.")
}

/// Which version the engine was last spoken to.
fn version(engine: &Engine) -> String {
    engine.last().head.start.rsplit(' ').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_certificate_of_the_given_authority_is_believed() {
    let pki = Pki::new();
    for (name, sni) in [("127.0.0.1", Value::Null), ("engine.test", json!("engine.test"))] {
        let engine = over_tls(&pki, name, &["http/1.1"]).await;
        let mut tls = json!({"ca": pki.ca()});
        if !sni.is_null() {
            tls["sni"] = sni;
        }
        // For the one engine, or for all of its model.
        let mut of_model = config(&engine, json!({}));
        of_model["models"][0]["tls"] = tls.clone();
        for config in [config(&engine, json!({"tls": tls})), of_model] {
            let balancer = Balancer::start(config).await;
            balancer.scraped().await;
            balancer.ask(&ask()).await.is("placed").from(&engine);
            balancer.ask(&ask().streamed()).await.from(&engine);
            let models = balancer.ask(&Ask::get("/v1/models")).await;
            assert_eq!(models.json()["data"][0]["id"], "m", "{}", models.text());
            assert_eq!(version(&engine), "HTTP/1.1");
        }
    }
}

#[tokio::test]
async fn any_other_certificate_is_not() {
    let (pki, other) = (Pki::new(), Pki::new());
    let engine = over_tls(&pki, "127.0.0.1", &["http/1.1"]).await;
    let cases = [
        ("another authority", json!({"tls": {"ca": other.ca()}}), "UnknownIssuer"),
        ("the system's authorities", json!({}), "UnknownIssuer"),
        ("another name", json!({"tls": {"ca": pki.ca(), "sni": "engine.test"}}), "not valid for name"),
    ];
    for (what, more, why) in cases {
        let balancer = Balancer::start(config(&engine, more)).await;
        let answer = balancer.ask(&ask()).await;
        assert_eq!((answer.status, answer.header("x-homing-error")), (503, Some("no_replica")), "{what}");
        let out = |line: &str| (line.contains("is out") && line.contains(why)).then_some(());
        balancer.output.line(&format!("reason ({what})"), out).await;
    }
    assert_eq!(engine.turns(), 0);
}

#[tokio::test]
async fn what_is_believed_can_be_changed() {
    let (pki, other) = (Pki::new(), Pki::new());
    let engine = over_tls(&pki, "127.0.0.1", &["http/1.1"]).await;
    let believes = |pki: &Pki| config(&engine, json!({"tls": {"ca": pki.ca()}}));
    let balancer = Balancer::start(believes(&pki)).await;
    balancer.ask(&ask().session("session-1")).await.is("placed");
    assert_eq!(balancer.reload(&believes(&other)).await.status, 200);
    // No connection made in the old belief is used.
    assert_eq!(balancer.ask(&ask().session("session-1")).await.status, 503);
    assert_eq!(balancer.reload(&believes(&pki)).await.status, 200);
    let back = async || Some(balancer.ask(&ask().session("session-1")).await).filter(|answer| answer.status == 200);
    // It is the same replica, and the conversation still lives there.
    until("an answer", back).await.is("sticky");
}

/// At once without TLS, by agreement with it; and an engine that agrees to less gets less.
#[tokio::test]
async fn http2_is_spoken_where_it_is_switched_on() {
    let pki = Pki::new();
    let tls = json!({"ca": pki.ca()});
    let cases = [
        (Engine::speaking(Speaks { tls: None, http2: true }, 1).await, json!({"http2": "on"}), "HTTP/2"),
        (over_tls(&pki, "127.0.0.1", &["h2", "http/1.1"]).await, json!({"http2": "on", "tls": tls}), "HTTP/2"),
        (over_tls(&pki, "127.0.0.1", &["http/1.1"]).await, json!({"http2": "on", "tls": tls}), "HTTP/1.1"),
        (over_tls(&pki, "127.0.0.1", &["h2", "http/1.1"]).await, json!({"tls": tls}), "HTTP/1.1"),
    ];
    for (engine, more, spoken) in cases {
        let balancer = Balancer::start(config(&engine, more.clone())).await;
        balancer.scraped().await;
        let (mut h1, mut h2) = (balancer.client().await, H2Client::connect(balancer.listen).await);
        for streamed in [false, true] {
            let ask = if streamed { ask().streamed() } else { ask() };
            let ask = ask.header("te", "trailers").header("connection", "x-hop").header("x-hop", "1");
            let answers = [h1.ask(&ask).await, {
                let mut ask = ask.clone();
                ask.headers.retain(|(name, _)| name != "connection" && name != "x-hop");
                h2.ask(&ask).await
            }];
            for answer in answers {
                answer.from(&engine);
                assert_eq!(answer.text().contains("[DONE]"), streamed, "{more}: {}", answer.text());
            }
            assert_eq!(version(&engine), spoken, "{more}");
        }
        for request in engine.requests() {
            for name in ["connection", "te", "x-hop", "transfer-encoding", "keep-alive"] {
                assert_eq!(request.header(name).filter(|_| spoken == "HTTP/2"), None, "{name}, {more}");
            }
            if spoken == "HTTP/2" {
                assert_eq!(request.header(":authority"), Some(engine.name().as_str()));
                assert_eq!(request.header("host"), None);
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_resets_the_stream() {
    let engine = Engine::speaking(Speaks { tls: None, http2: true }, 1).await;
    let balancer = Balancer::start(config(&engine, json!({"http2": "on"}))).await;
    engine.holds(&Gate::shut());
    let mut h2 = H2Client::connect(balancer.listen).await;
    for (n, streamed) in [false, true].into_iter().enumerate() {
        let ask = if streamed { ask().streamed() } else { ask() };
        let mut client = balancer.client().await;
        client.send(&ask).await;
        let mut exchange = h2.send(&ask).await;
        engine.saw_turns(2 * n + 2).await;
        if streamed {
            client.head().await;
            exchange.head().await.expect("an answer");
        }
        drop(client);
        engine.saw("an ended request", |seen| seen.left == 2 * n + 1).await;
        exchange.reset();
        engine.saw("an ended request", |seen| seen.left == 2 * n + 2).await;
    }
    balancer.idle().await;
}

/// Another is tried, as with HTTP/1.1.
#[tokio::test]
async fn one_that_is_gone_or_full_is_left() {
    let mut gone = Engine::speaking(Speaks { tls: None, http2: true }, 1).await;
    let stays = Engine::speaking(Speaks { tls: None, http2: true }, 1).await;
    let mut config = one_model([&gone, &stays], json!({}));
    config["models"][0]["http2"] = json!("on");
    let balancer = Balancer::start(config).await;
    let home = |n: usize| ask().session(&format!("conversation-{n}"));
    let mut at_gone = None;
    for n in 0..2 {
        let answer = balancer.ask(&home(n)).await;
        at_gone = at_gone.or((answer.replica() == gone.name()).then_some(n));
    }
    let conversation = at_gone.expect("new conversations are spread");
    gone.answers(|_| vllm::error("503 Service Unavailable"));
    balancer.ask(&home(conversation)).await.from(&stays);
    gone.answers(|request| vllm::turn(request, USAGE));
    // Its connections are cut, and no new ones taken.
    gone.refuse();
    let sent: Vec<Ask> = (0..4).map(|n| ask().session(&format!("another-{n}"))).collect();
    for answer in ask_all(balancer.listen, sent) {
        answer.await.expect("an answer").from(&stays);
    }
}
