//! Sessions that the body names, and its opening where nothing does.

use homing::request::source::KeySource;

use super::session::{OTHER, RULES, UUID, chat, find, id, rules};

#[test]
fn metadata_user_id_holds_a_session_or_names_a_user() {
    let source = KeySource::MetadataUserId;
    let json = format!(r#"{{"device_id":"d","account_uuid":"{OTHER}","session_id":"{UUID}"}}"#);
    for (user_id, expected) in [
        (json, id(UUID, source)),
        (format!("user_00ff_account_{OTHER}_session_{UUID}"), id(UUID, source)),
        (format!("user_00ff_account__session_{UUID}"), id(UUID, source)),
        (format!("user_xyz_account__session_{UUID}"), None),
        (format!("user__account__session_{UUID}"), None),
        (format!("user_00ff_account_me@example.org_session_{UUID}"), None),
        ("user_00ff_account__session_short".into(), None),
        (format!("user_00ff_account_{OTHER}"), None),
        (UUID.into(), None),
        ("somebody".into(), None),
        (r#"{"session_id":"short"}"#.into(), None),
        (r#"{"session_id":12345678}"#.into(), None),
        (format!(r#"{{"user":{{"session_id":"{UUID}"}}}}"#), None),
        ("{".into(), None),
    ] {
        let body = serde_json::json!({"metadata": {"user_id": user_id}}).to_string();
        assert_eq!(find(RULES, "/v1/messages", &[], &body), expected, "{user_id}");
    }
}

#[test]
fn body_ids_are_asked_in_their_order() {
    let all = [
        ("prompt_cache_key", serde_json::json!("id-prompt-cache")),
        ("session_id", serde_json::json!("id-session")),
        ("conversation", serde_json::json!({"id": "id-conversation"})),
        ("litellm_session_id", serde_json::json!("id-litellm")),
        ("metadata", serde_json::json!({"session_id": "id-metadata"})),
    ];
    let expected = ["id-prompt-cache", "id-session", "id-conversation", "id-litellm", "id-metadata"];
    for (from, expected) in expected.into_iter().enumerate() {
        let body: serde_json::Map<_, _> =
            all[from..].iter().rev().map(|(key, value)| ((*key).into(), value.clone())).collect();
        let body = serde_json::Value::Object(body).to_string();
        assert_eq!(chat(&[], &body), id(expected, KeySource::BodyIds));
    }
}

#[test]
fn the_user_and_the_client_request_id_count_only_where_they_are_on() {
    let body = format!(r#"{{"user":"{UUID}"}}"#);
    let list = [("x-client-request-id", OTHER)];
    assert_eq!(chat(&list, &body), None);
    let sources = [KeySource::BodyUser, KeySource::ClientRequestId];
    let with = |list: &[(&str, &str)], body: &str| find(rules(&sources), "/v1/chat/completions", list, body);
    assert_eq!(with(&list, &body), id(UUID, KeySource::BodyUser));
    assert_eq!(with(&list, "{\"user\":\"Jo Doe, Example Inc\"}"), id(OTHER, KeySource::ClientRequestId));
}

#[test]
fn the_opening_stands_for_a_conversation_only_where_there_is_one() {
    let body = r#"{"messages":[{"role":"user","content":"hello"}],"input":"hello"}"#;
    for path in [
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/chat/completions/render",
        "/tokenize",
    ] {
        assert_eq!(find(RULES, path, &[], body), id("hello", KeySource::Opening), "{path}");
    }
    for path in ["/v1/embeddings", "/v1/rerank", "/v1/score", "/pooling", "/detokenize"] {
        assert_eq!(find(RULES, path, &[], body), None, "{path}");
    }
    assert_eq!(chat(&[("x-session-id", UUID)], body), id(UUID, KeySource::SessionHeaders));
    assert_eq!(chat(&[], "not json"), None);
}
