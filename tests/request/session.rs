//! Sessions that the headers name, and the order of the sources.

use homing::request::endpoint::{Endpoint, Route, route};
use homing::request::peek::peek;
use homing::request::session::{self, Found, InHeaders, Rules, Session};
use homing::request::source::KeySource;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// The sources that are on by default, in their order.
const SOURCES: [KeySource; 8] = [
    KeySource::ClaudeCode,
    KeySource::Codex,
    KeySource::SessionHeaders,
    KeySource::SessionIdHeaders,
    KeySource::GatewayHeaders,
    KeySource::MetadataUserId,
    KeySource::BodyIds,
    KeySource::Opening,
];
pub const RULES: Rules<'static> = Rules { headers: &[], sources: &SOURCES, agents_apart: true };

pub fn rules(sources: &[KeySource]) -> Rules<'_> {
    Rules { sources, ..RULES }
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        let name = HeaderName::try_from(*name).expect("a header name");
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a header value"));
    }
    headers
}

fn endpoint(path: &str) -> Endpoint {
    match route(&Method::POST, path) {
        Route::Engine(endpoint) => endpoint,
        other => panic!("{path}: {other:?}"),
    }
}

pub type Id = (Vec<u8>, Option<Vec<u8>>, Found);

fn owned(session: Session<'_>) -> Id {
    (session.id.to_vec(), session.agent.map(<[u8]>::to_vec), session.source)
}

/// What both ways of asking say: the headers alone where they suffice, and everything.
pub fn find(rules: Rules<'_>, path: &str, list: &[(&str, &str)], body: &str) -> Option<Id> {
    let (endpoint, headers) = (endpoint(path), headers(list));
    let peeked = peek(body.as_bytes()).ok();
    let found = session::find(rules, &endpoint, &headers, peeked.as_ref()).map(owned);
    match session::from_headers(rules, &endpoint, &headers) {
        InHeaders::Found(session) => assert_eq!(Some(owned(session)), found),
        InHeaders::Absent => assert_eq!(found, None),
        InHeaders::NeedsBody => {}
    }
    found
}

pub fn chat(list: &[(&str, &str)], body: &str) -> Option<Id> {
    find(RULES, "/v1/chat/completions", list, body)
}

pub fn id(id: &str, source: KeySource) -> Option<Id> {
    Some((id.into(), None, Found::Source(source)))
}

fn agent(id: &str, agent: &str, source: KeySource) -> Option<Id> {
    Some((id.into(), Some(agent.into()), Found::Source(source)))
}

pub const UUID: &str = "3f2b8c1e-9a4d-4e6f-8b7a-1c2d3e4f5a6b";
pub const OTHER: &str = "9d8c7b6a-5f4e-4d3c-9b2a-0f1e2d3c4b5a";

#[test]
fn each_client_is_known_by_its_headers() {
    use KeySource::*;
    for (list, expected) in [
        (&[("x-claude-code-session-id", UUID)][..], id(UUID, ClaudeCode)),
        (
            &[
                ("x-claude-code-session-id", UUID),
                ("x-claude-code-agent-id", "a1"),
                ("x-claude-code-parent-agent-id", "a0"),
            ],
            agent(UUID, "a1", ClaudeCode),
        ),
        (&[("user-agent", "codex_cli_rs/0.50.0"), ("session-id", UUID)], id(UUID, Codex)),
        (&[("user-agent", "Codex Desktop/1.0"), ("session_id", UUID)], id(UUID, Codex)),
        (&[("originator", "codex_vscode"), ("conversation_id", UUID)], id(UUID, Codex)),
        (&[("x-codex-turn-metadata", "{}"), ("session_id", UUID)], id(UUID, Codex)),
        (&[("originator", "codex_exec"), ("session-id", UUID), ("thread-id", OTHER)], agent(UUID, OTHER, Codex)),
        (&[("originator", "codex_exec"), ("session-id", UUID), ("thread-id", UUID)], id(UUID, Codex)),
        (&[("originator", "codex_exec"), ("session_id", UUID), ("session-id", OTHER)], id(OTHER, Codex)),
        (&[("x-session-id", UUID)], id(UUID, SessionHeaders)),
        (&[("x-session-affinity", UUID)], id(UUID, SessionHeaders)),
        (&[("x-opencode-session", "ses_5c1fa7"), ("x-parent-session-id", UUID)], id("ses_5c1fa7", SessionHeaders)),
        (&[("x-opencode-session", UUID), ("x-session-id", OTHER)], id(OTHER, SessionHeaders)),
        (&[("session_id", UUID)], id(UUID, SessionIdHeaders)),
        (&[("session-id", UUID), ("thread-id", OTHER)], id(UUID, SessionIdHeaders)),
        (&[("x-litellm-session-id", UUID)], id(UUID, GatewayHeaders)),
        (&[("x-kilocode-taskid", UUID)], id(UUID, GatewayHeaders)),
        (&[("x-task-id", UUID)], id(UUID, GatewayHeaders)),
        (&[("x-openwebui-chat-id", UUID)], id(UUID, GatewayHeaders)),
        (&[("x-conversation-id", UUID)], id(UUID, GatewayHeaders)),
        // The first row that matches wins, whatever the order of the headers.
        (&[("x-session-id", OTHER), ("x-claude-code-session-id", UUID)], id(UUID, ClaudeCode)),
        // Not Codex: its headers mean nothing more than they say.
        (&[("user-agent", "my-codex"), ("conversation_id", UUID)], None),
        (&[("user-agent", "code"), ("conversation_id", UUID)], None),
    ] {
        assert_eq!(chat(list, "{}"), expected, "{list:?}");
    }
}

#[test]
fn what_differs_from_request_to_request_is_no_key() {
    for name in ["x-request-id", "traceparent", "x-correlation-id", "x-forwarded-for", "x-client-request-id", "cookie"]
    {
        assert_eq!(chat(&[(name, UUID)], "{}"), None, "{name}");
    }
    assert_eq!(chat(&[("x-claude-code-agent-id", UUID)], "{}"), None, "an agent needs a session");
}

#[test]
fn ids_are_opaque_and_anything_else_is_passed_over() {
    let long = "x".repeat(128);
    for good in ["12345678", "a.b_c:d-", &long] {
        assert_eq!(chat(&[("x-session-id", good)], "{}"), id(good, KeySource::SessionHeaders), "{good}");
    }
    let too_long = "x".repeat(129);
    for bad in ["", "1234567", "has space", "a/b/c/d/e", "id,id,id,id", "{\"a\":1234}", "sessión-1", &too_long] {
        let list = [("x-claude-code-session-id", bad), ("x-session-affinity", UUID)];
        assert_eq!(chat(&list, "{}"), id(UUID, KeySource::SessionHeaders), "{bad}");
        let body = serde_json::json!({"prompt_cache_key": bad, "litellm_session_id": UUID}).to_string();
        assert_eq!(chat(&[], &body), id(UUID, KeySource::BodyIds), "{bad}");
    }
}

#[test]
fn the_first_value_of_a_header_counts() {
    assert_eq!(chat(&[("x-session-id", UUID), ("x-session-id", OTHER)], "{}"), id(UUID, KeySource::SessionHeaders));
    assert_eq!(chat(&[("x-session-id", "short"), ("x-session-id", OTHER)], "{}"), None);
}

#[test]
fn the_operators_headers_come_first_and_count_as_they_stand() {
    let names = [HeaderName::from_static("x-tenant-chat"), HeaderName::from_static("x-other")];
    let rules = Rules { headers: &names, ..RULES };
    let with = |list: &[(&str, &str)]| find(rules, "/v1/chat/completions", list, "{}");
    let operator = |value: &str| Some((value.as_bytes().to_vec(), None, Found::Operator));
    let claude = ("x-claude-code-session-id", UUID);
    let longest = "x".repeat(256);
    for value in ["7", "chat 7, été", &longest] {
        assert_eq!(with(&[claude, ("x-tenant-chat", value)]), operator(value));
    }
    assert_eq!(with(&[("x-other", "b"), ("x-tenant-chat", "a")]), operator("a"));
    assert_eq!(with(&[("x-other", "b"), ("x-tenant-chat", "")]), operator("b"));
    assert_eq!(with(&[claude, ("x-tenant-chat", &"x".repeat(257))]), id(UUID, KeySource::ClaudeCode));
}

#[test]
fn the_configured_order_decides_and_what_is_not_listed_is_off() {
    let sources = [KeySource::BodyIds, KeySource::SessionHeaders];
    let list = [("x-session-id", UUID), ("x-claude-code-session-id", UUID)];
    let with = |sources: &[KeySource], body: &str| find(rules(sources), "/v1/chat/completions", &list, body);
    assert_eq!(with(&sources, &format!(r#"{{"session_id":"{OTHER}"}}"#)), id(OTHER, KeySource::BodyIds));
    assert_eq!(with(&sources, "{}"), id(UUID, KeySource::SessionHeaders));
    assert_eq!(with(&sources, "not json"), id(UUID, KeySource::SessionHeaders));
    assert_eq!(with(&[KeySource::GatewayHeaders], "{}"), None);
    assert_eq!(with(&[], "{}"), None);
}

#[test]
fn the_headers_say_whether_the_body_is_needed() {
    let from = |sources: &[KeySource], path: &str, list: &[(&str, &str)]| match session::from_headers(
        rules(sources),
        &endpoint(path),
        &headers(list),
    ) {
        InHeaders::Found(_) => "found",
        InHeaders::NeedsBody => "needs body",
        InHeaders::Absent => "absent",
    };
    let session = [("x-session-id", UUID)];
    assert_eq!(from(&SOURCES, "/v1/chat/completions", &session), "found");
    assert_eq!(from(&SOURCES, "/v1/chat/completions", &[]), "needs body");
    assert_eq!(from(&[KeySource::BodyIds, KeySource::SessionHeaders], "/v1/chat/completions", &session), "needs body");
    assert_eq!(from(&[KeySource::Opening, KeySource::SessionHeaders], "/v1/embeddings", &session), "found");
    assert_eq!(from(&[KeySource::SessionHeaders], "/v1/chat/completions", &[]), "absent");
    // A form holds none of these keys.
    assert_eq!(from(&SOURCES, "/v1/audio/transcriptions", &[]), "absent");
    assert_eq!(from(&[KeySource::BodyIds, KeySource::SessionHeaders], "/v1/audio/transcriptions", &session), "found");
}

#[test]
fn agents_stay_together_where_they_are_told_to() {
    let together = Rules { agents_apart: false, ..RULES };
    for list in [
        [("x-claude-code-session-id", UUID), ("x-claude-code-agent-id", "a1"), ("x", "")],
        [("originator", "codex_exec"), ("session-id", UUID), ("thread-id", OTHER)],
    ] {
        let (_, agent, _) = find(together, "/v1/messages", &list, "{}").expect("a session");
        assert_eq!(agent, None);
        let (_, agent, _) = find(RULES, "/v1/messages", &list, "{}").expect("a session");
        assert!(agent.is_some());
    }
}

#[test]
fn no_id_shows_in_debug_output() {
    let headers = headers(&[("x-claude-code-session-id", UUID), ("x-claude-code-agent-id", OTHER)]);
    let shown = format!("{:?}", session::from_headers(RULES, &endpoint("/v1/messages"), &headers));
    assert!(shown.contains("ClaudeCode") && !shown.contains(UUID) && !shown.contains(OTHER), "{shown}");
}

#[test]
fn sources_are_named_as_the_configuration_writes_them() {
    let names =
        "claude_code codex session_headers session_id_headers gateway_headers metadata_user_id body_ids opening";
    for (name, source) in names.split(' ').zip(SOURCES) {
        assert_eq!(serde_json::from_value::<KeySource>(name.into()).expect(name), source);
    }
    for (name, source) in [("body_user", KeySource::BodyUser), ("client_request_id", KeySource::ClientRequestId)] {
        assert_eq!(serde_json::from_value::<KeySource>(name.into()).expect(name), source);
    }
}
