//! TLS on the way in.

use rustls::ProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::pki::Pair;
use crate::harness::*;

pub const NAME: &str = "balancer.test";

/// A configuration of one model behind one listener with TLS.
pub fn secure(engine: &Engine, pair: &Pair) -> Value {
    let mut config = one_model([engine], json!({}));
    config["listen"] = json!([{"address": "127.0.0.1:0", "tls": pair.settings()}]);
    config
}

#[tokio::test]
async fn both_versions_are_spoken() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let balancer = Balancer::start(secure(&engine, &pki.issue("a", NAME))).await;
    for (offered, spoken) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let stream = pki.client().version(offered).connect(balancer.listen, NAME).await.expect("a handshake");
        assert_eq!(stream.get_ref().1.protocol_version(), Some(spoken));
        let mut client = Client::over(stream);
        for ask in [Ask::chat("m", "Hello."), Ask::messages("m", "Hello.").streamed()] {
            assert_eq!(client.ask(&ask).await.status, 200, "{spoken:?}");
        }
    }
    balancer.metric_becomes("homing_tls_handshakes_total", &[("outcome", "ok")], 2.0).await;
}
