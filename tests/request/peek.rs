use homing::request::peek::{NotJson, Peek, peek};
use proptest::prelude::*;
use serde_json::json;

fn read(body: &str) -> Peek<'_> {
    peek(body.as_bytes()).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn opening(body: serde_json::Value) -> Option<String> {
    read(&body.to_string()).opening()
}

#[test]
fn keys_are_found_wherever_they_stand() {
    let body = json!({
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"model": "not this", "deep": {"session_id": "nor-this-one"}}],
        "model": "m",
        "stream": true,
        "user": "u",
        "metadata": {"user_id": "mu", "session_id": "ms", "other": [1]},
        "prompt_cache_key": "p",
        "session_id": "s",
        "conversation": {"id": "c"},
        "litellm_session_id": "l",
        "previous_response_id": "r",
    })
    .to_string();
    let peek = read(&body);
    let strings = [
        (&peek.model, "m"),
        (&peek.user, "u"),
        (&peek.metadata_user_id, "mu"),
        (&peek.metadata_session_id, "ms"),
        (&peek.prompt_cache_key, "p"),
        (&peek.session_id, "s"),
        (&peek.conversation, "c"),
        (&peek.litellm_session_id, "l"),
        (&peek.previous_response_id, "r"),
    ];
    for (found, expected) in strings {
        assert_eq!(found.as_deref(), Some(expected));
    }
    assert!(peek.stream);
    assert_eq!(read(r#"{"conversation": "c"}"#).conversation.as_deref(), Some("c"));
}

#[test]
fn the_last_of_two_keys_counts() {
    assert_eq!(read(r#"{"model":"a","model":"b"}"#).model.as_deref(), Some("b"));
    assert_eq!(read(r#"{"model":"a","mod\u0065l":"b"}"#).model.as_deref(), Some("b"));
    assert_eq!(read(r#"{"model":"a","model":7}"#).model, None);
    assert_eq!(read(r#"{"metadata":{"user_id":"a"},"metadata":{}}"#).metadata_user_id, None);
}

#[test]
fn a_text_that_grows_keeps_its_opening() {
    for (field, grown) in [("prompt", json!("word ".repeat(900))), ("input", json!("word ".repeat(900)))] {
        let text = grown.as_str().expect("a text");
        let opening_at = |length: usize| opening(json!({field: &text[..length]}));
        let first = opening_at(512);
        assert!(first.is_some());
        for length in [513, 600, 1023, 1024, 1025, 4500] {
            assert_eq!(opening_at(length), first, "{field} of {length}");
        }
    }
}

#[test]
fn values_of_another_type_are_absent() {
    for value in ["null", "7", "-1.5e300", "true", "[]", "[\"x\"]", "{}", "{\"id\":7}", "{\"user_id\":[]}"] {
        let body = format!(
            r#"{{"model":{value},"stream":"yes","user":{value},"metadata":{value},"conversation":{value},"session_id":{value},"messages":{value},"input":{value},"prompt":{value}}}"#
        );
        let peek = read(&body);
        assert!(peek.model.is_none() && peek.user.is_none() && peek.session_id.is_none(), "{value}");
        assert!(peek.metadata_user_id.is_none() && peek.conversation.is_none() && !peek.stream, "{value}");
        if value != "[\"x\"]" {
            assert_eq!(peek.opening(), None, "{value}");
        }
    }
    assert!(read("{}").model.is_none());
}

#[test]
fn a_string_ends_with_the_first_quote_that_no_backslash_escapes() {
    for (text, said) in [
        (r"", ""),
        (r"\\", r"\"),
        (r#"\\\""#, r#"\""#),
        (r#"a\"b\\\"c"#, r#"a"b\"c"#),
        ("a\u{1}\tb", "a\u{1}\tb"),
        (r#"],}\",\"model\":\"no"#, r#"],}","model":"no"#),
    ] {
        let body = format!(r#"{{"tools":[{{"x":"{text}"}},-0.5e+7,{{}},[]],"user":"{text}","model":"m"}}"#);
        let peek = read(&body);
        assert_eq!((peek.model.as_deref(), peek.user.as_deref()), (Some("m"), Some(said)), "{body}");
    }
}

/// Clients cut text in the middle of a surrogate pair.
#[test]
fn a_lone_surrogate_makes_nothing_unreadable() {
    let body =
        r#"{"\ud800":1,"messages":[{"role":"user","content":"cut \ud83d"}],"user":"\udc00","model":"m","stream":true}"#;
    let peek = read(body);
    assert_eq!(peek.model.as_deref(), Some("m"));
    assert!(peek.user.is_some());
    assert!(peek.opening().is_some_and(|text| text.starts_with("cut ")));
}

#[test]
fn escapes_are_read_as_the_engine_reads_them() {
    let peek = read(r#"{"model":"a\/b\u00e9\ud83d\ude00\n"}"#);
    assert_eq!(peek.model.as_deref(), Some("a/bé😀\n"));
}

#[test]
fn what_is_not_one_object_is_not_json() {
    for body in [
        "",
        " ",
        "null",
        "7",
        "\"x\"",
        "[]",
        "[{}]",
        "{",
        "{\"model\":",
        "{}x",
        "{} {}",
        "{\"a\":1,}",
        "{'a':1}",
        "model=m",
        r#"{"a" 1}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a":[1,]}"#,
        r#"{"a":[1}"#,
        r#"{"a":{"b":1]}"#,
        r#"{"a":{"b"}}"#,
        r#"{"a":{1:2}}"#,
        r#"{"a":tru}"#,
        r#"{"a":01}"#,
        r#"{"a":1.}"#,
        r#"{"a":1e}"#,
        r#"{"a":-}"#,
        r#"{"a":+1}"#,
        r#"{"a":"\q"}"#,
        r#"{"a":"\u12g4"}"#,
        r#"{"a":"\""#,
        r#"{"a":"b"#,
    ] {
        assert_eq!(peek(body.as_bytes()).err(), Some(NotJson), "{body}");
    }
    assert_eq!(peek(b"{\"model\":\"\xff\"}").err(), Some(NotJson));
    assert!(peek(b" \r\n{} \t\n").is_ok());
}

#[test]
fn nesting_costs_no_stack() {
    let brackets = 10 << 20;
    assert!(peek(&vec![b'['; brackets]).is_err());
    for key in ["x", "model", "messages", "metadata", "prompt"] {
        let mut body = format!("{{\"{key}\":").into_bytes();
        body.resize(body.len() + brackets, b'[');
        assert!(peek(&body).is_err());
        body.resize(body.len() + brackets, b']');
        body.push(b'}');
        assert_eq!(peek(&body).expect("JSON").opening(), None);
    }
    let objects = format!("{}1{}", "{\"messages\":".repeat(1 << 20), "}".repeat(1 << 20));
    assert_eq!(read(&objects).opening(), None);
}

#[test]
fn the_opening_is_the_first_user_message_in_each_form() {
    let expected = Some("hello".to_owned());
    for body in [
        json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}]}),
        json!({"messages": [{"role": "user", "content": "hello"}, {"role": "user", "content": "later"}]}),
        json!({"messages": [{"content": [{"type": "text", "text": "hello", "cache_control": {}}], "role": "user"}]}),
        json!({"messages": [{"role": "user", "content": [{"text": "hello"}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "image", "text": "x"}, {"type": "text", "text": "hello"}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}, {"role": "user", "content": "hello"}]}),
        json!({"messages": [{"role": "user", "content": "  "}, 7, "x", {"role": 7}, {"role": "user"}, {"role": "user", "content": "hello"}]}),
        json!({"messages": [{"role": "assistant", "content": "x"}], "input": "hello"}),
        json!({"input": "hello", "prompt": "other"}),
        json!({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}]}),
        json!({"input": [{"type": "function_call", "arguments": "x"}, {"role": "user", "content": "hello"}]}),
        json!({"prompt": "hello"}),
        json!({"prompt": ["hello", "other"]}),
    ] {
        assert_eq!(opening(body.clone()), expected, "{body}");
    }
}

#[test]
fn there_is_no_opening_without_user_text() {
    for body in [
        json!({}),
        json!({"messages": []}),
        json!({"messages": "hello"}),
        json!({"messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}]}),
        json!({"messages": [{"role": "user", "content": []}]}),
        json!({"input": ["a", "b"]}),
        json!({"prompt": [1, 2, 3]}),
        json!({"prompt": [[1, 2]]}),
        json!({"prompt": ""}),
    ] {
        assert_eq!(opening(body.clone()), None, "{body}");
    }
}

#[test]
fn text_that_agents_put_first_is_left_out_unless_it_is_all() {
    for tag in ["<system-reminder>", "<environment_context>", "<user_instructions>", "<INSTRUCTIONS>"] {
        let injected = format!("{tag}\nchanges every turn");
        let blocks = json!([{"type": "text", "text": format!("\n{injected}")}, {"type": "text", "text": "hello"}]);
        assert_eq!(opening(json!({"messages": [{"role": "user", "content": blocks}]})), Some("hello".into()), "{tag}");
        let first = json!({"role": "user", "content": injected});
        let second = json!({"role": "user", "content": "hello"});
        assert_eq!(opening(json!({"input": [first, second]})), Some("hello".into()), "{tag}");
        assert_eq!(opening(json!({"input": [first]})), Some(injected), "{tag}");
    }
    assert_eq!(
        opening(json!({"messages": [{"role": "user", "content": "see <system-reminder>"}]})),
        Some("see <system-reminder>".into())
    );
}

#[test]
fn the_opening_is_512_characters_whatever_their_width() {
    for unit in ["a", "é", "語", "😀", "\n", "\u{1}"] {
        for count in [511, 512, 513, 1024, 1025, 5000] {
            let text = format!("x{}", unit.repeat(count));
            let expected: String = text.chars().take(512).collect();
            let blocks: Vec<_> = text.split_inclusive('x').map(|text| json!({"type": "text", "text": text})).collect();
            for content in [json!(text), json!(blocks)] {
                let body = json!({"messages": [{"role": "user", "content": content}]});
                let found = opening(body.clone());
                // A block of white space alone says nothing.
                let expected = if content.is_array() && unit == "\n" { "x" } else { &expected };
                assert_eq!(found.as_deref(), Some(expected), "{unit:?} x {count}");
                let escaped = ascii(&body.to_string());
                assert_eq!(read(&escaped).opening(), found, "{unit:?} x {count}, escaped");
            }
        }
    }
}

/// JSON as Python writes it: everything beyond ASCII escaped, in surrogate pairs where needed.
fn ascii(json: &str) -> String {
    let mut units = [0; 2];
    json.chars()
        .map(|c| match c.is_ascii() {
            true => c.to_string(),
            false => c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        })
        .collect()
}

proptest! {
    #[test]
    fn any_user_text_is_its_own_opening(text in "[^< \\s].{0,80}", noise in any::<String>()) {
        let body = json!({"system": noise, "messages": [{"role": "system", "content": noise}, {"role": "user", "content": text}]});
        prop_assert_eq!(opening(body), Some(text));
    }
}
