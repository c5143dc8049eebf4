use homing::request::event::{Event, is_error, kind};
use homing::request::usage::{Stage, UsageReader};
use proptest::prelude::*;

const OPENINGS: [&str; 9] = [
    r#"{"type":"ping"}"#,
    r#"{"type":"message_start","message":{"id":"a","content":[],"usage":{"input_tokens":12}}}"#,
    r#"{"type":"response.created","response":{"id":"r","error":null,"background":false}}"#,
    r#"{"type":"response.in_progress","response":{"id":"r"}}"#,
    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":1}}"#,
    r#"{"choices":[{"delta":{"role":"assistant"}},{"delta":{}}],"error":null}"#,
    r#"{"choices":[{"index":0,"text":"","finish_reason":null}]}"#,
    r#"{"choices":[],"usage":null}"#,
    r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[],"reasoning":""}}]}"#,
];

const CONTENTS: [&str; 14] = [
    r#"{"type":"content_block_start","content_block":{"type":"text","text":""},"index":0}"#,
    r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"{\"error\": 1}"},"index":0}"#,
    r#"{"type":"response.created","response":{"id":"r","background":true}}"#,
    r#"{"type":"response.output_text.delta","delta":"a"}"#,
    r#"{"choices":[{"delta":{"content":"{\"type\":\"error\"}"}}]}"#,
    r#"{"choices":[{"delta":{"role":"assistant","reasoning_content":"a"}}]}"#,
    r#"{"choices":[{"delta":{}},{"delta":{"tool_calls":[{"index":0}]}}]}"#,
    r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    r#"{"choices":[{"text":" "}]}"#,
    r#"{"choices":"odd"}"#,
    r#"{"object":"chat.completion.chunk","error":null,"choices":[{"delta":{"content":"\"error\""}}]}"#,
    r#"{"type":"response.output_text.delta","delta":"\"type\":\"response.failed\"","object":"error "}"#,
    "[DONE]",
    "no json",
];

const ERRORS: [&str; 9] = [
    r#"{"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": null, "code": 500}}"#,
    r#"{"error":"dead","choices":[]}"#,
    r#"{"type":"error","error":{"type":"internal_error","message":"2 validation errors"}}"#,
    r#"{"type":"error","code":"server_error","message":"dead","sequence_number":3}"#,
    r#"{"type":"response.failed","response":{"id":"r","error":{"code":"server_error"}}}"#,
    r#"{"object":"error","error":{}}"#,
    r#"{"object":"error","message":"dead","type":"InternalServerError","param":null,"code":500}"#,
    r#"{"type":"response.failed","response":{"id":"r","status":"failed"}}"#,
    r#"{ "code" : 500 , "error" : "dead" , "object" : "chat.completion.chunk" }"#,
];

#[test]
fn each_event_is_what_it_is() {
    let groups: [(&[&str], Event); 3] =
        [(&OPENINGS, Event::Opening), (&CONTENTS, Event::Content), (&ERRORS, Event::Error)];
    for (events, expected) in groups {
        for data in events {
            assert_eq!(kind(data.as_bytes()), expected, "{data}");
            assert_eq!(is_error(data.as_bytes()), expected == Event::Error, "{data}");
        }
    }
}

fn stream<'a>(events: impl IntoIterator<Item = &'a str>) -> String {
    events.into_iter().map(|data| format!(": comment\n\nevent: some\ndata: {data}\n\n")).collect()
}

proptest! {
    #[test]
    fn a_stream_goes_on_from_its_opening(
        openings in 0..4usize, contents in 0..3usize, fails: bool, error in 0..ERRORS.len(), cuts in prop::collection::vec(0..4000usize, 0..8),
    ) {
        let events = OPENINGS[..openings].iter().chain(&CONTENTS[..contents]);
        let events = events.chain(fails.then_some(&ERRORS[error])).copied();
        let text = stream(events);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let mut reader = UsageReader::new();
        cuts.windows(2).for_each(|ends| reader.feed(&text.as_bytes()[ends[0]..ends[1]]));
        let expected = match (contents, fails) {
            (0, false) => Stage::Opening,
            (0, true) => Stage::FailedFirst,
            (_, false) => Stage::Content,
            (_, true) => Stage::FailedLater,
        };
        prop_assert_eq!(reader.stage(), expected);
        prop_assert_eq!(reader.events(), contents as u64 + u64::from(fails));
    }
}

/// An event may say by its name alone that it tells of a failure. A name holds for one event.
#[test]
fn an_event_is_an_error_by_its_name() {
    let cases = [
        ("event: error\ndata: overloaded\n\n", Stage::FailedFirst),
        ("event:error\r\ndata:\r\n\r\n", Stage::FailedFirst),
        ("data: {\"detail\":\"dead\"}\nevent: error\n\n", Stage::FailedFirst),
        ("data: {\"choices\":[]}\n\nevent: error\ndata: {}\n\n", Stage::FailedFirst),
        ("data: Do\n\nevent: error\ndata: {}\n\n", Stage::FailedLater),
        // Without data it is no event, and the next one has no name.
        ("event: error\n\n", Stage::Opening),
        ("event: error\n\ndata: Do\n\n", Stage::Content),
        ("event: error\nevent: message\ndata: Do\n\n", Stage::Content),
        ("event: errors\ndata: Do\n\n", Stage::Content),
        ("event: ping\ndata: {\"type\":\"ping\"}\n\n", Stage::Opening),
        ("id: error\ndata: Do\n\n", Stage::Content),
    ];
    for (text, expected) in cases {
        for cut in 0..text.len() {
            let mut reader = UsageReader::new();
            [&text[..cut], &text[cut..]].iter().for_each(|piece| reader.feed(piece.as_bytes()));
            assert_eq!(reader.stage(), expected, "{text:?} cut at {cut}");
        }
    }
}

/// What is too long to be read counts as said.
#[test]
fn a_long_event_is_content() {
    let mut reader = UsageReader::new();
    reader.feed(format!("data: {{\"type\":\"ping\",\"x\":\"{}\"}}\n\n", "x".repeat(2 << 20)).as_bytes());
    assert_eq!(reader.stage(), Stage::Content);
}
