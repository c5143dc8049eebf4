use homing::request::usage::{Usage, UsageReader, whole};
use proptest::prelude::*;

const CHAT: &str =
    r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}"#;
const LINE_MAX: usize = 1 << 20;

fn used(prompt: u64, cached: impl Into<Option<u64>>, completion: u64) -> Option<Usage> {
    Some(Usage { prompt, cached: cached.into(), completion })
}

fn reader(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> UsageReader {
    let mut reader = UsageReader::new();
    pieces.into_iter().for_each(|piece| reader.feed(piece.as_ref()));
    reader
}

fn streamed(stream: &str) -> Option<Usage> {
    reader([stream]).usage()
}

#[test]
fn both_dialects_say_it_in_their_way() {
    for (usage, expected) in [
        (r#"{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}"#, used(10, None, 3)),
        (r#"{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":null}"#, used(10, None, 3)),
        (r#"{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{}}"#, used(10, None, 3)),
        (r#"{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}"#, used(10, 0, 3)),
        (r#"{"prompt_tokens":10,"total_tokens":10}"#, used(10, None, 0)),
        (r#"{"prompt_tokens":10,"completion_tokens":null}"#, used(10, None, 0)),
        (r#"{"input_tokens":10,"output_tokens":3}"#, used(10, None, 3)),
        (
            r#"{"input_tokens":2,"output_tokens":3,"cache_read_input_tokens":8,"cache_creation_input_tokens":1}"#,
            used(11, 8, 3),
        ),
        (r#"{"input_tokens":2,"output_tokens":3,"cache_read_input_tokens":0}"#, used(2, 0, 3)),
        (
            r#"{"input_tokens":2,"output_tokens":3,"cache_read_input_tokens":null,"cache_creation_input_tokens":null}"#,
            used(2, None, 3),
        ),
        (r#"{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":3}"#, used(10, 4, 3)),
        // More cached than there is would make the computed part negative.
        (r#"{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":11}}"#, used(10, 10, 3)),
        // No context has that many.
        (r#"{"input_tokens":18446744073709551615,"cache_read_input_tokens":1}"#, None),
        (r#"{"prompt_tokens":10,"completion_tokens":18446744073709551615}"#, None),
        ("null", None),
        ("7", None),
        ("{}", None),
        (r#"{"type":"duration","seconds":3}"#, None),
        (r#"{"prompt_tokens":-1}"#, None),
        (r#"{"prompt_tokens":"10"}"#, None),
    ] {
        for answer in
            [format!(r#"{{"x":[],"usage":{usage}}}"#), format!(r#"{{"type":"y","response":{{"usage":{usage}}}}}"#)]
        {
            assert_eq!(whole(answer.as_bytes()), expected, "{answer}");
            assert_eq!(streamed(&format!("data: {answer}\n\n")), expected, "{answer}");
        }
    }
}

#[test]
fn text_that_speaks_of_usage_is_not_usage() {
    for data in [
        r#"{"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":1}"}}]}"#,
        r#"{"choices":[{"usage":{"prompt_tokens":1}}]}"#,
        r#"{"type":"message_start","message":{"usage":{"input_tokens":12,"output_tokens":0}}}"#,
        r#"{"response":"usage","usage":"response"}"#,
        r#"["usage"]"#,
        r#""usage""#,
        r#"{"usage":"#,
        "[DONE]",
    ] {
        assert_eq!(whole(data.as_bytes()), None, "{data}");
        assert_eq!(streamed(&format!("data: {CHAT}\n\ndata: {data}\n\n")), whole(CHAT.as_bytes()), "{data}");
    }
}

#[test]
fn the_latest_usage_overwrites() {
    let one = r#"{"usage":{"prompt_tokens":10,"completion_tokens":1}}"#;
    let two = r#"{"usage":{"prompt_tokens":10,"completion_tokens":2}}"#;
    assert_eq!(streamed(&format!("data: {one}\n\ndata: {two}\n\n")), used(10, None, 2));
    assert_eq!(streamed(&format!("data: {CHAT}\n\ndata: {two}\n\n")), used(10, None, 2));
    assert_eq!(streamed(&format!("data: {two}\n\ndata: {{\"usage\":null}}\n\ndata: [DONE]\n\n")), used(10, None, 2));
}

#[test]
fn events_are_read_in_every_form_the_standard_allows() {
    let (start, end) = CHAT.split_at(CHAT.find(",\"usage\"").expect("a usage"));
    for stream in [
        format!("data: {CHAT}\n\n"),
        format!("data:{CHAT}\n\n"),
        format!("data: {CHAT}\r\n\r\n"),
        format!(": keep-alive\n\n:\ndata: {CHAT}\n: another\n\n"),
        format!("event: message_delta\nid: 7\nretry: 10\ndata: {CHAT}\n\n"),
        format!("data: {start}\ndata: {end}\n\n"),
        format!("data: {start}\n: between\nid\ndata:{end}\r\n\r\n"),
        format!("data\n\ndata:\n\n\n\n\r\ndata: {CHAT}\n\ndata: not json\n\n"),
        format!("data: {CHAT}\r\r"),
        format!("event: x\rdata: {start}\rdata: {end}\r\r"),
        format!("data: {start}\rdata: {end}\n\r\n"),
        format!("\u{feff}data: {CHAT}\n\n"),
        format!("\u{feff}data: {CHAT}\r\r"),
    ] {
        assert_eq!(streamed(&stream), used(10, 8, 3), "{stream}");
    }
    // A mark that is not the first, or not alone.
    for stream in [format!("\n\u{feff}data: {CHAT}\n\n"), format!("\u{feff}\u{feff}data: {CHAT}\n\n")] {
        assert_eq!(streamed(&stream), None, "{stream}");
    }
    // A field of another name, and an event that never ends.
    assert_eq!(streamed(&format!("xdata: {CHAT}\n\n data: {CHAT}\n\ndata: {CHAT}\n")), None);
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_counted() {
    let filler = |length: usize| format!(r#"{{"text":"{}","usage":{{"prompt_tokens":1}}}}"#, "x".repeat(length));
    let base = filler(0).len() + "data: ".len();
    let longest = reader([format!("data: {}\n\n", filler(LINE_MAX - base))]);
    assert_eq!((longest.usage(), longest.skipped_lines()), (used(1, None, 0), 0));
    for piece in [1000, usize::MAX] {
        let stream = format!("data: {}\n\ndata: {CHAT}\n\n", filler(LINE_MAX));
        let too_long = reader(stream.as_bytes().chunks(piece));
        assert_eq!((too_long.usage(), too_long.skipped_lines()), (used(10, 8, 3), 1));
    }
}

#[test]
fn an_event_is_read_whole_or_not_at_all() {
    let half = "x".repeat(LINE_MAX / 2);
    let stream =
        format!("data: {{\"a\":\"{half}\",\ndata: \"b\":\"{half}\",\ndata: \"usage\":{{\"prompt_tokens\":1}}}}\n\n");
    let too_big = reader([stream]);
    assert_eq!((too_big.usage(), too_big.skipped_lines()), (None, 1));
    // What is left of an event after a skipped line is no event.
    let stream = format!("data: {}\ndata: {CHAT}\n\ndata: {{}}\n\n", "x".repeat(LINE_MAX + 1));
    let cut = reader([stream]);
    assert_eq!((cut.usage(), cut.skipped_lines()), (None, 1));
}

#[test]
fn nesting_costs_no_stack() {
    let deep = "[".repeat(900_000);
    assert_eq!(streamed(&format!("data: {{\"usage\":{deep}\n\ndata: {CHAT}\n\n")), used(10, 8, 3));
    let closed = format!("{{\"usage\":{}{}}}", "[".repeat(5 << 20), "]".repeat(5 << 20));
    assert_eq!(whole(closed.as_bytes()), None);
}

fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let event =
        (any::<u16>(), prop::option::of(any::<u16>()), "[é語😀\"\\\\a ]{0,20}").prop_map(|(prompt, cached, text)| {
            let details = cached.map(|cached| serde_json::json!({"cached_tokens": cached}));
            let usage = serde_json::json!({"prompt_tokens": prompt, "prompt_tokens_details": details});
            format!("data: {}", serde_json::json!({"text": text, "usage": usage}))
        });
    let line = prop_oneof![
        4 => event,
        1 => Just(": keep-alive".to_owned()),
        1 => Just("event: x".to_owned()),
        1 => Just("data: [DONE]".to_owned()),
        4 => Just(String::new()),
    ];
    let ending = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    let mark = prop_oneof![3 => Just(""), 1 => Just("\u{feff}"), 1 => Just("\u{feff}\u{feff}")];
    (mark, prop::collection::vec((line, ending), 0..12)).prop_map(|(mark, lines)| {
        let lines = lines.into_iter().map(|(line, ending)| line + ending);
        (mark.to_owned() + &lines.collect::<String>()).into_bytes()
    })
}

proptest! {
    #[test]
    fn any_split_reads_as_one_piece(stream in any_stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let split = reader(cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]));
        let whole = reader([&stream]);
        let all = |reader: &UsageReader| (reader.usage(), reader.stage(), reader.events(), reader.ended());
        prop_assert_eq!(all(&split), all(&whole));
        // The standard's own way: one mark is dropped, and every end of a line is the same.
        let text = String::from_utf8(stream).expect("text");
        let plain = text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
        // A second mark would be dropped now.
        if !plain.starts_with('\u{feff}') {
            prop_assert_eq!(all(&whole), all(&reader([plain])));
        }
    }
}

#[test]
fn a_stream_has_ended_with_its_last_event_and_not_before() {
    let streams = [
        ("data: {\"choices\":[{\"delta\":{\"content\":\"[DONE]\"}}]}\n\n", "data: [DONE]\n\n"),
        (
            "data: {\"text\":\"a \\\"message_stop\\\" b\"}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        (
            "data: {\"type\":\"response.created\"}\r\n\r\n",
            "data: {\"type\":\"response.completed\",\"response\":{}}\r\n\r\n",
        ),
    ];
    for (before, last) in streams {
        let mut reader = UsageReader::new();
        reader.feed(before.as_bytes());
        assert!(!reader.ended(), "{before}");
        reader.feed(last.as_bytes());
        assert!(reader.ended(), "{last}");
    }
}
