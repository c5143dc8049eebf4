//! A fleet to test, and a client that can go away at any time.

use std::net::SocketAddr;
use std::time::Duration;

use homing_bench::engine::Profile;
use homing_bench::fleet::{Fleet, FleetConfig};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// What a test waits for comes within this time, or never.
const DEADLINE: Duration = Duration::from_secs(30);

pub const MODEL: &str = "tiny";

/// Two replicas, much faster than in reality, with a model of the captures' name.
pub fn config() -> FleetConfig {
    let mut profile = Profile::load("a4000-qwen3-4b").unwrap();
    profile.model.name = MODEL.to_owned();
    FleetConfig { speed: 50.0, ..FleetConfig::new(profile, 2) }
}

pub async fn start(config: FleetConfig) -> Fleet {
    Fleet::start(config).await.unwrap()
}

/// An answer whose body is still to come. Dropping it closes the connection.
pub struct Answer {
    pub status: u16,
    response: Response<Incoming>,
    _connection: JoinSet<()>,
}

/// Sends a request on a connection of its own.
pub async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> std::io::Result<Answer> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
    let mut connections = JoinSet::new();
    connections.spawn(async { _ = connection.await });
    let response = sender.send_request(request).await.map_err(std::io::Error::other)?;
    Ok(Answer { status: response.status().as_u16(), response, _connection: connections })
}

pub async fn post_with(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::post(path).header("host", "test");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(address, request.body(Full::from(body.to_owned())).unwrap()).await.unwrap()
}

pub async fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    post_with(address, path, &[], &body.to_string()).await
}

pub async fn try_get(address: SocketAddr, path: &str) -> std::io::Result<Answer> {
    send(address, Request::get(path).header("host", "test").body(Full::default()).unwrap()).await
}

pub async fn get(address: SocketAddr, path: &str) -> Answer {
    try_get(address, path).await.unwrap()
}

impl Answer {
    /// The next piece of the body: `None` at its end, an error if it was cut off.
    pub async fn next_piece(&mut self) -> Option<Result<String, hyper::Error>> {
        let frame = self.response.body_mut().frame().await?;
        Some(frame.map(|frame| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()))
    }

    /// Reads until the body has held `text`.
    pub async fn read_until(&mut self, text: &str) {
        let mut read = String::new();
        while !read.contains(text) {
            read += &self.next_piece().await.expect("the body goes on").expect("the body is not cut off");
        }
    }

    /// All that is left of the body, and whether it ended well.
    pub async fn rest(mut self) -> (String, bool) {
        let mut rest = String::new();
        while let Some(piece) = self.next_piece().await {
            match piece {
                Ok(piece) => rest += &piece,
                Err(_) => return (rest, false),
            }
        }
        (rest, true)
    }

    pub async fn text(self) -> String {
        let (text, complete) = self.rest().await;
        assert!(complete, "the body was cut off after {text:?}");
        text
    }

    pub async fn json(self) -> Value {
        serde_json::from_str(&self.text().await).unwrap()
    }
}

/// Chat messages of one user, the first one long enough for some blocks.
pub fn chat(max_tokens: u32) -> Value {
    let words = "a question that is long enough for a few blocks of the cache ".repeat(8);
    json!({"model": MODEL, "max_tokens": max_tokens, "messages": [{"role": "user", "content": words}]})
}

/// The same with `stream` set.
pub fn streamed(mut body: Value) -> Value {
    body["stream"] = true.into();
    body
}

/// The JSON of every event of a stream.
pub fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The value of the sample that begins with `name` and has `labels` among its labels.
pub fn sample(page: &str, name: &str, labels: &str) -> f64 {
    let is_it = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
    };
    let line = page.lines().find(is_it).unwrap_or_else(|| panic!("no sample {name} {labels}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

pub async fn metric(address: SocketAddr, name: &str) -> f64 {
    sample(&get(address, "/metrics").await.text().await, name, "")
}

/// Asks again and again until the answer is yes.
pub async fn eventually(what: &str, mut yes: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !yes().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"));
}

pub async fn eventually_metric(address: SocketAddr, name: &str, value: f64) {
    eventually(&format!("{name} is {value}"), async || metric(address, name).await == value).await;
}
