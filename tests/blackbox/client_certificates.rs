//! Listeners that ask their clients for a certificate.

use std::io::Result;

use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::pki::{Pair, TlsClient};
use crate::harness::*;

const NAME: &str = "balancer.test";

/// A configuration of one model behind a listener that wants certificates of `clients`.
fn guarded(engine: &Engine, pair: &Pair, clients: &Pki) -> Value {
    let mut config = one_model([engine], json!({}));
    let mut tls = pair.settings();
    tls["client_ca"] = json!(clients.ca());
    config["listen"] = json!([{"address": "127.0.0.1:0", "tls": tls}]);
    config
}

async fn turn(balancer: &Balancer, tls: &TlsClient) -> Response {
    Client::over(tls.connect(balancer.listen, NAME).await.expect("a handshake")).ask(&Ask::chat("m", "Hello.")).await
}

/// What a client is told that is turned away: with TLS 1.3 it believes itself connected until it reads.
async fn refusal(balancer: &Balancer, tls: &TlsClient) -> String {
    let refused: Result<usize> = async {
        let mut stream = tls.connect(balancer.listen, NAME).await?;
        stream.write_all(&Ask::get("/v1/models").head_bytes()).await?;
        within("an alert", stream.read(&mut [0; 100])).await
    }
    .await;
    refused.expect_err("no answer").to_string()
}

#[tokio::test]
async fn only_who_shows_a_certificate_of_the_authority_comes_in() {
    let (pki, clients, engine) = (Pki::new(), Pki::new(), Engine::start().await);
    let balancer = Balancer::start(guarded(&engine, &pki.issue("a", NAME), &clients)).await;
    let (own, others) = (clients.issue("client", "client.test"), pki.issue("client", "client.test"));
    for (n, version) in [&TLS12, &TLS13].into_iter().enumerate() {
        let client = pki.client().version(version);
        turn(&balancer, &client.clone().showing(&own)).await.from(&engine);
        let none = refusal(&balancer, &client).await;
        assert!(none.contains("CertificateRequired") || none.contains("HandshakeFailure"), "{none}");
        let foreign = refusal(&balancer, &client.showing(&others)).await;
        assert!(foreign.contains("UnknownCA") || foreign.contains("DecryptError"), "{foreign}");
        for (outcome, count) in [("ok", n + 1), ("client_refused", 2 * (n + 1))] {
            balancer.metric_becomes("homing_tls_handshakes_total", &[("outcome", outcome)], count as f64).await;
        }
    }
    assert_eq!(engine.turns(), 2);
    let said = balancer.output.lines().join("\n");
    assert!(!said.contains("client.test"), "a client's name is logged: {said}");
}

#[tokio::test]
async fn the_authority_changes_with_a_reload() {
    let (pki, first, second) = (Pki::new(), Pki::new(), Pki::new());
    let (engine, pair) = (Engine::start().await, pki.issue("a", NAME));
    let mut open = guarded(&engine, &pair, &first);
    open["listen"][0]["tls"] = pair.settings();
    let balancer = Balancer::start(open.clone()).await;
    let showing = |by: &Pki| pki.client().showing(&by.issue("client", "client.test"));
    let mut kept = Client::over(pki.client().connect(balancer.listen, NAME).await.expect("a handshake"));
    kept.ask(&Ask::chat("m", "Hello.")).await.from(&engine);

    assert_eq!(balancer.reload(&guarded(&engine, &pair, &first)).await.status, 200);
    turn(&balancer, &showing(&first)).await.from(&engine);
    refusal(&balancer, &pki.client()).await;
    // Who is in stays in.
    kept.ask(&Ask::chat("m", "Hello.")).await.from(&engine);

    let guarded_by_second = guarded(&engine, &pair, &second);
    assert_eq!(balancer.reload(&guarded_by_second).await.status, 200);
    turn(&balancer, &showing(&second)).await.from(&engine);
    refusal(&balancer, &showing(&first)).await;

    let authority = std::fs::read(second.ca()).expect("the authority");
    for broken in [&b"no certificate"[..], &authority[..authority.len() / 2]] {
        std::fs::write(second.ca(), broken).expect("it is written");
        let answer = balancer.reload(&guarded_by_second).await;
        assert!(
            answer.text().contains("listen[0].tls.client_ca: expected a file of certificates"),
            "{}",
            answer.text()
        );
        refusal(&balancer, &pki.client()).await;
    }
    assert_eq!(balancer.reload(&open).await.status, 200);
    turn(&balancer, &pki.client()).await.from(&engine);
}
