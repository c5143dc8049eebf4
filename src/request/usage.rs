//! Token counts in answers, in both dialects, streamed or whole; and in streams how far they have come, and the ids of what the
//! engine keeps.

use memchr::memchr2;
use memchr::memmem::Finder;
use once_cell::sync::Lazy;
use serde::Deserialize;

use super::event::{self, ERROR_NAME, Event};
use super::json;
use super::stored::{self, StoredIds};

/// The longest line, and the longest event, that is read: far above any usage event of an engine. In bytes.
const LINE_MAX: usize = 1 << 20;

/// What may stand before the first line of a stream, and is no part of it.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

// Every event of every stream is searched for these.
static USAGE: Lazy<Finder<'static>> = Lazy::new(|| Finder::new(b"\"usage\""));
static LAST: Lazy<[Finder<'static>; 2]> =
    Lazy::new(|| [Finder::new(b"\"message_stop\""), Finder::new(b"\"response.completed\"")]);

/// The tokens that a request took, as its engine says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the whole prompt, cached ones included.
    pub prompt: u64,
    /// Tokens of the prompt found in the prefix cache, at most `prompt`; None where the engine does not say.
    pub cached: Option<u64>,
    /// Tokens generated.
    pub completion: u64,
}

/// Reads the usage of a streamed answer as it passes, split anywhere.
///
/// Lines end as the standard of event streams says (HTML, 9.2.6): by CR, by LF, or by both.
/// The latest usage counts: engines repeat it as it grows. It holds at most one line and one event of 1 MiB each.
#[derive(Default)]
pub struct UsageReader {
    /// Whether the first line has come.
    begun: bool,
    /// Whether the last byte was a CR: an LF after it ends no line of its own.
    after_cr: bool,
    line: Vec<u8>,
    line_too_long: bool,
    event: Vec<u8>,
    event_incomplete: bool,
    /// Whether the event is called an error.
    named_error: bool,
    usage: Option<Usage>,
    /// Whether the stream tells of a response that the engine may keep, and has not told its ids yet.
    seeks_ids: bool,
    ids: Option<StoredIds>,
    stage: Stage,
    events: u64,
    ended: bool,
    skipped_lines: u64,
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// It has said nothing that the answer consists of.
    #[default]
    Opening,
    /// Content has come.
    Content,
    /// An error came before any content.
    FailedFirst,
    /// An error came after content.
    FailedLater,
}

impl Stage {
    fn after(self, data: &[u8]) -> Stage {
        match self {
            Stage::Opening => match event::kind(data) {
                Event::Opening => Stage::Opening,
                Event::Content => Stage::Content,
                Event::Error => Stage::FailedFirst,
            },
            Stage::Content if event::is_error(data) => Stage::FailedLater,
            stage => stage,
        }
    }
}

impl UsageReader {
    /// A reader at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader at the start of a stream that tells of a response which the engine may keep.
    pub fn of_response() -> Self {
        Self { seeks_ids: true, ..Self::default() }
    }

    /// Takes the next piece of the stream.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            if self.after_cr && !bytes.is_empty() {
                self.after_cr = false;
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else { break };
            let (part, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.after_cr = bytes[end] == b'\r';
            if self.line.is_empty() && !self.line_too_long && part.len() <= LINE_MAX {
                // A line that came whole is read where it is.
                self.end_line(part);
            } else {
                self.extend_line(part);
                let mut line = std::mem::take(&mut self.line);
                self.end_line(&line);
                line.clear();
                self.line = line;
            }
            bytes = rest;
        }
        self.extend_line(bytes);
    }

    /// The latest usage so far.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The ids of what the engine keeps, once, as soon as they have come.
    pub fn take_ids(&mut self) -> Option<StoredIds> {
        self.ids.take()
    }

    /// How far the stream has come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Events so far, those left out that only open the stream.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether the stream's last event has come: a client may leave after it without waiting for the connection.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// How many lines were too long to read.
    pub fn skipped_lines(&self) -> u64 {
        self.skipped_lines
    }

    fn extend_line(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > LINE_MAX {
            self.line_too_long = true;
            self.line.clear();
        }
        if !self.line_too_long {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = match std::mem::replace(&mut self.begun, true) {
            true => line,
            false => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
        };
        let data = field(line, b"data:");
        let fits = data.is_none_or(|data| self.event.len() + 1 + data.len() <= LINE_MAX);
        if self.line_too_long || !fits {
            self.skipped_lines += 1;
            self.event_incomplete = true;
        } else if let Some(data) = data {
            self.event.extend_from_slice(data);
            self.event.push(b'\n');
        } else if line.is_empty() {
            self.end_event();
        } else if let Some(name) = field(line, b"event:") {
            self.named_error = name == ERROR_NAME;
        }
        self.line_too_long = false;
    }

    fn end_event(&mut self) {
        self.stage = match self.stage {
            // What could not be read counts as said.
            Stage::Opening if self.event_incomplete => Stage::Content,
            stage if self.event_incomplete || self.event.is_empty() => stage,
            Stage::Opening if self.named_error => Stage::FailedFirst,
            Stage::Content if self.named_error => Stage::FailedLater,
            stage => stage.after(&self.event),
        };
        self.events += u64::from(self.stage != Stage::Opening && !self.event.is_empty());
        if !self.event_incomplete && USAGE.find(&self.event).is_some() {
            self.usage = whole(&self.event).or(self.usage);
        }
        if !self.event_incomplete && self.seeks_ids {
            self.ids = stored::ids(&self.event);
            self.seeks_ids = self.ids.is_none();
        }
        self.ended |= is_last(&self.event);
        self.event.clear();
        self.event_incomplete = false;
        self.named_error = false;
    }
}

/// The value of a line's field, if it is this one.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(name).map(|value| value.strip_prefix(b" ").unwrap_or(value))
}

/// Whether an event is the one that ends a stream: OpenAI's, Anthropic's, or that of a response. Within a text the quotes of the
/// names would be escaped.
fn is_last(event: &[u8]) -> bool {
    event.trim_ascii() == b"[DONE]" || LAST.iter().any(|name| name.find(event).is_some())
}

/// The usage of an answer that came whole, or of one event of a stream: at its top, or in the `response` that a Responses event
/// carries. None where it says none.
///
/// The usage in Anthropic's `message_start` lies elsewhere and is not read: engines give the final one in `message_delta`.
pub fn whole(answer: &[u8]) -> Option<Usage> {
    let [usage, response] = json::fields(answer, ["usage", "response"])?;
    let at_top = usage.and_then(counts);
    at_top.or_else(|| {
        let [usage] = json::fields(response?.as_bytes(), ["usage"])?;
        counts(usage?)
    })
}

/// The names of both dialects; no engine gives both of a pair.
#[derive(Deserialize)]
struct Counts {
    #[serde(alias = "input_tokens")]
    prompt_tokens: u64,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

/// More tokens than any context has: an engine that says so is not to be believed.
const TOKENS_MAX: u64 = 1 << 32;

fn counts(usage: &str) -> Option<Usage> {
    let counts: Counts = serde_json::from_str(usage).ok()?;
    // In the Anthropic dialect, cached tokens are counted beside the input, not in it.
    let beside = [counts.cache_read_input_tokens, counts.cache_creation_input_tokens];
    let prompt = beside.into_iter().flatten().fold(counts.prompt_tokens, u64::saturating_add);
    let completion = counts.completion_tokens.unwrap_or(0);
    if prompt.max(completion) > TOKENS_MAX {
        return None;
    }
    let cached =
        counts.prompt_tokens_details.and_then(|details| details.cached_tokens).or(counts.cache_read_input_tokens);
    Some(Usage { prompt, cached: cached.map(|cached| cached.min(prompt)), completion })
}
