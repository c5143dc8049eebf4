//! The engines behind the balancers: they say what an engine would say, and do nothing for it. Their answers are made
//! beforehand.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::http;

/// Names the stream that a request asks for, and the events that it is to have: `3 500`.
pub const STREAM: &str = "x-bench-stream";

/// Asks for an answer that is no stream.
const ANSWER: &str = r#"{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy dog.","refusal":null,"tool_calls":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":120,"total_tokens":130,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":112}}}"#;

/// One token of a streamed answer, as vLLM writes it.
const EVENT: &str = r#"data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" fox"},"logprobs":null,"finish_reason":null}]}"#;

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// Lets the next event of each stream go, so that no two of them ever travel together.
#[derive(Clone, Default)]
pub struct Paces(Rc<RefCell<Vec<Rc<Semaphore>>>>);

impl Paces {
    /// A stream that sends an event for each permit.
    pub fn add(&self) -> (usize, Rc<Semaphore>) {
        let pace = Rc::new(Semaphore::new(0));
        let mut all = self.0.borrow_mut();
        all.push(pace.clone());
        (all.len() - 1, pace)
    }

    fn of(&self, stream: usize) -> Option<Rc<Semaphore>> {
        self.0.borrow().get(stream).cloned()
    }
}

/// Serves so many engines from now on.
pub async fn start(engines: usize, paces: &Paces) -> io::Result<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    for _ in 0..engines {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?);
        let paces = paces.clone();
        tokio::task::spawn_local(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let paces = paces.clone();
                // A balancer that closes a connection ends it.
                tokio::task::spawn_local(async move { serve(connection, &paces).await });
            }
        });
    }
    Ok(addresses)
}

async fn serve(mut connection: TcpStream, paces: &Paces) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let answer = |kind: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let (answered, nothing) = (answer("application/json", ANSWER), answer("text/plain", ""));
    let event = format!("{:x}\r\n{EVENT}\n\n\r\n", EVENT.len() + 2).into_bytes();
    let mut read = BytesMut::with_capacity(256 << 10);
    loop {
        let Some(asked) = http::read_head(&mut connection, &mut read).await? else { return Ok(()) };
        while read.len() < asked.length {
            read.reserve(asked.length - read.len());
            if connection.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        read.advance(asked.length);
        match asked.stream.and_then(|(stream, events)| Some((paces.of(stream)?, events))) {
            Some((pace, events)) => {
                connection.write_all(STREAM_HEAD.as_bytes()).await?;
                for _ in 0..events {
                    pace.acquire().await.map_err(io::Error::other)?.forget();
                    connection.write_all(&event).await?;
                }
                connection.write_all(b"0\r\n\r\n").await?;
            }
            // What a balancer asks of its own accord has no body.
            None if asked.length == 0 => connection.write_all(&nothing).await?,
            None => connection.write_all(&answered).await?,
        }
    }
}
