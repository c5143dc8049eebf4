//! What is rewritten of an answer on its way is the same however the answer is split, and done once.

use homing::request::rewrite::{Renamed, UnaskedUsage};
use proptest::prelude::*;

use super::harness::{Fuzzer, body, files};

/// Answers as engines send them, the chunks' sizes among the lines.
pub fn answers() -> Vec<Vec<u8>> {
    // The longest is of an engine that was killed after thousands of events.
    let mut answers: Vec<_> = files("samples/answers").iter().map(|(_, message)| body(message)).collect();
    answers.iter_mut().for_each(|answer| answer.truncate(12_000));
    answers
}

pub const WORDS: &[&str] = &[
    "\n",
    "\r\n",
    "\n\n",
    "\r",
    "data: ",
    "data:",
    "event: message_delta\n",
    ": keep-alive\n\n",
    "data: [DONE]\n\n",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    "\"model\":\"tiny\"",
    "\"model\":1",
    "\"response\":{",
    "\"message\":{",
    "\"choices\":[],",
    "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}",
    "\"usage\":null",
    "\"usage\":{",
    "\"input_tokens\":18446744073709551615,",
    "\"cache_read_input_tokens\":3,",
    "\"message_stop\"",
    "\\ud800",
    "\u{feff}",
];

#[test]
fn an_answer_is_renamed_the_same_in_any_split_and_once() {
    Fuzzer { name: "answer", seeds: answers(), words: WORDS }.run(|input| {
        for new in [Renamed::stream as fn(&str) -> Renamed, Renamed::whole] {
            let renamed = |pieces: &[&[u8]], name: &str| {
                let (mut answer, mut out) = (new(name), Vec::new());
                pieces.iter().for_each(|piece| answer.feed(piece, &mut out));
                out
            };
            let whole = renamed(&[&input.bytes], "alias");
            prop_assert!(renamed(&input.pieces(), "alias") == whole, "split");
            prop_assert!(renamed(&[&whole], "alias") == whole, "twice");
            // Whatever the name was, another one comes to the same places.
            let other = renamed(&[&input.bytes], "other");
            prop_assert!(renamed(&[&other], "alias") == whole, "another name first");
        }
        Ok(())
    });
}

#[test]
fn usage_is_taken_out_the_same_in_any_split_and_once() {
    Fuzzer { name: "unasked_usage", seeds: answers(), words: WORDS }.run(|input| {
        let shown = |pieces: &[&[u8]]| {
            let (mut filter, mut out) = (UnaskedUsage::default(), Vec::new());
            pieces.iter().for_each(|piece| filter.feed(piece, &mut out));
            filter.finish(&mut out);
            out
        };
        let whole = shown(&[&input.bytes]);
        prop_assert!(shown(&input.pieces()) == whole, "split");
        prop_assert!(shown(&[&whole]) == whole, "twice");
        prop_assert!(is_within(&whole, &input.bytes), "something that did not come");
        Ok(())
    });
}

/// Whether all of `some` stands in `all` in its order.
fn is_within(some: &[u8], all: &[u8]) -> bool {
    let mut all = all.iter();
    some.iter().all(|byte| all.any(|other| other == byte))
}
