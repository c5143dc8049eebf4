//! Usage is read the same however a stream is split, and as a reader that has all of it at once would.

use homing::request::usage::{self, Usage, UsageReader};
use proptest::prelude::*;

use super::answer::{WORDS, answers};
use super::harness::Fuzzer;

#[test]
fn usage_is_that_of_the_last_event_in_any_split() {
    Fuzzer { name: "usage", seeds: answers(), words: WORDS }.run(|input| {
        let (whole, split) = (read([&input.bytes[..]]), read(input.pieces()));
        prop_assert_eq!((whole.usage(), whole.ended()), (split.usage(), split.ended()));
        prop_assert_eq!(whole.usage(), at_once(&input.bytes));
        if let Some(Usage { prompt, cached, completion }) = whole.usage() {
            prop_assert!(prompt.max(completion) <= 1 << 32 && cached.is_none_or(|cached| cached <= prompt));
        }
        Ok(())
    });
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> UsageReader {
    let mut reader = UsageReader::of_response();
    pieces.into_iter().for_each(|piece| reader.feed(piece));
    reader
}

/// The usage of a stream by its events, as a text is taken apart.
fn at_once(stream: &[u8]) -> Option<Usage> {
    let stream = with_line_feeds(stream.strip_prefix(usage::BYTE_ORDER_MARK).unwrap_or(stream));
    let mut lines: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    // What no line end follows has not come whole.
    lines.pop();
    let mut last = None;
    let blank = lines.iter().rposition(|line| line.is_empty());
    for event in lines[..blank.map_or(0, |blank| blank)].split(|line| line.is_empty()) {
        let data: Vec<&[u8]> = event
            .iter()
            .filter_map(|line| line.strip_prefix(b"data:"))
            .map(|data| data.strip_prefix(b" ").unwrap_or(data))
            .collect();
        last = usage::whole(&data.join(&b'\n')).or(last);
    }
    last
}

/// A stream whose lines all end by LF: by the standard they may also end by CR, or by both.
fn with_line_feeds(stream: &[u8]) -> Vec<u8> {
    let mut last = 0;
    let mut lines = Vec::with_capacity(stream.len());
    for byte in stream {
        match (std::mem::replace(&mut last, *byte), *byte) {
            (b'\r', b'\n') => {}
            (_, b'\r') => lines.push(b'\n'),
            (_, byte) => lines.push(byte),
        }
    }
    lines
}
