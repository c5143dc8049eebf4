//! Requests that two readers might understand differently, after RFC 9112 and what has been published of request smuggling:
//! each is refused, or arrives as one request that says one thing. Nothing of it stays in a connection to an engine.

use serde_json::json;

use crate::harness::wire::Framing;
use crate::harness::*;

const BODY: &str = r#"{"model":"m","messages":[]}"#;

/// What is tried to smuggle.
const INNER: &str = "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}";

/// What comes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// Refused with this status, and the connection is closed.
    Refused(u16),
    /// It arrives, once, with the body that it should have.
    Arrives,
}
use Outcome::{Arrives, Refused};

/// A request whose head has these lines, with a body in one chunk.
fn chunked(lines: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n{lines}\r\n\r\n{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len())
}

/// A request whose head has these lines, with a body as it is.
fn plain(lines: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n{lines}\r\n\r\n{BODY}")
}

/// A request whose body is framed so, chunks in full.
fn chunks(body: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{body}")
}

/// A request with this request line and no body.
fn line(line: &str) -> String {
    format!("{line}\r\nhost: a\r\n\r\n")
}

fn framings() -> Vec<(&'static str, String, Outcome)> {
    let length = BODY.len();
    let cl = |value: &str| plain(&format!("content-length: {value}"));
    let te = |value: &str| chunked(&format!("transfer-encoding: {value}"));
    vec![
        ("a length", cl(&length.to_string()), Arrives),
        ("a length with zeros before it", cl(&format!("000{length}")), Arrives),
        ("chunked", te("chunked"), Arrives),
        ("chunked in capitals", te("CHUNKED"), Arrives),
        ("chunked with spaces about it", te("  chunked \t"), Arrives),
        ("CL.TE", chunked("content-length: 4\r\ntransfer-encoding: chunked"), Refused(400)),
        ("TE.CL", chunked("transfer-encoding: chunked\r\ncontent-length: 4"), Refused(400)),
        ("CL.TE of length 0", chunked("content-length: 0\r\ntransfer-encoding: chunked"), Refused(400)),
        ("TE.TE", chunked("transfer-encoding: chunked\r\ntransfer-encoding: chunked"), Refused(400)),
        ("TE.TE of another kind", chunked("transfer-encoding: chunked\r\ntransfer-encoding: x"), Refused(400)),
        ("TE.TE of another kind first", chunked("transfer-encoding: x\r\ntransfer-encoding: chunked"), Refused(400)),
        ("CL.CL", plain(&format!("content-length: {length}\r\ncontent-length: {length}")), Refused(400)),
        ("CL.CL that differ", plain(&format!("content-length: 4\r\ncontent-length: {length}")), Refused(400)),
        ("CL in a list", cl(&format!("{length}, {length}")), Refused(400)),
        ("CL with a sign", cl(&format!("+{length}")), Refused(400)),
        ("CL below zero", cl("-1"), Refused(400)),
        ("CL in hex", cl("0x1b"), Refused(400)),
        ("CL with a fraction", cl("27.0"), Refused(400)),
        ("CL of nothing", cl(""), Refused(400)),
        ("CL with a space in it", cl("2 7"), Refused(400)),
        ("CL beyond 64 bits", cl("18446744073709551643"), Refused(400)),
        ("CL with a sheet feed", cl("\u{c}27"), Refused(400)),
        ("an unknown coding", te("xchunked"), Refused(501)),
        ("chunked with a tail", te("chunked;q=1"), Refused(501)),
        ("gzip, chunked", te("gzip, chunked"), Refused(501)),
        ("chunked, identity", te("chunked, identity"), Refused(501)),
        ("chunked twice", te("chunked, chunked"), Refused(501)),
        ("identity", plain(&format!("transfer-encoding: identity\r\nx: {length}")), Refused(501)),
        ("chunked in quotes", te("\"chunked\""), Refused(501)),
        ("a vertical tab before chunked", te("\u{b}chunked"), Refused(400)),
        ("no coding", te(""), Refused(501)),
        ("TE in HTTP/1.0", te("chunked").replacen("HTTP/1.1", "HTTP/1.0", 1), Refused(400)),
        ("a space before the colon", chunked("transfer-encoding : chunked"), Refused(400)),
        ("a tab before the colon", chunked("transfer-encoding\t: chunked"), Refused(400)),
        ("a space before the name", chunked(" transfer-encoding: chunked"), Refused(400)),
        ("a value in the next line", chunked("transfer-encoding:\r\n chunked"), Refused(400)),
        ("a line that goes on", chunked("x: 1\r\n\ttransfer-encoding: chunked"), Refused(400)),
        ("no colon", chunked("transfer-encoding"), Refused(400)),
        ("no name", chunked(": chunked"), Refused(400)),
        (
            "an underscore for a dash",
            plain(&format!("transfer_encoding: chunked\r\ncontent-length: {length}")),
            Arrives,
        ),
    ]
}

fn chunkings() -> Vec<(&'static str, String, Outcome)> {
    let length = BODY.len();
    let sized = |size: &str| chunks(&format!("{size}\r\n{BODY}\r\n0\r\n\r\n"));
    vec![
        ("two chunks", chunks(&format!("1\r\n{{\r\n{:X}\r\n{}\r\n0\r\n\r\n", length - 1, &BODY[1..])), Arrives),
        ("zeros before the size", sized(&format!("000{length:x}")), Arrives),
        ("an extension", sized(&format!("{length:x};name=value")), Arrives),
        ("trailers", chunks(&format!("{length:x}\r\n{BODY}\r\n0\r\ncontent-length: 5\r\nx: 1\r\n\r\n")), Arrives),
        ("a size with 0x", sized(&format!("0x{length:x}")), Refused(400)),
        ("a size below zero", sized("-1"), Refused(400)),
        ("a size with a sign", sized(&format!("+{length:x}")), Refused(400)),
        ("a size with a tail", sized(&format!("{length:x}g")), Refused(400)),
        ("a size with a space after it", sized(&format!("{length:x} ")), Refused(400)),
        ("a size with a space before it", sized(&format!(" {length:x}")), Refused(400)),
        ("no size", sized(""), Refused(400)),
        ("a size beyond 64 bits", sized(&format!("f00000000000000{length:02x}")), Refused(400)),
        ("a size of 17 digits", sized(&format!("{length:017x}")), Refused(400)),
        ("a line feed after the size", chunks(&format!("{length:x}\n{BODY}\r\n0\r\n\r\n")), Refused(400)),
        ("a line feed in an extension", chunks(&format!("{length:x};a\nb\r\n{BODY}\r\n0\r\n\r\n")), Refused(400)),
        ("a return in an extension", chunks(&format!("{length:x};a\rb\r\n{BODY}\r\n0\r\n\r\n")), Refused(400)),
        ("a zero byte in an extension", chunks(&format!("{length:x};a\0\r\n{BODY}\r\n0\r\n\r\n")), Refused(400)),
        ("data longer than its size", chunks(&format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", length - 1)), Refused(400)),
        ("data shorter than its size", chunks(&format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", length + 1)), Refused(400)),
        ("other bytes after the data", chunks(&format!("{length:x}\r\n{BODY}XX0\r\n\r\n")), Refused(400)),
        ("a line feed after the data", chunks(&format!("{length:x}\r\n{BODY}\n0\r\n\r\n")), Refused(400)),
        ("a line feed after the last", chunks(&format!("{length:x}\r\n{BODY}\r\n0\n\n")), Refused(400)),
        ("a trailer that goes on", chunks(&format!("{length:x}\r\n{BODY}\r\n0\r\n x: 1\r\n\r\n")), Refused(400)),
        ("endless extensions", sized(&format!("{length:x};{}", "a".repeat(20_000))), Refused(400)),
        (
            "endless trailers",
            chunks(&format!("{length:x}\r\n{BODY}\r\n0\r\n{}\r\n", "x: 1\r\n".repeat(5000))),
            Refused(400),
        ),
    ]
}

fn heads() -> Vec<(&'static str, String, Outcome)> {
    let length = BODY.len();
    let more = |lines: &str| plain(&format!("content-length: {length}\r\n{lines}"));
    let host = |lines: &str| more("x: 1").replacen("host: a", lines, 1);
    let target = |target: &str| more("x: 1").replacen("/v1/chat/completions", target, 1);
    vec![
        ("no Host", host("y: 1"), Refused(400)),
        ("two Hosts", host("host: a\r\nhost: b"), Refused(400)),
        ("the same Host twice", host("host: a\r\nHost: a"), Refused(400)),
        ("an empty Host", host("host: "), Refused(400)),
        ("a Host with a user", host("host: me@a"), Refused(400)),
        ("a Host with a path", host("host: a/b"), Refused(400)),
        ("a Host with a space", host("host: a b"), Refused(400)),
        ("no Host in HTTP/1.0", host("y: 1").replacen("HTTP/1.1", "HTTP/1.0", 1), Arrives),
        ("line feeds alone", more("x: 1").replace("\r\n", "\n"), Refused(400)),
        ("one line feed alone", more("x: 1\ny: 1"), Refused(400)),
        ("a return alone", more("x: 1\ry: 1"), Refused(400)),
        ("a return and a zero", more("x: 1\r\0\ny: 1"), Refused(400)),
        ("a zero byte in a value", more("x: a\0b"), Refused(400)),
        ("a control character in a value", more("x: a\u{1}b"), Refused(400)),
        ("a delete in a value", more("x: a\u{7f}b"), Refused(400)),
        ("letters beyond ASCII in a value", more("x: h\u{e9}"), Arrives),
        ("a zero byte in a name", more("x\0: 1"), Refused(400)),
        ("letters beyond ASCII in a name", more("x\u{e9}: 1"), Refused(400)),
        ("a long name", more(&format!("{}: 1", "x".repeat(300))), Refused(431)),
        ("a longer name", more(&format!("{}: 1", "x".repeat(70_000))), Refused(431)),
        ("a value that is too long", more(&format!("x: {}", "x".repeat(70_000))), Refused(431)),
        ("too many headers", more("x: 1\r\n".repeat(127).trim_end()), Refused(431)),
        ("as many as may be", more("x: 1\r\n".repeat(126).trim_end()), Arrives),
        ("an empty line first", format!("\r\n{}", more("x: 1")), Arrives),
        ("two empty lines first", format!("\r\n\r\n{}", more("x: 1")), Refused(400)),
        ("the whole address", target("http://a/v1/chat/completions"), Arrives),
        ("the address of another", target("http://b/v1/chat/completions"), Refused(400)),
        ("the address with a user", target("http://me@a/v1/chat/completions"), Refused(400)),
        ("the address of a file", target("file:///v1/chat/completions"), Refused(400)),
        ("backslashes", target("http:\\\\a\\v1\\chat\\completions"), Refused(400)),
        ("a fragment", target("/v1/chat/completions#x"), Refused(400)),
        ("no slash", target("v1/chat/completions"), Refused(400)),
        ("a space in the target", target("/v1/chat/completions?a b"), Refused(400)),
        ("a tab in the target", target("/v1/chat/completions?a\tb"), Refused(400)),
        ("letters beyond ASCII in the target", target("/v1/chat/completions?\u{e9}"), Refused(400)),
        ("a zero byte in the target", target("/v1/chat/completions?\0"), Refused(400)),
        ("a target that is too long", target(&format!("/v1/chat/completions?{}", "a".repeat(9000))), Refused(414)),
        ("two spaces in the first line", target(" /v1/chat/completions"), Refused(400)),
        ("HTTP/0.9", "GET /health\r\n\r\n".into(), Refused(400)),
        ("HTTP/1.2", more("x: 1").replacen("HTTP/1.1", "HTTP/1.2", 1), Refused(400)),
        ("HTTP/2.0", more("x: 1").replacen("HTTP/1.1", "HTTP/2.0", 1), Refused(400)),
        ("http/1.1", more("x: 1").replacen("HTTP/1.1", "http/1.1", 1), Refused(400)),
        ("no version", more("x: 1").replacen(" HTTP/1.1", "", 1), Refused(400)),
        ("no HTTP at all", "\u{16}\u{3}\u{1} something else\r\n\r\n".into(), Refused(400)),
        ("a method with a colon", line("GE:T /health HTTP/1.1"), Refused(400)),
        ("CONNECT", line("CONNECT a:80 HTTP/1.1"), Refused(405)),
        ("CONNECT of a path", line("CONNECT /v1/chat/completions HTTP/1.1"), Refused(405)),
        (
            "an upgrade to HTTP/2",
            more("connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA"),
            Arrives,
        ),
        ("an upgrade to something", more("connection: upgrade\r\nupgrade: websocket"), Arrives),
        ("a hidden length", more("connection: content-length"), Arrives),
        ("a hidden Host", more("connection: host"), Refused(400)),
    ]
}

async fn answers(cases: Vec<(&'static str, String, Outcome)>) {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for (what, request, outcome) in cases {
        let before = engine.turns();
        let mut client = balancer.client().await;
        // It may be refused, and the connection closed, before all of it is sent.
        let _ = client.wire.send(request.as_bytes()).await;
        let _ = client.wire.send(if outcome == Arrives { "" } else { INNER }.as_bytes()).await;
        let answer = client.response("POST").await;
        let came = engine.requests()[before..].to_vec();
        match outcome {
            Arrives => {
                assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                assert_eq!(came.len(), 1, "{what}");
                assert_eq!(came[0].target(), "/v1/chat/completions", "{what}");
                assert_eq!(came[0].framing, Some(Framing::Length(BODY.len())), "{what}: {:?}", came[0].head);
                assert_eq!(came[0].body, BODY.as_bytes(), "{what}");
            }
            Refused(status) => {
                assert_eq!((answer.status, came.len()), (status, 0), "{what}: {}", answer.text());
                assert_eq!(answer.header("connection"), Some("close"), "{what}");
                assert!(answer.json()["error"]["code"].is_string(), "{what}: {}", answer.text());
                assert_eq!(answer.header("x-homing-error"), answer.json()["error"]["code"].as_str(), "{what}");
                let _ = client.wire.finish().await;
                assert!(within("its end", client.wire.closed_or_head()).await.is_none(), "{what}: a second answer");
            }
        }
        // The connections to the engine are clean: each request on them is the one that was asked.
        let clean = Ask::messages("m", what);
        assert_eq!(balancer.ask(&clean).await.status, 200, "after {what}");
        assert_eq!((engine.last().target(), &engine.last().body), ("/v1/messages", &clean.body), "after {what}");
    }
    assert!(engine.requests().iter().any(|request| request.nth_on_connection > 0), "connections are used again");
}

#[tokio::test]
async fn two_framings_or_odd_ones_are_refused() {
    answers(framings()).await;
}

#[tokio::test]
async fn odd_chunks_are_refused() {
    answers(chunkings()).await;
}

#[tokio::test]
async fn odd_heads_are_refused() {
    answers(heads()).await;
}

/// Whatever the pieces in which it arrives.
#[tokio::test]
async fn a_request_in_single_bytes_is_the_same_request() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let mut client = balancer.client().await;
    let asks = [chunked("transfer-encoding: chunked"), plain(&format!("content-length: {}", BODY.len()))];
    for (n, request) in asks.iter().cycle().take(4).enumerate() {
        for byte in request.as_bytes() {
            client.send_bytes(&[*byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.response("POST").await.status, 200);
        assert_eq!((engine.turns(), engine.last().body.as_slice()), (n + 1, BODY.as_bytes()));
    }
}

/// What a client sets in its headers stays one header, and what an engine answers stays one answer.
#[tokio::test]
async fn refusals_speak_the_dialect_of_the_path() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for (path, anthropic) in [("/v1/messages", true), ("/v1/messages?beta=true", true), ("/v1/chat/completions", false)]
    {
        let mut client = balancer.client().await;
        client.send_bytes(format!("POST {path} HTTP/1.1\r\nno colon\r\n\r\n").as_bytes()).await;
        let answer = client.response("POST").await;
        assert_eq!((answer.status, answer.json()["type"] == "error"), (400, anthropic), "{path}");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
    balancer.metric_becomes("homing_errors_total", &[("code", "bad_request")], 3.0).await;
}

/// A body that says that it is packed cannot be read, so what it asks cannot be known.
#[tokio::test]
async fn packed_bodies_are_refused() {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    for (path, kind) in ask::DIALECTS.iter().zip(["invalid_request_error", "invalid_request_error"]) {
        for encoding in ["gzip", "deflate", "br", "zstd", "identity, gzip", "x"] {
            let answer = balancer.ask(&Ask::turn(path, "m", "Hello.").header("content-encoding", encoding)).await;
            assert_eq!((answer.status, answer.header("x-homing-error")), (415, Some("content_encoding")), "{encoding}");
            assert_eq!(answer.header("accept-encoding"), Some("identity"));
            assert_eq!(answer.json()["error"]["type"], kind);
        }
        let identity = Ask::turn(path, "m", "Hello.").header("content-encoding", "identity");
        assert_eq!(balancer.ask(&identity).await.status, 200);
    }
    assert_eq!(engine.turns(), 2);
}
