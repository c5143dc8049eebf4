//! Real captures: what was said in them is what is read from them.

use std::fs;
use std::path::{Path, PathBuf};

use homing::fleet::vllm_metrics::{self, EngineMetrics, RankMetrics};
use homing::request::endpoint::{self, Dialect, Endpoint, Kind, Local, Route};
use homing::request::key::{Caller, KeyHasher};
use homing::request::peek::peek;
use homing::request::rewrite::{Renamed, UnaskedUsage};
use homing::request::session::{self, Found, InHeaders, Rules};
use homing::request::source::KeySource;
use homing::request::usage::{self, Usage, UsageReader};
use homing::routing::Key;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

fn sample(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn samples(folder: &str) -> Vec<String> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/samples", folder].iter().collect();
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("the samples are there")
        .map(|entry| entry.expect("a readable entry").file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
    names
}

/// No capture lies there unread.
fn assert_same_names(folder: &str, mut expected: Vec<String>) {
    expected.sort();
    assert_eq!(samples(folder), expected);
}

/// A captured message: its first line, its headers, and its body with the chunks taken off.
struct Message {
    start: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

fn message(raw: &[u8]) -> Message {
    let end = memchr::memmem::find(raw, b"\r\n\r\n").expect("headers end");
    let head = String::from_utf8(raw[..end].to_vec()).expect("plain headers");
    let body = &raw[end + 4..];
    if head.starts_with("HTTP/1.1 100") {
        return message(body);
    }
    let (start, lines) = head.split_once("\r\n").unwrap_or((&head, ""));
    let mut headers = HeaderMap::new();
    for (name, value) in lines.split("\r\n").filter_map(|line| line.split_once(": ")) {
        let name = HeaderName::try_from(name).expect("a header name");
        headers.append(name, HeaderValue::try_from(value).expect("a header value"));
    }
    let chunked = headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked");
    Message { start: start.to_owned(), headers, body: if chunked { dechunk(body) } else { body.to_vec() } }
}

/// The body of a chunked message; as far as it goes, where the client left.
fn dechunk(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = memchr::memmem::find(raw, b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..end]).expect("a chunk size"), 16).expect("hex");
        let chunk = &raw[end + 2..];
        body.extend_from_slice(&chunk[..size.min(chunk.len())]);
        raw = chunk.get(size + 2..).unwrap_or_default();
    }
    body
}

fn streamed(body: &[u8], piece: usize) -> Option<Usage> {
    let mut reader = UsageReader::new();
    body.chunks(piece).for_each(|piece| reader.feed(piece));
    assert_eq!(reader.skipped_lines(), 0);
    reader.usage()
}

fn used(prompt: u64, cached: impl Into<Option<u64>>, completion: u64) -> Option<Usage> {
    Some(Usage { prompt, cached: cached.into(), completion })
}

#[test]
fn every_answer_gives_its_usage() {
    let expected = [
        ("anthropic-count-tokens", None),
        ("anthropic-messages-engine-killed", None),
        ("anthropic-messages-nonstream", used(1016, 896, 16)),
        ("anthropic-messages-stream-tool", used(1090, 896, 64)),
        ("anthropic-messages-stream-turn1", used(994, 0, 16)),
        ("anthropic-messages-stream-turn2", used(1016, 896, 16)),
        ("err-anthropic-wrong-model", None),
        ("err-openai-wrong-model", None),
        ("openai-chat-client-abort", None),
        ("openai-chat-dp-rank-header", used(995, 896, 4)),
        ("openai-chat-nonstream", used(1017, 896, 16)),
        ("openai-chat-nonstream-toolrequired", used(1091, 1024, 41)),
        ("openai-chat-stream-contusage", used(1017, 896, 8)),
        ("openai-chat-stream-expect100", None),
        ("openai-chat-stream-nousage", None),
        ("openai-chat-stream-tool", used(1091, 896, 48)),
        ("openai-chat-stream-turn1", used(995, 0, 16)),
        ("openai-chat-stream-turn2", used(1017, 896, 16)),
        ("openai-completions-stream", used(961, 0, 8)),
        ("openai-responses-stream", used(14, 0, 8)),
    ];
    let names: Vec<_> = expected.iter().map(|(name, _)| format!("{name}.http")).collect();
    assert_same_names("answers", names);
    for (name, usage) in expected {
        let answer = message(&sample(&format!("answers/{name}.http")));
        if answer.headers["content-type"].as_bytes().starts_with(b"text/event-stream") {
            for piece in [1, 7, 1460, usize::MAX] {
                assert_eq!(streamed(&answer.body, piece), usage, "{name} in pieces of {piece}");
            }
        } else {
            assert_eq!(usage::whole(&answer.body), usage, "{name}");
        }
    }
}

/// Chunks with `continuous_usage_stats` count up without saying what was cached; only the last one does.
#[test]
fn usage_that_counts_up_is_overwritten() {
    let answer = message(&sample("answers/openai-chat-stream-contusage.http"));
    let last = memchr::memmem::rfind(&answer.body, b"\"choices\":[]").expect("a final usage");
    assert_eq!(streamed(&answer.body[..last], 1460), used(1017, None, 8));
}

/// The capture's model is tiny everywhere: all that changes is its name.
#[test]
fn every_answer_can_bear_the_clients_name() {
    for name in samples("answers") {
        let answer = message(&sample(&format!("answers/{name}")));
        let streamed = answer.headers["content-type"].as_bytes().starts_with(b"text/event-stream");
        let text = String::from_utf8(answer.body.clone()).expect("text");
        for piece in [1, 7, 1460, usize::MAX] {
            let mut renamed = if streamed { Renamed::stream("claude-x") } else { Renamed::whole("claude-x") };
            let mut out = Vec::new();
            answer.body.chunks(piece.min(answer.body.len())).for_each(|piece| renamed.feed(piece, &mut out));
            let expected = text.replace(r#""model":"tiny""#, r#""model":"claude-x""#);
            assert_eq!(String::from_utf8(out).expect("text"), expected, "{name} in pieces of {piece}");
        }
    }
}

/// What a client that asked for no usage would have got, were it not for the one chunk.
#[test]
fn the_chunk_of_usage_can_be_hidden() {
    for name in samples("answers").iter().filter(|name| name.contains("stream")) {
        let body = message(&sample(&format!("answers/{name}"))).body;
        let (mut filter, mut out) = (UnaskedUsage::default(), Vec::new());
        body.chunks(100).for_each(|piece| filter.feed(piece, &mut out));
        filter.finish(&mut out);
        let text = String::from_utf8(body).expect("text");
        let expected: String =
            text.split_inclusive("\n\n").filter(|event| !event.contains(r#""choices":[],"#)).collect();
        assert_eq!(String::from_utf8(out).expect("text"), expected, "{name}");
    }
}

#[test]
fn every_request_has_its_route() {
    for name in samples("requests") {
        let request = message(&sample(&format!("requests/{name}")));
        let mut words = request.start.split(' ');
        let method: Method = words.next().unwrap_or_default().parse().expect("a method");
        let path = words.next().expect("a path");
        let route = endpoint::route(&method, path);
        let expected = match path {
            "/v1/models" => Route::Local(Local::Models),
            "/health" => Route::Local(Local::Health),
            "/ping" => Route::Local(Local::Ping),
            "/version" => Route::Local(Local::Version),
            "/load" | "/metrics" => Route::Closed,
            _ => {
                let peeked = peek(&request.body).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(peeked.model.as_deref(), Some("tiny"), "{name}");
                assert_eq!(peeked.stream, message_is_streamed(&name), "{name}");
                assert!(peeked.opening().is_some(), "{name}");
                assert!(matches!(route, Route::Engine(_)), "{name}: {route:?}");
                assert_eq!(endpoint::dialect_of(path) == Dialect::Anthropic, name.starts_with("anthropic"), "{name}");
                continue;
            }
        };
        assert_eq!(route, expected, "{name}");
    }
}

fn message_is_streamed(name: &str) -> bool {
    let answer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/answers").join(name);
    answer.exists() && message(&fs::read(answer).expect("readable")).headers["content-type"] != "application/json"
}

/// The captured ids (`sess-1`, `sess-a`) are too short to be ids, so the opening tells these conversations apart.
#[test]
fn the_turns_of_a_captured_conversation_share_a_key() {
    let key = |name: &str| {
        let request = message(&sample(&format!("requests/{name}.http")));
        let path = request.start.split(' ').nth(1).expect("a path").to_owned();
        let endpoint = engine(&path);
        let sources = [KeySource::ClaudeCode, KeySource::SessionHeaders, KeySource::MetadataUserId, KeySource::Opening];
        let rules = Rules { headers: &[], sources: &sources, agents_apart: true };
        assert_eq!(session::from_headers(rules, &endpoint, &request.headers), InHeaders::NeedsBody);
        let peeked = peek(&request.body).expect("JSON");
        let session = session::find(rules, &endpoint, &request.headers, Some(&peeked)).expect("an opening");
        assert_eq!(session.source, Found::Source(KeySource::Opening));
        assert_eq!(&*session.id, opening(&endpoint), "{name}");
        KeyHasher::new([7; 16]).key(&session, Caller::of(&request.headers))
    };
    let same = |names: &[&str]| {
        let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "{names:?}");
        keys[0]
    };
    let chat = same(&["openai-chat-stream-turn1", "openai-chat-stream-turn2", "openai-chat-nonstream"]);
    let messages =
        same(&["anthropic-messages-stream-turn1", "anthropic-messages-stream-turn2", "anthropic-count-tokens"]);
    let responses = key("openai-responses-stream");
    // The same words under another credential are another conversation.
    assert_ne!(chat, messages);
    assert_ne!(chat, responses);
}

fn engine(path: &str) -> Endpoint {
    match endpoint::route(&Method::POST, path) {
        Route::Engine(endpoint) => endpoint,
        other => panic!("{path}: {other:?}"),
    }
}

fn opening(endpoint: &Endpoint) -> &'static [u8] {
    match endpoint.kind {
        Kind::Responses => b"Hello there",
        _ => b"First question about the session",
    }
}

fn metrics(name: &str) -> EngineMetrics {
    let text = String::from_utf8(sample(&format!("metrics/{name}.txt"))).expect("UTF-8");
    vllm_metrics::parse(&text)
}

/// An awake rank that has done nothing.
fn idle(capacity_tokens: u64) -> RankMetrics {
    RankMetrics {
        running: Some(0),
        waiting: Some(0),
        kv_cache_usage: Some(0.0),
        prefix_queries: Some(0),
        prefix_hits: Some(0),
        prompt_tokens: Some(0),
        generation_tokens: Some(0),
        preemptions: Some(0),
        asleep: Some(false),
        capacity_tokens: Some(capacity_tokens),
    }
}

fn prefix(queries: u64, hits: u64, generated: u64, idle: RankMetrics) -> RankMetrics {
    RankMetrics {
        prefix_queries: Some(queries),
        prefix_hits: Some(hits),
        prompt_tokens: Some(queries),
        generation_tokens: Some(generated),
        ..idle
    }
}

#[test]
fn every_metrics_text_is_read() {
    let busy = RankMetrics {
        running: Some(32),
        waiting: Some(32),
        kv_cache_usage: Some(0.029298663248489287),
        ..prefix(101_827, 58_720, 1_638, idle(524_288))
    };
    let expected = [
        ("vllm-0.13.0", Some(1.79596159015e9), vec![idle(197_520)]),
        ("vllm-0.20.2", Some(1.79596158998e9), vec![idle(197_520)]),
        ("vllm-0.32.0", Some(1.79596163916e9), vec![prefix(15_335, 10_880, 313, idle(4_194_304))]),
        ("vllm-0.32.0-busy", Some(1.7959640143e9), vec![busy]),
        ("vllm-0.32.0-dp2", None, vec![prefix(95, 0, 20, idle(262_144)), prefix(133, 0, 28, idle(262_144))]),
        ("vllm-0.32.0-fresh", Some(1.79596163916e9), vec![idle(4_194_304)]),
        ("vllm-0.33.0", Some(1.79596158978e9), vec![idle(197_520)]),
    ];
    let names: Vec<_> = expected.iter().map(|(name, ..)| format!("{name}.txt")).collect();
    assert_same_names("metrics", names);
    for (name, process_start_s, ranks) in expected {
        let ranks = (0..).zip(ranks).collect();
        assert_eq!(metrics(name), EngineMetrics { ranks, process_start_s }, "{name}");
    }
}

/// `num_gpu_blocks` is the sum over the ranks: without `kv_cache_size_tokens`, each holds its part of it.
#[test]
fn blocks_are_shared_among_the_ranks() {
    let text = String::from_utf8(sample("metrics/vllm-0.32.0-dp2.txt")).expect("UTF-8");
    let older = text.replace("kv_cache_size_tokens=\"262144\",", "");
    assert_ne!(older, text);
    let capacities: Vec<_> = vllm_metrics::parse(&older).ranks.values().map(|rank| rank.capacity_tokens).collect();
    assert_eq!(capacities, [Some(262_144), Some(262_144)]);
}
