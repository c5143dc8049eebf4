//! What is changed of a request's body is what was to be changed, and nothing else.

use homing::request::peek;
use homing::request::rewrite::{Edit, apply};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::harness::{Fuzzer, Outcome, body, files};
use super::peek::WORDS;

/// Bodies as clients send them.
pub fn bodies() -> Vec<Vec<u8>> {
    let mut bodies: Vec<_> = files("samples/requests").iter().map(|(_, message)| body(message)).collect();
    bodies.retain(|body| body.starts_with(b"{"));
    bodies
}

#[test]
fn a_request_says_the_new_name_and_nothing_else_is_new() {
    Fuzzer { name: "request", seeds: bodies(), words: WORDS }.run(|input| {
        let Ok(once) = renamed(&input.bytes) else { return Ok(()) };
        let before = peek(&input.bytes).unwrap_or_default();
        let after = peek(&once).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(after.model.as_deref(), before.model.as_ref().map(|_| NAME));
        prop_assert_eq!(renamed(&once).ok(), Some(once.clone()), "renamed twice");
        let with_usage = usage_asked(&once);
        prop_assert_eq!(usage_asked(&with_usage), with_usage.clone(), "asked twice");
        let Ok(mut expected) = serde_json::from_slice::<Value>(&input.bytes) else { return Ok(()) };
        if expected["model"].is_string() {
            expected["model"] = NAME.into();
        }
        same(&once, &expected)?;
        if with_usage != once {
            expect_usage(&mut expected);
        }
        same(&with_usage, &expected)
    });
}

const NAME: &str = "a \"new\" näme";

fn renamed(body: &[u8]) -> Result<Vec<u8>, peek::NotJson> {
    let peeked = peek(body)?;
    Ok(apply(body, Edit::model(body, &peeked, NAME).into_iter().collect()))
}

fn usage_asked(body: &[u8]) -> Vec<u8> {
    let peeked = peek(body).unwrap_or_default();
    apply(body, Edit::include_usage(body, &peeked).into_iter().collect())
}

fn expect_usage(value: &mut Value) {
    match value["stream_options"].as_object_mut() {
        Some(options) => _ = options.insert("include_usage".into(), true.into()),
        None => value["stream_options"] = json!({"include_usage": true}),
    }
}

fn same(body: &[u8], expected: &Value) -> Outcome {
    let value: Value = serde_json::from_slice(body).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&value, expected);
    Ok(())
}
