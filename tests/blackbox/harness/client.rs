//! A client of one connection. It adds nothing of its own: no retry, no pool, no header.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::ask::Ask;
use super::engine::Engine;
use super::wire::{Framing, Head, Pipe, Wire};
use super::within;

pub struct Client {
    pub wire: Wire,
}

/// A whole answer.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: Head,
    pub body: Vec<u8>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        Client { wire: Wire::new(TcpStream::connect(address).await.expect("the balancer takes connections")) }
    }

    pub fn over(stream: impl Pipe + 'static) -> Client {
        Client { wire: Wire::new(stream) }
    }

    /// Asks and waits for the whole answer.
    pub async fn ask(&mut self, ask: &Ask) -> Response {
        self.send(ask).await;
        self.response(&ask.method).await
    }

    pub async fn send(&mut self, ask: &Ask) {
        let mut bytes = ask.head_bytes();
        bytes.extend(ask.body_bytes());
        self.send_bytes(&bytes).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.wire.send(bytes).await.expect("the connection takes what is sent");
    }

    /// The next head, an interim one (100) included.
    pub async fn head(&mut self) -> Head {
        let head = within("an answer", self.wire.head()).await.expect("an answer that parses");
        head.expect("an answer, not a closed connection")
    }

    /// The next piece of a chunked answer; `None` at its end.
    pub async fn piece(&mut self) -> Option<String> {
        let chunk = within("a piece of the answer", self.wire.chunk()).await.expect("a whole chunk");
        chunk.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The whole answer to a request of that method.
    pub async fn response(&mut self, method: &str) -> Response {
        let head = self.head().await;
        self.rest(head, method).await
    }

    /// What is left of the answer whose head was read.
    pub async fn rest(&mut self, head: Head, method: &str) -> Response {
        let status = status(&head);
        let body = match framing(&head, method, status) {
            None => Vec::new(),
            Some(framing) => {
                let read = within("the rest of the answer", self.wire.body(framing)).await;
                read.unwrap_or_else(|error| panic!("the body of the answer: {error}; its head: {head:?}"))
            }
        };
        Response { status, head, body }
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn decision(&self) -> &str {
        self.header("x-homing-decision").unwrap_or("(no decision)")
    }

    pub fn replica(&self) -> &str {
        self.header("x-homing-replica").unwrap_or("(no replica)")
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("answer {} is no JSON: {:?}", self.status, self.text()))
    }

    /// Insists that it is a good answer, decided so.
    #[track_caller]
    pub fn is(&self, decision: &str) -> &Self {
        assert_eq!((self.status, self.decision()), (200, decision), "{}", self.text());
        self
    }

    /// Insists on which engine gave it.
    #[track_caller]
    pub fn from(&self, engine: &Engine) -> &Self {
        assert_eq!(self.replica(), engine.name());
        self
    }
}

/// Asks once, on a connection of its own.
pub async fn ask_once(address: SocketAddr, ask: &Ask) -> Response {
    Client::connect(address).await.ask(ask).await
}

/// Asks all at once, each on a connection of its own.
pub fn ask_all(address: SocketAddr, asks: impl IntoIterator<Item = Ask>) -> Vec<JoinHandle<Response>> {
    asks.into_iter().map(|ask| tokio::spawn(async move { ask_once(address, &ask).await })).collect()
}

pub fn status(head: &Head) -> u16 {
    head.start.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line")
}

fn framing(head: &Head, method: &str, status: u16) -> Option<Framing> {
    if method == "HEAD" || status == 204 || status == 304 || status < 200 {
        return None;
    }
    Some(head.framing().expect("one framing").unwrap_or(Framing::UntilClose))
}
