//! A request reaches its engine in one piece: the head does not go ahead of the body.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

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
