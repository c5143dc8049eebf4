use homing::request::Dialect;
use homing::request::head::{Fault, Framing, HEADERS_MAX, Scanner, check, dialect};
use proptest::prelude::*;

fn post(lines: &str) -> String {
    format!("POST /v1/messages HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

#[test]
fn the_framing_is_told() {
    for (lines, framing) in [
        ("", Framing::Length(0)),
        ("content-length: 0\r\n", Framing::Length(0)),
        ("Content-Length:18446744073709551615\r\n", Framing::Length(u64::MAX)),
        ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
        ("upgrade: h2c\r\n", Framing::Length(0)),
        ("Upgrade: WebSocket\r\nconnection: upgrade\r\n", Framing::WebSocket),
        ("upgrade: websocket\r\ncontent-length: 3\r\n", Framing::Length(3)),
    ] {
        assert_eq!(check(post(lines).as_bytes(), HEADERS_MAX), Ok(framing), "{lines:?}");
    }
}

#[test]
fn headers_are_counted() {
    let head = post(&"x: 1\r\n".repeat(20));
    assert_eq!(check(head.as_bytes(), 21), Ok(Framing::Length(0)));
    assert_eq!(check(head.as_bytes(), 20), Err(Fault::TooManyHeaders));
    assert_eq!(check(post(&"x: 1\r\n".repeat(500)).as_bytes(), 1000), Err(Fault::TooManyHeaders));
}

#[test]
fn the_end_is_found_whatever_the_pieces() {
    let head = post("x: 1\r\n");
    let all = format!("{head}{{}}\r\n\r\n");
    for first in 0..=all.len() {
        let mut scanner = Scanner::default();
        let found = scanner.end(&all.as_bytes()[..first]).expect("a sound head");
        let found = found.or_else(|| scanner.end(all.as_bytes()).expect("a sound head"));
        assert_eq!(found, Some(head.len()), "{first}");
    }
    assert_eq!(Scanner::default().end(b"GET / HTTP/1.1\n"), Err(Fault::Malformed("a line ends in a line feed alone")));
    assert!(Scanner::default().end(b"\n").is_err());
}

#[test]
fn the_dialect_is_told_of_a_broken_head_too() {
    for (head, expected) in [
        ("POST /v1/messages?beta=true HTTP/1.1\r\nno colon", Dialect::Anthropic),
        ("POST /v1/messages/count_tokens", Dialect::Anthropic),
        ("POST /v1/messages\r\n", Dialect::Anthropic),
        ("POST /v1/messagesx HTTP/1.1", Dialect::OpenAi),
        ("POST", Dialect::OpenAi),
        ("", Dialect::OpenAi),
        ("\r\n /v1/messages", Dialect::OpenAi),
    ] {
        assert_eq!(dialect(head.as_bytes()), expected, "{head:?}");
    }
}

/// Heads that are nearly right.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        Just("content-length: 5\r\n".to_string()),
        Just("transfer-encoding: chunked\r\n".to_string()),
        Just("host: b\r\n".to_string()),
        Just("x: 1\r\n".to_string()),
        "[ -~\t\r\n\u{0}\u{e9}]{0,4}",
    ];
    (prop::collection::vec(pieces, 0..4), any::<prop::sample::Index>(), prop::option::of(any::<u8>())).prop_map(
        |(pieces, at, byte)| {
            let mut head = post(&pieces.concat()).into_bytes();
            if let Some(byte) = byte {
                let at = at.index(head.len());
                head[at] = byte;
            }
            head
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// What passes has one framing and one Host, however leniently it is read.
    #[test]
    fn what_passes_says_one_thing(head in nearly()) {
        let Ok(Some(end)) = Scanner::default().end(&head) else { return Ok(()) };
        let Ok(framing) = check(&head[..end], HEADERS_MAX) else { return Ok(()) };
        let text = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
        let lines: Vec<&str> = text.split("\r\n").collect();
        let named = |name: &str| lines.iter().filter(|line| line.trim_start().starts_with(name)).count();
        prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']), "{text:?}");
        prop_assert!(!lines.iter().any(|line| line.starts_with([' ', '\t'])), "{text:?}");
        prop_assert!(named("host") >= 1 && named("host:") <= 1, "{text:?}");
        prop_assert!(named("content-length:") + named("transfer-encoding:") <= 1, "{text:?}");
        prop_assert_eq!(framing == Framing::Chunked, named("transfer-encoding:") == 1, "{:?}", text);
    }
}
