//! What one event of a streamed answer is to the one who waits for it.
//!
//! **Where the line is drawn.** Until an engine has generated a token, its stream can be thrown away and asked for again
//! elsewhere: the client has lost nothing. So what only says that an answer will come is no content: comments, Anthropic's `ping`
//! and `message_start`, the events in which a response of the Responses API is created, queued and begun (vLLM sends these before
//! it has read the prompt), and an OpenAI chunk that names a role and nothing else. Everything else is content: the id of a
//! response that runs in the background, since a client may do something with it at once; and what is not understood, since a
//! stream is held back only for as long as it is known to have said nothing.

use memchr::memmem::Finder;
use once_cell::sync::Lazy;

use super::json;

/// What an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing that the answer consists of.
    Opening,
    Content,
    /// The answer has failed, and ends.
    Error,
}

/// The types of events that open a stream.
const OPENINGS: [&str; 5] = ["ping", "message_start", "response.created", "response.queued", "response.in_progress"];

/// The name that both dialects give an event which tells of a failure, whatever its data.
pub const ERROR_NAME: &[u8] = b"error";

/// Reads an event's data.
pub fn kind(data: &[u8]) -> Event {
    let fields = json::fields(data, ["type", "object", "error", "choices", "response"]);
    let Some([kind, object, error, choices, response]) = fields else { return Event::Content };
    let (kind, object) = (kind.and_then(json::text), object.and_then(json::text));
    match kind.as_deref() {
        Some("error" | "response.failed") => Event::Error,
        _ if object.as_deref() == Some("error") || error.is_some_and(|error| error != "null") => Event::Error,
        Some(kind) if OPENINGS.contains(&kind) && !response.is_some_and(in_background) => Event::Opening,
        _ if choices.is_some_and(say_nothing) => Event::Opening,
        _ => Event::Content,
    }
}

// Every event of every stream is searched for these.
static TELLS_ERROR: Lazy<[Finder<'static>; 2]> =
    Lazy::new(|| [Finder::new(b"\"error\""), Finder::new(b"\"response.failed\"")]);

/// Whether an event tells of a failure. As good as free for one that does not: within a text the quotes would be escaped.
pub fn is_error(data: &[u8]) -> bool {
    TELLS_ERROR.iter().any(|word| word.find(data).is_some()) && kind(data) == Event::Error
}

fn in_background(response: &str) -> bool {
    matches!(json::fields(response.as_bytes(), ["background"]), Some([Some("true")]))
}

/// Whether none of the choices of an OpenAI chunk has anything but a role.
fn say_nothing(choices: &str) -> bool {
    choices.starts_with('[') && json::find_element(choices, |choice| (!says_nothing(choice)).then_some(())).is_none()
}

fn says_nothing(choice: &str) -> bool {
    let Some([delta, text, ended]) = json::fields(choice.as_bytes(), ["delta", "text", "finish_reason"]) else {
        return false;
    };
    let unended = ended.is_none_or(is_empty);
    unended && text.is_none_or(is_empty) && delta.is_none_or(|delta| json::only(delta, "role", is_empty))
}

fn is_empty(value: &str) -> bool {
    matches!(value, "null" | "\"\"" | "[]" | "{}")
}
