//! TLS on the way in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::Signal;
use rustls::ProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::pki::{Pair, TlsClient};
use crate::harness::*;

const NAME: &str = "balancer.test";

/// A configuration of one model behind one listener with TLS.
fn secure(engine: &Engine, pair: &Pair) -> Value {
    let mut config = one_model([engine], json!({}));
    config["listen"] = json!([{"address": "127.0.0.1:0", "tls": pair.settings()}]);
    config
}

async fn client(balancer: &Balancer, tls: &TlsClient) -> Client {
    Client::over(tls.connect(balancer.listen, NAME).await.expect("a handshake"))
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
            client.ask(&ask).await.from(&engine);
        }
    }
    balancer.metric_becomes("homing_tls_handshakes_total", &[("outcome", "ok")], 2.0).await;
}

/// The hello of a client that speaks TLS 1.1 and nothing later.
fn old_hello() -> Vec<u8> {
    let length = |bytes: usize| (bytes as u16).to_be_bytes();
    // Signature schemes, groups, and formats of points, as the protocol asks for them.
    let extensions = [0, 13, 0, 4, 0, 2, 4, 1, 0, 10, 0, 4, 0, 2, 0, 0x1d, 0, 11, 0, 2, 1, 0];
    let ciphers = [0, 4, 0xc0, 0x13, 0, 0x2f];
    let hello = [&[3, 2][..], &[7; 32], &[0], &ciphers, &[1, 0], &length(extensions.len()), &extensions].concat();
    let message = [&[1, 0][..], &length(hello.len()), &hello].concat();
    [&[22, 3, 1][..], &length(message.len()), &message].concat()
}

#[tokio::test]
async fn older_versions_and_plain_text_are_refused() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let balancer = Balancer::start(secure(&engine, &pki.issue("a", NAME))).await;
    let plain = Ask::chat("m", "Hello.");
    let cases = [(old_hello(), Some([2, 70])), ([plain.head_bytes(), plain.body_bytes()].concat(), None)];
    for (n, (sent, alert)) in cases.into_iter().enumerate() {
        let mut stream = TcpStream::connect(balancer.listen).await.expect("it takes connections");
        stream.write_all(&sent).await.expect("it is sent");
        let mut said = Vec::new();
        // What was not read when it closed may reset the connection.
        let _ = within("the end", stream.read_to_end(&mut said)).await;
        assert_eq!(said.first(), Some(&21), "an alert: {said:?}");
        // Fatal, and for an old version: protocol_version.
        assert!(alert.is_none_or(|alert| said.ends_with(&alert)), "{said:?}");
        let failed = (n + 1) as f64;
        balancer.metric_becomes("homing_tls_handshakes_total", &[("outcome", "failed")], failed).await;
    }
    assert_eq!(engine.turns(), 0);
    let address = balancer.output.lines().join("\n");
    assert!(!address.contains("Downstream handshake error"), "a client's address is logged: {address}");
}

#[tokio::test]
async fn the_protocol_is_agreed_on() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let balancer = Balancer::start(secure(&engine, &pki.issue("a", NAME))).await;
    let cases: [(&[&str], Option<&str>); 4] = [
        (&["h2", "http/1.1"], Some("h2")),
        (&["http/1.1", "h2"], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ];
    for (offered, agreed) in cases {
        let stream = pki.client().alpn(offered).connect(balancer.listen, NAME).await.expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed.map(str::as_bytes), "{offered:?}");
        let answer = match agreed {
            Some("h2") => H2Client::over(stream).await.ask(&Ask::chat("m", "Hello.")).await,
            _ => Client::over(stream).ask(&Ask::chat("m", "Hello.")).await,
        };
        answer.from(&engine);
    }
    assert!(pki.client().alpn(&["spdy/3"]).connect(balancer.listen, NAME).await.is_err());
}

#[tokio::test]
async fn listeners_have_certificates_of_their_own() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let pairs = [pki.issue("a", "a.test"), pki.issue("b", "b.test")];
    let mut config = one_model([&engine], json!({}));
    config["listen"] = json!([
        {"address": "127.0.0.1:0", "tls": pairs[0].settings()},
        {"address": "127.0.0.2:0"},
        {"address": "127.0.0.3:0", "tls": pairs[1].settings()},
    ]);
    let balancer = Balancer::start(config).await;
    let address = |line: &str| balancer::address(line, "listening on https://");
    let addresses = balancer.output.count("addresses", 2, address).await;
    for (address, (pair, name)) in addresses.iter().zip(pairs.iter().zip(["a.test", "b.test"])) {
        let stream = pki.client().connect(*address, name).await.expect("a handshake");
        assert!(pair.is_shown_on(&stream), "{name}");
        Client::over(stream).ask(&Ask::chat("m", "Hello.")).await.from(&engine);
    }
    let plain = balancer.output.line("address", |line| balancer::address(line, "listening on http://")).await;
    client::ask_once(plain, &Ask::chat("m", "Hello.")).await.from(&engine);
}

const CALLERS: usize = 4;
const RENEWALS: usize = 12;

/// Every connection is made, served, and ended, whatever happens to the certificate meanwhile.
#[tokio::test]
async fn a_certificate_is_renewed_under_load() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let mut pair = pki.issue("current", NAME);
    let config = secure(&engine, &pair);
    let balancer = Balancer::start(config.clone()).await;
    let mut kept = client(&balancer, &pki.client()).await;
    let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let call = |tls: TlsClient, address: SocketAddr, over: Arc<AtomicBool>, asked: Arc<AtomicUsize>| async move {
        while !over.load(Ordering::SeqCst) {
            let mut client = Client::over(tls.connect(address, NAME).await.expect("a handshake"));
            assert_eq!(client.ask(&Ask::chat("m", "Hello.")).await.status, 200);
            asked.fetch_add(1, Ordering::SeqCst);
        }
    };
    let callers: Vec<_> =
        (0..CALLERS).map(|_| tokio::spawn(call(pki.client(), balancer.listen, over.clone(), asked.clone()))).collect();
    for n in 1..=RENEWALS {
        let before = asked.load(Ordering::SeqCst);
        pair = pki.issue("current", NAME);
        balancer.signal(Signal::SIGHUP);
        balancer.metric_becomes("homing_reloads_total", &[("outcome", "ok")], n as f64).await;
        let stream = pki.client().connect(balancer.listen, NAME).await.expect("a handshake");
        assert!(pair.is_shown_on(&stream), "renewal {n}");
        kept.ask(&Ask::chat("m", "Hello.")).await.from(&engine);
        until("more connections", async || (asked.load(Ordering::SeqCst) > before + CALLERS).then_some(())).await;
    }
    over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("a caller that lost nothing");
    }
}

#[tokio::test]
async fn a_broken_pair_leaves_the_one_before() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let (pair, other) = (pki.issue("current", NAME), pki.issue("other", NAME));
    let config = secure(&engine, &pair);
    let balancer = Balancer::start(config.clone()).await;
    let read = |path| std::fs::read(path).expect("it is there");
    let good = [read(&pair.certificate), read(&pair.key)];
    let cut = good[0][..good[0].len() / 2].to_vec();
    let cases = [
        (good[0].clone(), read(&other.key), "listen[0].tls.key: expected the key of the certificate"),
        (b"no certificate".to_vec(), good[1].clone(), "listen[0].tls.certificate: expected a file of certificates"),
        (cut, good[1].clone(), "listen[0].tls.certificate: expected a file of certificates"),
        (good[0].clone(), Vec::new(), "listen[0].tls.key: expected a file with a private key"),
    ];
    for (certificate, key, named) in cases {
        std::fs::write(&pair.certificate, certificate).expect("it is written");
        std::fs::write(&pair.key, key).expect("it is written");
        let answer = balancer.reload(&config).await;
        assert!((400..500).contains(&answer.status), "{named}");
        assert!(answer.text().contains(named) && answer.text().contains("line 1"), "{named}: {}", answer.text());
        let stream = pki.client().connect(balancer.listen, NAME).await.expect("a handshake");
        assert!(pair.is_shown_on(&stream), "{named}");
    }
    std::fs::write(&pair.certificate, &good[0]).expect("it is written");
    std::fs::write(&pair.key, &good[1]).expect("it is written");
    assert_eq!(balancer.reload(&config).await.status, 200);
}

/// A listener that has no TLS in the file any more, or another address there, keeps what it has until a restart.
#[tokio::test]
async fn a_listener_changes_only_its_certificate() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let (pair, other) = (pki.issue("a", NAME), pki.issue("b", NAME));
    let config = secure(&engine, &pair);
    let balancer = Balancer::start(config.clone()).await;
    let listens = [json!([{"address": "127.0.0.1:0"}]), json!([{"address": "127.0.0.1:1", "tls": other.settings()}])];
    for listen in listens {
        let mut changed = config.clone();
        changed["listen"] = listen;
        assert_eq!(balancer.reload(&changed).await.status, 200);
        balancer.output.line("warning", |line| line.contains("listen has changed").then_some(())).await;
        let stream = pki.client().connect(balancer.listen, NAME).await.expect("a handshake");
        assert!(pair.is_shown_on(&stream));
    }
}

/// However a client leaves, and also where its next request stands already unread behind it.
#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let balancer = Balancer::start(secure(&engine, &pki.issue("a", NAME))).await;
    engine.holds(&Gate::shut());
    for (n, (resets, pipelines)) in [(false, false), (true, false), (false, true), (true, true)].into_iter().enumerate()
    {
        let mut client = client(&balancer, &pki.client()).await;
        client.send(&Ask::chat("m", "Hello.")).await;
        engine.saw_turns(n + 1).await;
        if pipelines {
            client.send(&Ask::chat("m", "Another.")).await;
        }
        if resets {
            client.wire.reset_on_drop();
        }
        drop(client);
        engine.saw("an ended request", |seen| seen.left == n + 1).await;
    }
    balancer.idle().await;
}

#[tokio::test]
async fn a_handshake_has_a_time_limit_and_a_connection_a_number() {
    let (pki, engine) = (Pki::new(), Engine::start().await);
    let mut config = secure(&engine, &pki.issue("a", NAME));
    config["server"] = json!({"limits": {"header_read": "500 ms", "connections": 1}});
    let balancer = Balancer::start(config).await;
    let mut stalled = TcpStream::connect(balancer.listen).await.expect("it takes connections");
    stalled.write_all(&old_hello()[..20]).await.expect("it is sent");
    balancer.metric_becomes("homing_connections", &[], 1.0).await;
    assert!(pki.client().connect(balancer.listen, NAME).await.is_err(), "there is no room");
    assert_eq!(balancer.metrics().await.sum("homing_limits_hit_total", &[("limit", "connections")]), 1.0);
    let mut said = Vec::new();
    let _ = within("the end of the stalled connection", stalled.read_to_end(&mut said)).await;
    balancer.metric_becomes("homing_limits_hit_total", &[("limit", "header_read")], 1.0).await;
    client(&balancer, &pki.client()).await.ask(&Ask::chat("m", "Hello.")).await.from(&engine);
}
