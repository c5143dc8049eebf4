//! HTTP/2 on the way in, with TLS and without.

use serde_json::json;

use crate::harness::*;

#[tokio::test]
async fn it_is_spoken_at_once_or_agreed_on() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let mut config = one_model([&engine], json!({}));
    config["listen"] = json!([
        {"address": "127.0.0.1:0"},
        {"address": "127.0.0.2:0", "tls": pki.issue("a", "balancer.test").settings()},
    ]);
    let balancer = Balancer::start(config).await;
    let secure = balancer.output.line("address", |line| balancer::address(line, "listening on https://")).await;
    let stream = pki.client().alpn(&["h2", "http/1.1"]).connect(secure, "balancer.test").await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    for mut client in [H2Client::connect(balancer.listen).await, H2Client::over(stream).await] {
        for ask in [Ask::chat("m", "Hello."), Ask::messages("m", "Hello.").streamed(), Ask::get("/health")] {
            let answer = client.ask(&ask).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    assert_eq!(engine.turns(), 4);
}
