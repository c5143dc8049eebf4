//! Session keys: the headers and the whole request agree, what differs from turn to turn changes nothing, and no caller has
//! another's.

use homing::request::endpoint::{Endpoint, Kind};
use homing::request::session::{self, Found, InHeaders, Rules, Session};
use homing::request::source::KeySource;
use homing::request::{Caller, KeyHasher, peek};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::harness::{Fuzzer, Outcome, files};

/// All that there are, in the order of the default.
const SOURCES: [KeySource; 10] = [
    KeySource::ClaudeCode,
    KeySource::Codex,
    KeySource::SessionHeaders,
    KeySource::SessionIdHeaders,
    KeySource::GatewayHeaders,
    KeySource::MetadataUserId,
    KeySource::BodyIds,
    KeySource::BodyUser,
    KeySource::ClientRequestId,
    KeySource::Opening,
];
const RULES: Rules<'static> = Rules { headers: &[], sources: &SOURCES, agents_apart: true };

#[test]
fn a_session_is_found_the_same_in_every_way() {
    let seeds = files("samples/requests").into_iter().map(|(_, message)| message).collect();
    Fuzzer { name: "session", seeds, words: WORDS }.run(|input| {
        let (headers, body) = taken_apart(&input.bytes);
        let peeked = peek(body).ok();
        for kind in [Kind::Chat, Kind::Embeddings, Kind::Audio] {
            let endpoint = Endpoint { kind };
            let found = session::find(RULES, &endpoint, &headers, peeked.as_ref());
            match session::from_headers(RULES, &endpoint, &headers) {
                InHeaders::Found(session) => prop_assert_eq!(Some(&session), found.as_ref()),
                InHeaders::Absent => prop_assert!(found.is_none()),
                InHeaders::NeedsBody => {}
            }
            let Some(session) = found else { continue };
            is_sound(&session)?;
            let next = next_turn(&headers);
            let found_next = session::find(RULES, &endpoint, &next, peeked.as_ref());
            prop_assert_eq!(found_next.as_ref(), Some(&session));
            keys_are_apart(&session)?;
        }
        Ok(())
    });
}

const WORDS: &[&str] = &[
    "\r\n",
    "x-claude-code-session-id: session-0001\r\n",
    "x-claude-code-agent-id: agent-1\r\n",
    "user-agent: codex_cli\r\n",
    "session_id: session-0002\r\n",
    "thread-id: thread-1\r\n",
    "x-session-id: session-0003\r\n",
    "x-codex-turn: 1\r\n",
    "x-task-id: short\r\n",
    "x-client-request-id: request-0001\r\n",
    "x-session-id: a b\r\n",
    "\"metadata\":{\"user_id\":\"",
    "user_0a_account__session_session-0004",
    "{\\\"session_id\\\":\\\"session-0005\\\"}",
    "\"prompt_cache_key\":\"session-0006\",",
    "\"user\":\"a-person-0001\",",
    "\"conversation\":{\"id\":\"session-0007\"},",
    "0123456789",
    "é",
    "\\u0041",
];

/// The headers of a message that can be sent as such, and its body.
fn taken_apart(message: &[u8]) -> (HeaderMap, &[u8]) {
    let end = memchr::memmem::find(message, b"\r\n\r\n").unwrap_or(message.len());
    let mut headers = HeaderMap::new();
    for line in message[..end].split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    (headers, message.get(end + 4..).unwrap_or_default())
}

fn is_sound(session: &Session<'_>) -> Outcome {
    match session.source {
        Found::Operator => return Err(TestCaseError::fail("nothing of the operator's is configured")),
        Found::Source(KeySource::Opening) => prop_assert!(!session.id.is_empty()),
        Found::Source(_) => {
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(byte);
            prop_assert!((8..=128).contains(&session.id.len()) && session.id.iter().all(plain));
        }
    }
    prop_assert!(session.agent.is_none_or(|agent| (1..=256).contains(&agent.len())));
    Ok(())
}

/// The headers as they come with another request of the same session.
fn next_turn(headers: &HeaderMap) -> HeaderMap {
    let mut next = headers.clone();
    for name in ["x-request-id", "traceparent", "x-correlation-id", "content-length", "x-forwarded-for"] {
        next.insert(name, HeaderValue::from_static("00-another-request-01"));
    }
    next
}

fn keys_are_apart(session: &Session<'_>) -> Outcome {
    let hasher = KeyHasher::new([7; 16]);
    let key = |caller| hasher.key(session, Caller::named(caller));
    prop_assert!(key("a") == key("a") && key("a") != key("b"));
    prop_assert!(hasher.key(session, Caller::NOBODY) != key("a"));
    prop_assert!(KeyHasher::new([8; 16]).key(session, Caller::named("a")) != key("a"), "the seed does not count");
    let alone = Session { agent: None, ..session.clone() };
    prop_assert_eq!(hasher.key(&alone, Caller::named("a")) == key("a"), session.agent.is_none());
    Ok(())
}
