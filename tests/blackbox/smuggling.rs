//! Requests framed or addressed in two ways, and broken ones: nobody gets another's answer, and no engine gets a request
//! that nobody sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::harness::engine::{Request, Speaks};
use crate::harness::raw_h2::{Fate, RawH2};
use crate::harness::*;

const PATH: &str = "/v1/chat/completions";

/// Where a request goes that a client has hidden in the body of another.
const HIDDEN: &str = "/v1/completions";

fn body(id: &str) -> String {
    json!({"model": "m", "messages": [{"role": "user", "content": id}]}).to_string()
}

/// Answers with what was asked, and sometimes leaves the connection to the next request late.
fn echo(request: &Request) -> Answer {
    let id = request.json().map(|body| body["messages"][0]["content"].clone()).unwrap_or_default();
    Answer::json("200 OK", &json!({"id": id, "path": request.path(), "length": request.body.len()}))
}

/// What a client sends over HTTP/1.1 that is framed badly or in two ways, with another request hidden in it.
fn broken_h1(n: usize, id: &str) -> String {
    let body = body(id);
    let hidden = format!("POST {HIDDEN} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let (size, both) = (body.len(), body.len() + hidden.len());
    let post =
        |headers: &str, rest: &str| format!("POST {PATH} HTTP/1.1\r\nhost: a\r\n{headers}\r\n\r\n{rest}{hidden}");
    match n % 12 {
        0 => post(&format!("content-length: {both}\r\ntransfer-encoding: chunked"), &chunked),
        1 => post("content-length: 4\r\ntransfer-encoding: chunked", &chunked),
        2 => post(&format!("content-length: {size}\r\ncontent-length: {both}"), &body),
        3 => post(&format!("content-length: +{size}"), &body),
        4 => post(&format!("content-length: -{size}"), &body),
        5 => post(&format!("content-length: {size}, {both}"), &body),
        6 => post("transfer-encoding: xchunked", &chunked),
        7 => post("transfer-encoding: chunked\r\ntransfer-encoding: identity", &chunked),
        8 => post("transfer-encoding : chunked", &chunked),
        9 => post("transfer-encoding: chunked", &format!("{:x}\r\n{body}zz\r\n0\r\n\r\n", body.len())),
        10 => post(&format!("x: 1\n content-length: {size}\r\nhost: b"), &body),
        _ => post(&format!("content-length: {size}\0"), &body),
    }
}

type Headers = Vec<(&'static str, String)>;
/// Each with whether it is the last.
type Pieces = Vec<(Vec<u8>, bool)>;

/// The same over HTTP/2: the headers, and how its body goes on.
fn broken_h2(n: usize, id: &str) -> (Headers, Pieces) {
    let body = body(id);
    let mut headers: Vec<(&str, String)> =
        [(":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "a")]
            .map(|(name, value)| (name, value.to_owned()))
            .into();
    let hidden = format!(" HTTP/1.1\r\nhost: a\r\n\r\nPOST {HIDDEN}");
    let mut put = |name: &'static str, value: String| headers.push((name, value));
    let whole = vec![(body.clone().into_bytes(), true)];
    let mut pieces = whole.clone();
    match n % 16 {
        0 => put("transfer-encoding", "chunked".into()),
        1 => put("connection", "content-length".into()),
        2 => put("content-length", (body.len() + 5).to_string()),
        3 => put("content-length", (body.len() - 5).to_string()),
        4 => ["1", "2"].into_iter().for_each(|length| put("content-length", length.into())),
        5 => put("X-Upper", "1".into()),
        6 => put(":path", HIDDEN.into()),
        7 => put(":authority", "b".into()),
        8 => put("host", "b".into()),
        9 => put("x-custom", format!("1\r\n\r\nPOST {HIDDEN} HTTP/1.1")),
        10 => headers[2].1 += &hidden,
        11 => headers[2].1 = format!("http://b{HIDDEN}"),
        12 => headers[0].1 = format!("POST {HIDDEN}"),
        13 => drop(headers.remove(2)),
        14 => {
            put("content-length", body.len().to_string());
            pieces = vec![(Vec::new(), false), (Vec::new(), true)];
        }
        _ => put("te", "gzip, chunked".into()),
    }
    (headers, pieces)
}

async fn ask_broken_h1(address: SocketAddr, n: usize, id: &str) {
    let bytes = broken_h1(n, id);
    let mut client = Client::connect(address).await;
    // The balancer may refuse and close before this is all sent.
    let _ = client.wire.send(bytes.as_bytes()).await;
    let _ = client.wire.finish().await;
    if let Some(head) = client.wire.closed_or_head().await {
        let status = client::status(&head);
        assert!(matches!(status, 400 | 501), "case {}: {status}", n % 12);
    }
}

async fn ask_broken_h2(raw: &mut Option<RawH2>, address: SocketAddr, n: usize, id: &str) {
    let mut connection = match raw.take() {
        Some(connection) => connection,
        None => RawH2::connect(address).await,
    };
    let (headers, pieces) = broken_h2(n, id);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stream = connection.headers(&headers, false).await;
    for (piece, end) in pieces {
        connection.data(stream, &piece, end).await;
    }
    let fate = connection.fate(stream).await;
    assert!(!fate.is_ok(), "case {}: {fate:?}", n % 16);
    // Others go on where only the one stream was refused.
    *raw = Some(connection).filter(|_| fate != Fate::Closed);
}

/// Well-formed, though not everybody would send it so.
async fn ask_odd(h1: &mut Client, raw: &mut RawH2, n: usize, id: &str) -> serde_json::Value {
    let body = body(id);
    if n.is_multiple_of(2) {
        // The whole address, where others write a path.
        let length = body.len();
        let head = format!("POST http://a.test{PATH} HTTP/1.1\r\nhost: a.test\r\ncontent-length: {length}\r\n\r\n");
        h1.send_bytes(format!("{head}{body}").as_bytes()).await;
        let response = h1.response("POST").await;
        assert_eq!(response.status, 200, "{}", response.text());
        return response.json();
    }
    // The end is said by an empty frame, or by trailers.
    let headers = [(":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "a"), ("te", "trailers")];
    let stream = raw.headers(&headers, false).await;
    raw.data(stream, b"", false).await;
    raw.data(stream, body.as_bytes(), false).await;
    raw.data(stream, b"", false).await;
    match n % 4 {
        1 => raw.data(stream, b"", true).await,
        _ => raw.trailers(stream, &[("x-sum", "1")]).await,
    }
    match raw.fate(stream).await {
        fate @ Fate::Answered(..) if !fate.is_ok() => panic!("{fate:?}"),
        Fate::Answered(_, body) => serde_json::from_slice(&body).expect("JSON"),
        fate => panic!("{fate:?}"),
    }
}

const REQUESTS: usize = 10_000;
const CALLERS: usize = 16;

async fn call(address: SocketAddr, next: Arc<AtomicUsize>) {
    let (mut h1, mut h2) = (Client::connect(address).await, H2Client::connect(address).await);
    let (mut odd, mut broken) = (RawH2::connect(address).await, None);
    loop {
        let n = next.fetch_add(1, Ordering::SeqCst);
        if n >= REQUESTS {
            return;
        }
        let id = format!("request-{n}");
        let answer = match n % 20 {
            0 => {
                ask_broken_h1(address, n / 20, &format!("broken-{n}")).await;
                continue;
            }
            10 => {
                ask_broken_h2(&mut broken, address, n / 20, &format!("broken-{n}")).await;
                continue;
            }
            5 | 15 => {
                // A connection may send 100 frames that say nothing, and this one sends two a request.
                if odd.begun() == 40 {
                    odd = RawH2::connect(address).await;
                }
                ask_odd(&mut h1, &mut odd, n / 10, &id).await
            }
            kind => {
                let ask = Ask::new("POST", PATH).header("content-type", "application/json").body(body(&id));
                let ask = if kind % 3 == 0 { ask.chunked(7) } else { ask };
                let response = if kind % 2 == 0 { h1.ask(&ask).await } else { h2.ask(&ask).await };
                assert_eq!(response.status, 200, "{}", response.text());
                response.json()
            }
        };
        assert_eq!(answer, json!({"id": id, "path": PATH, "length": body(&id).len()}));
    }
}

#[tokio::test]
async fn everyone_gets_their_own_answer() {
    let engines = [Engine::start().await, Engine::speaking(Speaks { tls: None, http2: true }, 1).await];
    engines.iter().for_each(|engine| engine.answers(echo));
    let replicas: Vec<_> =
        engines.iter().map(|engine| json!({"url": engine.url(), "http2": engine.speaks.http2})).collect();
    let balancer = Balancer::start(json!({
        "server": {"access_log": "off"},
        "models": [{"name": "m", "replicas": replicas, "affinity": false, "admission": "off"}],
    }))
    .await;
    let next = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(call(balancer.listen, next.clone()))).collect();
    for caller in callers {
        caller.await.expect("a caller that got its answers");
    }
    balancer.idle().await;
    let mut came: HashMap<String, usize> = HashMap::new();
    for request in engines.iter().flat_map(Engine::requests) {
        assert_eq!(request.path(), PATH, "{:?}", request.head);
        let id = request.json().expect("JSON")["messages"][0]["content"].as_str().expect("an id").to_owned();
        assert_eq!(request.body, body(&id).as_bytes());
        *came.entry(id).or_default() += 1;
    }
    assert!(came.values().all(|times| *times == 1), "some came twice");
    assert!(came.keys().all(|id| id.starts_with("request-")), "a broken one came");
    assert_eq!(came.len(), REQUESTS - REQUESTS / 10);
    assert!(engines.iter().all(|engine| engine.turns() > 0), "both were asked");
}
