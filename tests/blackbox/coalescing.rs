//! A request reaches its engine in one piece: the head does not go ahead of the body.

use nix::sys::socket::{setsockopt, sockopt::TcpMaxSeg};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;

use crate::harness::wire::{Head, Wire};
use crate::harness::*;

/// An engine that tells of each POST what its first read of it brought, and on the how-manieth connection it came.
async fn reads_once() -> (String, mpsc::UnboundedReceiver<(usize, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for connection in 0.. {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 64 << 10];
                loop {
                    let read = stream.read(&mut request).await.unwrap_or(0);
                    let (status, body) = match &request[..read] {
                        [] => return,
                        post if post.starts_with(b"POST") => ("200 OK", r#"{"usage":{"prompt_tokens":1}}"#),
                        _ => ("404 Not Found", ""),
                    };
                    let length = body.len();
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                    if status == "200 OK" {
                        tell.send((connection, request[..read].to_vec())).expect("the test listens");
                    }
                    stream.write_all(answer.as_bytes()).await.expect("the balancer reads");
                }
            });
        }
    });
    (url, told)
}

/// On a new connection to the engine and on one that is used again.
#[tokio::test]
async fn the_head_waits_for_the_body() {
    let (url, mut engine) = reads_once().await;
    let balancer = Balancer::start(json!({"models": [{"name": "m", "replicas": [{"url": url}]}]})).await;
    let mut connections = Vec::new();
    for text in ["Hello.", "Hello again.", &"Long. ".repeat(2_000)] {
        let ask = Ask::chat("m", text);
        assert_eq!(balancer.ask(&ask).await.status, 200);
        let (connection, read) = engine.recv().await.expect("the engine lives");
        assert!(read.ends_with(b"}") && read.len() > ask.body.len(), "only {} bytes came at first", read.len());
        connections.push(connection);
        balancer.idle().await;
    }
    assert_eq!(connections[0], connections[1], "the connection is used again");
}

/// An engine whose connections take little at once: a new one takes 100 KB from the balancer, and then no more than is read.
async fn takes_little() -> (String, mpsc::UnboundedReceiver<(Head, Vec<u8>)>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2048).expect("a small buffer");
    setsockopt(&socket, TcpMaxSeg, &536).expect("small packets");
    socket.bind("127.0.0.1:0".parse().unwrap()).expect("a port");
    let listener = socket.listen(64).expect("it listens");
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut wire = Wire::new(stream);
                while let Some(head) = wire.head().await? {
                    let answer = match head.framing()? {
                        None => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
                        Some(framing) => {
                            let body = wire.body(framing).await?;
                            tell.send((head, body)).expect("the test listens");
                            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
                        }
                    };
                    wire.send(answer.as_bytes()).await?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    (url, told)
}

/// Wherever what the engine takes at once ends: in the head, between the two, in the body.
#[tokio::test]
async fn an_engine_that_takes_little_at_once_gets_all() {
    let (url, mut engine) = takes_little().await;
    let balancer = Balancer::start(json!({
        "models": [{"name": "m", "replicas": [{"url": url}]}],
        "server": {"limits": {"header_bytes": "512 KiB"}},
    }))
    .await;
    // The first on a new connection, of which the system takes least.
    for (head, body) in [(400_000, 3_000_000), (400_000, 100), (60_000, 60_000), (100, 3_000_000)] {
        let long: String = (0..head).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
        let ask = Ask::chat("m", &"All of it. ".repeat(body / 11)).header("x-long", &long);
        assert_eq!(balancer.ask(&ask).await.status, 200);
        let (read, body) = engine.recv().await.expect("the engine lives");
        assert!(read.header("x-long") == Some(&long), "another head of {head} bytes");
        assert!(body == ask.body, "another body behind a head of {head} bytes");
    }
}

/// A head that has left would be kept for as long as its connection is open.
#[tokio::test]
async fn a_head_that_has_left_holds_no_memory() {
    const HEAD: usize = 400_000;
    const CLIENTS: usize = 100;
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({"spill_threshold": CLIENTS}));
    config["server"] = json!({"limits": {"header_bytes": "512 KiB"}});
    let balancer = Balancer::start(config).await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let ask = Ask::chat("m", "Hello.").streamed().header("x-long", &"x".repeat(HEAD));
    let before = balancer.resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = balancer.client().await;
        client.send(&ask).await;
        assert_eq!(client::status(&client.head().await), 200);
        clients.push(client);
    }
    let each = balancer.resident_bytes().saturating_sub(before) / CLIENTS as u64;
    // Pingora keeps the head that it read.
    assert!(each < HEAD as u64 * 7 / 4, "{each} bytes each");
}
