//! A client that takes nothing of its answer holds its engine back, and not the balancer's memory.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::harness::*;

/// The balancer may grow by this much for one of them, in bytes: what is on its way in Pingora's queues, and what a debug build
/// of it takes anyway. The answer is far larger.
const GROWS_MAX: u64 = 64 << 20;

/// What is on its way beside that: the sockets' buffers on both sides.
const ON_THE_WAY_MAX: usize = 64 << 20;

const ANSWER: usize = 1 << 30;

/// An engine that streams [`ANSWER`] bytes to the first that asks, and tells how many have gone and when no more go.
async fn endless() -> (String, watch::Receiver<(usize, bool)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = watch::channel((0, false));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut request = [0; 16 << 10];
                let read = stream.read(&mut request).await.unwrap_or(0);
                if !request[..read].starts_with(b"POST") {
                    return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
                }
                stream.write_all(&answer::stream_head()).await?;
                let event =
                    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(60_000));
                let chunk = answer::chunk(event.as_bytes());
                while tell.borrow().0 < ANSWER {
                    // So long without room means that nobody reads; were it only slow, the test would be less strict.
                    match tokio::time::timeout(Duration::from_secs(2), stream.write_all(&chunk)).await {
                        Ok(written) => written?,
                        Err(_) => break,
                    }
                    tell.send_modify(|(sent, _)| *sent += chunk.len());
                }
                tell.send_modify(|(_, stuck)| *stuck = true);
                stream.read(&mut request).await.map(drop)
            });
        }
    });
    (url, told)
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_its_engine_back() {
    for over_h2 in [false, true] {
        let (url, mut engine) = endless().await;
        let balancer = Balancer::start(json!({"models": [{"name": "m", "replicas": [{"url": url}]}]})).await;
        let ask = Ask::chat("m", "Hello.").streamed();
        let before = balancer.resident_bytes();
        let (mut h1, mut h2) = (balancer.client().await, H2Client::connect(balancer.listen).await);
        let mut exchange = None;
        match over_h2 {
            true => exchange = Some(h2.send(&ask).await),
            false => h1.send(&ask).await,
        }
        let stuck = within("the engine to be held back", engine.wait_for(|(_, stuck)| *stuck)).await;
        let (sent, _) = *stuck.expect("the engine lives");
        assert!(sent < ON_THE_WAY_MAX, "{sent} bytes have gone, and nobody has read one");
        let grown = balancer.resident_bytes().saturating_sub(before);
        assert!(grown < GROWS_MAX, "the balancer has grown by {grown} bytes");
        drop((h1, h2, exchange));
        balancer.idle().await;
    }
}
