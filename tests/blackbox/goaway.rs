//! An engine that ends a connection of HTTP/2 while a request is on it.

use std::net::SocketAddr;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::engine::Speaks;
use crate::harness::*;

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// An engine that says of every request that it will not be done, and closes. Tells how many there were.
async fn unwilling() -> (SocketAddr, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().unwrap();
    let (tell, told) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tell = tell.clone();
            // An error is of a connection that the other side has closed.
            tokio::spawn(async move { refuse(stream, &tell).await.is_ok() });
        }
    });
    (address, told)
}

async fn refuse(mut stream: TcpStream, tell: &watch::Sender<usize>) -> Result<()> {
    stream.read_exact(&mut [0; PREFACE]).await?;
    stream.write_all(&frame(SETTINGS, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await?;
        match (head[3], head[4] & ACK) {
            (SETTINGS, 0) => stream.write_all(&frame(SETTINGS, ACK, &[])).await?,
            (HEADERS, _) => {
                tell.send_modify(|refused| *refused += 1);
                // The last stream that was or may have been done is none; no error.
                stream.write_all(&frame(GOAWAY, 0, &[0; 8])).await?;
                return stream.shutdown().await;
            }
            _ => {}
        }
    }
}

/// One of the connection as a whole.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags, 0, 0, 0, 0], payload].concat()
}

#[tokio::test]
async fn a_request_that_was_not_begun_goes_elsewhere() {
    let (address, mut refused) = unwilling().await;
    let engine = Engine::speaking(Speaks { http2: true, ..Speaks::default() }, 1).await;
    let replicas = json!([{"url": format!("http://{address}")}, {"url": engine.url()}]);
    let balancer = Balancer::start(json!({"models": [{"name": "m", "http2": true, "replicas": replicas}]})).await;
    let text = "0123456789".repeat(50_000);
    for n in 0..4 {
        for ask in [Ask::chat("m", &text), Ask::messages("m", &text).streamed()] {
            let ask = ask.session(&format!("conversation-{n}"));
            balancer.ask(&ask).await.from(&engine);
            assert!(engine.last().body == ask.body, "the body differs");
        }
    }
    within("a request there", refused.wait_for(|refused| *refused > 0)).await.expect("it lives");
    assert_eq!(balancer.idle().await.total("in_flight"), 0);
}

/// An engine that shuts down in order ends what it has begun, and takes nothing new on that connection.
#[tokio::test]
async fn a_request_that_was_begun_ends_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = watch::Sender::new(0);
    let counting = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counting.send_modify(|count| *count += 1);
            tokio::spawn(shuts_down_after_one(stream));
        }
    });
    let mut config = json!({"models": [{"name": "m", "http2": true, "replicas": [{"url": url}]}]});
    config["scrape"] = json!({"interval": "5 min"});
    let balancer = Balancer::start(config).await;
    for _ in 0..5 {
        let answer = balancer.ask(&Ask::chat("m", "Hello.")).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "{\"ended\":true}"));
    }
    assert!(*connections.borrow() >= 5, "a connection was used again that was at its end");
    assert_eq!(balancer.idle().await.total("failed_over"), 0);
}

async fn shuts_down_after_one(stream: TcpStream) -> std::result::Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    let Some(accepted) = connection.accept().await else { return Ok(()) };
    let (request, mut respond) = accepted?;
    connection.graceful_shutdown();
    tokio::spawn(async move {
        let mut body = request.into_body();
        while let Some(Ok(piece)) = body.data().await {
            let _ = body.flow_control().release_capacity(piece.len());
        }
        let answer = http::Response::builder().header("content-type", "application/json").body(()).expect("an answer");
        let mut pieces = respond.send_response(answer, false)?;
        pieces.send_data(Bytes::from_static(b"{\"ended\":true}"), true)
    });
    while let Some(more) = connection.accept().await {
        more?;
    }
    Ok(())
}
