//! What is changed in requests and answers, and that nothing else is.

use homing::request::peek;
use homing::request::rewrite::{Edit, Renamed, UnaskedUsage, apply};
use proptest::prelude::*;
use serde_json::{Value, json};

fn renamed_body(body: &str, name: &str) -> String {
    let peek = peek(body.as_bytes()).unwrap_or_default();
    let edits = Edit::model(body.as_bytes(), &peek, name).into_iter().collect();
    String::from_utf8(apply(body.as_bytes(), edits)).expect("text stays text")
}

fn with_usage(body: &str) -> String {
    let peek = peek(body.as_bytes()).unwrap_or_default();
    let edits = Edit::include_usage(body.as_bytes(), &peek).into_iter().collect();
    String::from_utf8(apply(body.as_bytes(), edits)).expect("text stays text")
}

#[test]
fn only_the_value_of_the_top_level_model_changes() {
    for (body, expected) in [
        (r#"{"model":"alias"}"#, r#"{"model":"tiny"}"#),
        (
            r#" { "x" : [1] , "model"  :  "alias" , "y":{"model":"alias"} } "#,
            r#" { "x" : [1] , "model"  :  "tiny" , "y":{"model":"alias"} } "#,
        ),
        (
            r#"{"messages":[{"model":"alias"}],"model":"a\"l\u0069as"}"#,
            r#"{"messages":[{"model":"alias"}],"model":"tiny"}"#,
        ),
        // The last one counts, for the engine too.
        (r#"{"model":"first","model":"alias"}"#, r#"{"model":"first","model":"tiny"}"#),
        (r#"{"mod\u0065l":"alias"}"#, r#"{"mod\u0065l":"tiny"}"#),
        (r#"{"model":null}"#, r#"{"model":null}"#),
        (r#"{"model":7}"#, r#"{"model":7}"#),
        (r#"{"prompt":"\"model\":\"alias\""}"#, r#"{"prompt":"\"model\":\"alias\""}"#),
        (r#"{"model":"alias""#, r#"{"model":"alias""#),
        (r#"["model","alias"]"#, r#"["model","alias"]"#),
        ("", ""),
    ] {
        assert_eq!(renamed_body(body, "tiny"), expected);
    }
    assert_eq!(renamed_body(r#"{"model":"a"}"#, "a \"b\" é\\"), r#"{"model":"a \"b\" é\\"}"#);
}

#[test]
fn of_a_form_only_the_model_field_changes() {
    let form = |model: &str| {
        format!(
            "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"model\"\r\n\r\n\x01alias\r\n--b\r\n\
             Content-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--b--\r\n"
        )
    };
    let kind = "multipart/form-data; boundary=b";
    let edit = |body: &str| Edit::form_model(kind, body.as_bytes(), "tiny");
    let body = form("alias");
    assert_eq!(apply(body.as_bytes(), edit(&body).into_iter().collect()), form("tiny").into_bytes());
    assert!(edit("--b\r\n\r\n\r\n--b--\r\n").is_none());
    assert!(Edit::form_model("text/plain", body.as_bytes(), "tiny").is_none());
}

#[test]
fn usage_is_asked_for_where_the_client_does_not() {
    for (body, expected) in [
        (r#"{"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
        (" \n{ \"stream\" : true }", " \n{\"stream_options\":{\"include_usage\":true}, \"stream\" : true }"),
        (r#"{"stream":true,"stream_options":null}"#, r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
        (r#"{"stream_options":{},"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
        (r#"{"stream_options":{ },"stream":true}"#, r#"{"stream_options":{"include_usage":true },"stream":true}"#),
        (
            r#"{"stream_options":{"x":1},"stream":true}"#,
            r#"{"stream_options":{"include_usage":true,"x":1},"stream":true}"#,
        ),
        (
            r#"{"stream_options":{"a":{"include_usage":true}, "include_usage" : false},"stream":true}"#,
            r#"{"stream_options":{"a":{"include_usage":true}, "include_usage" : true},"stream":true}"#,
        ),
        (
            r#"{"stream_options":{"include_usage":null},"stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"stream":true}"#,
        ),
    ] {
        assert_eq!(with_usage(body), expected);
    }
    for same in [
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        // The engine may take it for true, and says what is wrong with it if it does not.
        r#"{"stream":true,"stream_options":{"include_usage":"yes"}}"#,
        r#"{"stream":true,"stream_options":{"continuous_usage_stats":true}}"#,
        r#"{"stream":true,"stream_options":{"include_usage":false,"continuous_usage_stats":true}}"#,
        r#"{"stream":true,"stream_options":"all"}"#,
        r#"{"stream":true,"stream_options":[]}"#,
        r#"{"stream":false}"#,
        r#"{"stream":"true"}"#,
        r#"{"messages":[{"stream":true}]}"#,
        r#"{"stream":true"#,
        "{}",
        "",
    ] {
        assert_eq!(with_usage(same), same);
    }
}

#[test]
fn both_edits_go_together() {
    for (body, expected) in [
        (r#"{"model":"a","stream":true}"#, r#"{"stream_options":{"include_usage":true},"model":"tiny","stream":true}"#),
        (
            r#"{"stream_options":{"include_usage":false},"stream":true,"model":"alias"}"#,
            r#"{"stream_options":{"include_usage":true},"stream":true,"model":"tiny"}"#,
        ),
    ] {
        let peek = peek(body.as_bytes()).expect("an object");
        let edits = [Edit::model(body.as_bytes(), &peek, "tiny"), Edit::include_usage(body.as_bytes(), &peek)];
        assert_eq!(apply(body.as_bytes(), edits.into_iter().flatten().collect()), expected.as_bytes());
    }
}

/// Everything that comes out of an answer fed in these pieces.
fn renamed(mut answer: Renamed, pieces: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    pieces.iter().for_each(|piece| answer.feed(piece, &mut out));
    out
}

fn shown(pieces: &[&[u8]]) -> Vec<u8> {
    let (mut filter, mut out) = (UnaskedUsage::default(), Vec::new());
    pieces.iter().for_each(|piece| filter.feed(piece, &mut out));
    filter.finish(&mut out);
    out
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text stays text")
}

const JSON: [(&str, &str); 14] = [
    (r#"{"id":"x","model":"tiny","usage":{"model":"tiny"}}"#, r#"{"id":"x","model":"alias","usage":{"model":"tiny"}}"#),
    (
        r#" {"choices":[{"model":"tiny"}], "model" : "tiny" } "#,
        r#" {"choices":[{"model":"tiny"}], "model" : "alias" } "#,
    ),
    (
        r#"{"type":"message_start","message":{"id":"m","content":[{"model":"tiny"}],"model":"tiny"}}"#,
        r#"{"type":"message_start","message":{"id":"m","content":[{"model":"tiny"}],"model":"alias"}}"#,
    ),
    (
        r#"{"response":{"tools":[{"x":{}}],"model":"tiny","x":{"model":"tiny"}},"model":"tiny"}"#,
        r#"{"response":{"tools":[{"x":{}}],"model":"alias","x":{"model":"tiny"}},"model":"alias"}"#,
    ),
    (
        r#"{"responses":{"model":"tiny"},"respons":{"model":"tiny"}}"#,
        r#"{"responses":{"model":"tiny"},"respons":{"model":"tiny"}}"#,
    ),
    (
        r#"{"message":[{"model":"tiny"}],"a":{"model":"tiny"}}"#,
        r#"{"message":[{"model":"tiny"}],"a":{"model":"tiny"}}"#,
    ),
    (r#"{"model":null,"message":"model","x":"tiny"}"#, r#"{"model":null,"message":"model","x":"tiny"}"#),
    (r#"{"model":{"model":"tiny"}}"#, r#"{"model":{"model":"tiny"}}"#),
    (r#"{"model":["tiny"]}"#, r#"{"model":["tiny"]}"#),
    (r#"{"text":"\"model\":\"tiny\" \\","model":"ti\"ny\\"}"#, r#"{"text":"\"model\":\"tiny\" \\","model":"alias"}"#),
    (r#"{"models":"tiny","odel":"tiny","":"tiny"}"#, r#"{"models":"tiny","odel":"tiny","":"tiny"}"#),
    (r#"["model","tiny",{"model":"tiny"}]"#, r#"["model","tiny",{"model":"tiny"}]"#),
    (r#""model":"tiny""#, r#""model":"tiny""#),
    ("", ""),
];

#[test]
fn the_client_sees_its_own_name_where_answers_say_the_model() {
    for (answer, expected) in JSON {
        assert_eq!(text(renamed(Renamed::whole("alias"), &[answer.as_bytes()])), expected);
        let event = |data: &str| format!(": model\nevent: message\ndata: {data}\r\nid: 1\n\ndata: [DONE]\n\n");
        assert_eq!(text(renamed(Renamed::stream("alias"), &[event(answer).as_bytes()])), event(expected));
    }
    let quoted = renamed(Renamed::whole("a \"b\""), &[br#"{"model":"tiny"}"#]);
    assert_eq!(text(quoted), r#"{"model":"a \"b\""}"#);
}

#[test]
fn an_event_may_have_its_data_on_several_lines_and_the_next_one_begins_anew() {
    for (stream, expected) in [
        (
            "data: {\"a\":1,\ndata: \"model\":\ndata:\"tiny\"}\n\n",
            "data: {\"a\":1,\ndata: \"model\":\ndata:\"alias\"}\n\n",
        ),
        (
            "data: {\"text\":\"broken\n\ndata: {\"model\":\"tiny\"}\n\n",
            "data: {\"text\":\"broken\n\ndata: {\"model\":\"alias\"}\n\n",
        ),
        ("data: {{{\r\n\r\ndata: {\"model\":\"tiny\"}\r\n\r\n", "data: {{{\r\n\r\ndata: {\"model\":\"alias\"}\r\n\r\n"),
        ("data: {{{\r\rdata: {\"model\":\"tiny\"}\r\r", "data: {{{\r\rdata: {\"model\":\"alias\"}\r\r"),
        ("\u{feff}data: {\"model\":\"tiny\"}\n\n", "\u{feff}data: {\"model\":\"alias\"}\n\n"),
        ("data {\"model\":\"tiny\"}\n\ndat", "data {\"model\":\"tiny\"}\n\ndat"),
    ] {
        assert_eq!(text(renamed(Renamed::stream("alias"), &[stream.as_bytes()])), expected);
    }
}

const DELTA: &str =
    r#"data: {"choices":[{"delta":{"content":"\"choices\":[],\"usage\":{}"}}],"usage":{"prompt_tokens":1}}"#;
const USAGE: &str = r#"data: {"id":"x","choices":[],"usage":{"prompt_tokens":1}}"#;

#[test]
fn the_chunk_of_usage_alone_is_taken_out() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = |events: &[&str]| -> String { events.iter().map(|event| format!("{event}{end}{end}")).collect() };
        let all = stream(&[": hello", DELTA, USAGE, ": keep-alive", "data: [DONE]"]);
        assert_eq!(text(shown(&[all.as_bytes()])), stream(&[": hello", DELTA, ": keep-alive", "data: [DONE]"]));
        // With its name, its id and a comment inside.
        let named = format!("event: x{end}: comment{end}{USAGE}{end}id: 7{end}{end}data: [DONE]{end}{end}");
        assert_eq!(text(shown(&[named.as_bytes()])), stream(&["data: [DONE]"]));
    }
    for same in [
        r#"{"choices":[],"usage":null}"#,
        r#"{"choices":[]}"#,
        r#"{"usage":{"prompt_tokens":1}}"#,
        r#"{"choices":[],"usage":{}"#,
        r#"{"choices":[0],"usage":{}}"#,
        "[DONE]",
    ] {
        let stream = format!("data: {same}\n\n");
        assert_eq!(text(shown(&[stream.as_bytes()])), stream);
    }
    // An event that never ends is no event: it stays.
    assert_eq!(text(shown(&[USAGE.as_bytes()])), USAGE);
}

#[test]
fn a_comment_passes_at_once_and_an_event_when_it_is_whole() {
    let (mut filter, mut out) = (UnaskedUsage::default(), Vec::new());
    for (piece, seen) in [
        (": keep", ": keep"),
        ("-alive\n", "-alive\n"),
        ("\n", "\n"),
        ("data: {}", ""),
        ("\n", ""),
        ("\n", "data: {}\n\n"),
        ("data: {}\r\r", "data: {}\r\r"),
        ("\n", "\n"),
    ] {
        filter.feed(piece.as_bytes(), &mut out);
        assert_eq!(text(std::mem::take(&mut out)), seen, "{piece:?}");
    }
}

#[test]
fn an_event_that_is_too_long_passes() {
    let long = |length: usize| format!("data: {{\"choices\":[],\"usage\":{{\"x\":\"{}\"}}}}\n\n", "x".repeat(length));
    let stream = format!("{}{USAGE}\n\n{}", long(2 << 20), long(10));
    for size in [usize::MAX, 70_000] {
        let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size.min(stream.len())).collect();
        assert_eq!(text(shown(&pieces)), long(2 << 20));
    }
}

/// Cuts bytes at these places.
fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect()
}

fn any_cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..30)
}

/// JSON with keys that matter, at any depth.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        "[é\"\\\\{}:, a]{0,8}".prop_map(Value::from)
    ];
    let key = prop_oneof![Just("model"), Just("response"), Just("message"), Just("choices"), Just("usage"), Just("x")];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..4).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

/// What an answer should become, by other means.
fn rename_tree(answer: &mut Value) {
    let rename = |object: &mut Value| {
        if let Some(model) =
            object.as_object_mut().and_then(|object| object.get_mut("model")).filter(|model| model.is_string())
        {
            *model = "alias".into();
        }
    };
    rename(answer);
    for inner in ["response", "message"] {
        if let Some(inner) = answer.as_object_mut().and_then(|answer| answer.get_mut(inner)) {
            rename(inner);
        }
    }
}

/// Streams of events, sound or not.
fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => any_json().prop_map(|value| format!("data: {value}").into_bytes()),
        2 => Just(USAGE.as_bytes().to_vec()),
        1 => prop_oneof![Just(": keep-alive"), Just("event: x"), Just("data"), Just("data: [DONE]"), Just("data:")]
            .prop_map(|line| line.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        5 => Just(Vec::new()),
    ];
    let end = prop_oneof![Just(&b"\n"[..]), Just(&b"\r\n"[..]), Just(&b"\r"[..])];
    let mark = prop_oneof![2 => Just(""), 1 => Just("\u{feff}")];
    (mark, prop::collection::vec((line, end), 0..12)).prop_map(|(mark, lines)| {
        let lines = lines.into_iter().flat_map(|(line, end)| [line, end.to_vec()].concat());
        mark.bytes().chain(lines).collect()
    })
}

proptest! {
    #[test]
    fn an_answer_split_anywhere_comes_out_the_same(answer in any_json(), cuts in any_cuts()) {
        let bytes = answer.to_string().into_bytes();
        let out = renamed(Renamed::whole("alias"), &cut(&bytes, &cuts));
        let mut expected = answer;
        rename_tree(&mut expected);
        prop_assert_eq!(text(out), expected.to_string());
    }

    #[test]
    fn a_stream_split_anywhere_comes_out_the_same(stream in any_stream(), cuts in any_cuts()) {
        let pieces = cut(&stream, &cuts);
        prop_assert_eq!(renamed(Renamed::stream("alias"), &pieces), renamed(Renamed::stream("alias"), &[&stream]));
        prop_assert_eq!(shown(&pieces), shown(&[&stream]));
    }

    #[test]
    fn what_names_no_model_stays_to_the_byte(
        stream in "([ -ln-~é\n\r]|data: |\\{\"x\":){0,60}", cuts in any_cuts(),
    ) {
        // Without an m there is no model, and without a u no usage.
        let stream = stream.replace('u', "v");
        let pieces = cut(stream.as_bytes(), &cuts);
        prop_assert_eq!(renamed(Renamed::stream("alias"), &pieces), stream.as_bytes());
        prop_assert_eq!(renamed(Renamed::whole("alias"), &pieces), stream.as_bytes());
        prop_assert_eq!(shown(&pieces), stream.as_bytes());
        prop_assert_eq!(renamed_body(&stream, "tiny"), stream);
    }

    #[test]
    fn an_edited_body_says_what_it_should(body in any_json(), stream in any::<bool>()) {
        let mut body = body;
        if let Some(object) = body.as_object_mut() {
            object.insert("stream".into(), stream.into());
        }
        let bytes = body.to_string();
        let edited: Value = serde_json::from_str(&renamed_body(&bytes, "tiny")).expect("still JSON");
        let mut expected = body.clone();
        if expected.get("model").is_some_and(Value::is_string) {
            expected["model"] = "tiny".into();
        }
        prop_assert_eq!(edited, expected);
        let edited: Value = serde_json::from_str(&with_usage(&bytes)).expect("still JSON");
        let mut expected = body;
        if expected.get("stream") == Some(&json!(true)) {
            expected["stream_options"] = json!({"include_usage": true});
        }
        prop_assert_eq!(edited, expected);
    }
}
