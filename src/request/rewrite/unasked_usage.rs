use memchr::{memchr2, memmem};

use crate::request::json;

/// The longest event that is held back to look at it, in bytes: far above any usage event of an engine.
const EVENT_MAX: usize = 1 << 20;

/// Takes the chunk out of a chat or completions stream that holds nothing but the usage, for a client that did not ask for it.
///
/// An event is held until it is whole; comments between events are not.
#[derive(Default)]
pub struct UnaskedUsage {
    /// The event that has begun, as it came, its last line perhaps in part.
    event: Vec<u8>,
    /// Where its last line begins.
    line: usize,
    /// Whether the last byte was a CR: an LF after it ends no line of its own.
    after_cr: bool,
    /// Whether what came last was taken out.
    taken_out: bool,
    /// What has begun is not held: a comment between events (until its line ends), or an event too long.
    passing: Option<Passing>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Passing {
    Comment,
    /// With the bytes of its last line so far, of which no more than two matter.
    TooLong {
        blank: bool,
    },
}

impl UnaskedUsage {
    /// Takes the next piece of the stream, and writes what the client gets to `out`.
    pub fn feed(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while let Some(first) = piece.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                self.end_twice(out);
                piece = &piece[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', piece).map(|at| at + 1);
            self.after_cr = end.is_some_and(|end| piece[end - 1] == b'\r');
            let (part, rest) = piece.split_at(end.unwrap_or(piece.len()));
            self.take(part, end.is_some(), out);
            piece = rest;
        }
    }

    /// The stream has ended; what was held is written to `out`.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.event);
        self.line = 0;
    }

    /// The second byte of a line's end goes where the first went.
    fn end_twice(&mut self, out: &mut Vec<u8>) {
        if !self.event.is_empty() {
            self.event.push(b'\n');
            self.line = self.event.len();
        } else if !self.taken_out {
            out.push(b'\n');
        }
    }

    /// Takes a part of a line, the end of it if `ends`.
    fn take(&mut self, part: &[u8], ends: bool, out: &mut Vec<u8>) {
        self.taken_out = false;
        if self.passing.is_none() && self.event.is_empty() && part[0] == b':' {
            self.passing = Some(Passing::Comment);
        }
        match self.passing {
            Some(passing) => {
                out.extend_from_slice(part);
                self.passing = passing.after(part, ends);
            }
            None => self.hold(part, ends, out),
        }
    }

    fn hold(&mut self, part: &[u8], ends: bool, out: &mut Vec<u8>) {
        self.event.extend_from_slice(part);
        let blank = is_blank(&self.event[self.line..]);
        if self.event.len() > EVENT_MAX {
            self.passing = Passing::TooLong { blank }.after(&[], ends);
            return self.finish(out);
        }
        if !ends {
            return;
        }
        self.line = self.event.len();
        if blank {
            self.taken_out = is_usage_alone(&self.event);
            if self.taken_out {
                self.event.clear();
            }
            self.finish(out);
        }
    }
}

impl Passing {
    /// What passes after a part of a line; None: the next line is looked at again.
    fn after(self, part: &[u8], ends: bool) -> Option<Passing> {
        match self {
            Passing::Comment => (!ends).then_some(self),
            Passing::TooLong { blank } => match (blank && is_blank(part), ends) {
                (true, true) => None,
                (_, true) => Some(Passing::TooLong { blank: true }),
                (blank, false) => Some(Passing::TooLong { blank }),
            },
        }
    }
}

/// Whether a line, or a part of one, holds nothing.
fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Whether an event's data is a chunk with a usage and without choices.
fn is_usage_alone(event: &[u8]) -> bool {
    if memmem::find(event, b"\"usage\"").is_none() {
        return false;
    }
    let data: Vec<u8> = event
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .filter_map(|line| line.strip_prefix(b"data:"))
        .collect::<Vec<_>>()
        .join(&b'\n');
    let Some([choices, usage]) = json::fields(&data, ["choices", "usage"]) else { return false };
    let no_choices =
        choices.is_some_and(|choices| choices.strip_prefix('[').is_some_and(|rest| rest.trim_start() == "]"));
    no_choices && usage.is_some_and(|usage| usage.starts_with('{'))
}
