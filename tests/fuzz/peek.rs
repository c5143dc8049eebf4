//! The peek into a body says what a whole JSON reader says, whenever that can read it.

use homing::request::peek::{Peek, peek};
use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::harness::{Fuzzer, Outcome};
use super::request::bodies;

#[test]
fn peek_agrees_with_a_whole_reader() {
    Fuzzer { name: "peek", seeds: bodies(), words: WORDS }.run(|input| {
        let Ok(peeked) = peek(&input.bytes) else {
            let whole: Option<Value> = serde_json::from_slice(&input.bytes).ok();
            prop_assert!(!whole.is_some_and(|value| value.is_object()), "a sound object is refused");
            return Ok(());
        };
        // In strings, control characters pass.
        let plain: Vec<u8> = input.bytes.iter().map(|byte| (*byte).max(b' ')).collect();
        prop_assert!(serde_json::from_slice::<IgnoredAny>(&plain).is_ok(), "broken JSON passes");
        // A whole reader refuses more: text cut inside a surrogate pair, numbers out of range, deep nesting.
        let Ok(value) = serde_json::from_slice::<Value>(&input.bytes) else { return Ok(()) };
        same(&peeked, &value)?;
        later_turns_keep_the_opening(&peeked, value)
    });
}

pub const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\\"",
    ",",
    ":",
    "null",
    "true",
    "1e999",
    "-0",
    "\"\"",
    "\\ud800",
    "\\u0000",
    "é",
    "\"model\":\"m\",",
    "\"model\":1,",
    "\"mod\\u0065l\":\"x\",",
    "\"stream\":true,",
    "\"stream_options\":{},",
    "\"stream_options\":null,",
    "{\"include_usage\":false}",
    "\"metadata\":{\"user_id\":\"u\",\"session_id\":\"s\"},",
    "\"conversation\":{\"id\":\"c\"},",
    "\"user\":\"u\",",
    "\"prompt\":\"p\",",
    "\"input\":[{\"role\":\"user\",\"content\":",
    "{\"role\":\"user\",\"content\":\"hello\"},",
    "<system-reminder>",
    "{\"type\":\"text\",\"text\":\"t\"},",
];

fn same(peeked: &Peek<'_>, value: &Value) -> Outcome {
    let conversation = match &value["conversation"] {
        Value::Object(object) if object.contains_key("id") => &object["id"],
        conversation => conversation,
    };
    for (name, found, expected) in [
        ("model", &peeked.model, &value["model"]),
        ("user", &peeked.user, &value["user"]),
        ("metadata.user_id", &peeked.metadata_user_id, &value["metadata"]["user_id"]),
        ("metadata.session_id", &peeked.metadata_session_id, &value["metadata"]["session_id"]),
        ("prompt_cache_key", &peeked.prompt_cache_key, &value["prompt_cache_key"]),
        ("session_id", &peeked.session_id, &value["session_id"]),
        ("conversation", &peeked.conversation, conversation),
        ("litellm_session_id", &peeked.litellm_session_id, &value["litellm_session_id"]),
        ("previous_response_id", &peeked.previous_response_id, &value["previous_response_id"]),
    ] {
        prop_assert_eq!(found.as_deref(), expected.as_str(), "{}", name);
    }
    prop_assert_eq!(peeked.stream, value["stream"] == json!(true));
    Ok(())
}

/// A client resends what it said before: what comes behind it does not make another conversation of it.
fn later_turns_keep_the_opening(peeked: &Peek<'_>, mut value: Value) -> Outcome {
    let opening = peeked.opening();
    prop_assert!(opening.as_ref().is_none_or(|opening| opening.chars().count() <= 512 && !opening.trim().is_empty()));
    let (Some(opening), Some(messages)) = (opening, value["messages"].as_array_mut()) else { return Ok(()) };
    let said_by_user =
        messages.iter().any(|message| message["role"] == json!("user") && says(&message["content"], &opening));
    if said_by_user {
        messages.push(json!({"role": "user", "content": "And now something else."}));
        let later = value.to_string();
        let later = peek(later.as_bytes()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(later.opening(), Some(opening));
    }
    Ok(())
}

/// Whether a content is this opening and nothing that an agent put before it.
fn says(content: &Value, opening: &str) -> bool {
    content.as_str().is_some_and(|text| text.starts_with(opening)) && !opening.trim_start().starts_with('<')
}
