//! What the balancer reads of a JSON body: top-level keys only, in one pass, wherever in it they stand.
//!
//! Text further down is never searched for ids: tool output holds anything.

use std::borrow::Cow;

use super::json;

/// How much of a conversation's first message tells it apart, in characters.
const OPENING_CHARS: usize = 512;

/// Agents put these blocks before the user's own words. They change from turn to turn or are the same for everyone.
const INJECTED: [&str; 4] = ["<system-reminder>", "<environment_context>", "<user_instructions>", "<INSTRUCTIONS>"];

/// The keys of a request that matter for routing. A value of another type than expected counts as absent.
///
/// It borrows from the body where the body holds the text as it is, and it has no `Debug`: most of it identifies someone.
#[derive(Default)]
pub struct Peek<'a> {
    /// The model asked for.
    pub model: Option<Cow<'a, str>>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// OpenAI's `user`.
    pub user: Option<Cow<'a, str>>,
    /// Anthropic's `metadata.user_id`.
    pub metadata_user_id: Option<Cow<'a, str>>,
    /// `metadata.session_id`.
    pub metadata_session_id: Option<Cow<'a, str>>,
    /// OpenAI's `prompt_cache_key`.
    pub prompt_cache_key: Option<Cow<'a, str>>,
    /// `session_id`.
    pub session_id: Option<Cow<'a, str>>,
    /// `conversation`, a string or an object with an `id`.
    pub conversation: Option<Cow<'a, str>>,
    /// LiteLLM's `litellm_session_id`.
    pub litellm_session_id: Option<Cow<'a, str>>,
    /// The stored response that a Responses request goes on from.
    pub previous_response_id: Option<Cow<'a, str>>,
    /// The model as it stands in the body.
    pub(super) model_json: Option<&'a str>,
    /// OpenAI's `stream_options` as they stand in the body.
    pub(super) stream_options: Option<&'a str>,
    messages: Option<&'a str>,
    input: Option<&'a str>,
    prompt: Option<&'a str>,
}

/// The body is not one JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson;

impl std::fmt::Display for NotJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request body is not a JSON object")
    }
}

impl std::error::Error for NotJson {}

/// Reads a whole body.
///
/// # Errors
/// [`NotJson`] where it is not exactly one JSON object.
pub fn peek(body: &[u8]) -> Result<Peek<'_>, NotJson> {
    let [
        model,
        stream,
        stream_options,
        user,
        metadata,
        prompt_cache_key,
        session_id,
        conversation,
        litellm_session_id,
        previous_response_id,
        messages,
        input,
        prompt,
    ] = json::fields(
        body,
        [
            "model",
            "stream",
            "stream_options",
            "user",
            "metadata",
            "prompt_cache_key",
            "session_id",
            "conversation",
            "litellm_session_id",
            "previous_response_id",
            "messages",
            "input",
            "prompt",
        ],
    )
    .ok_or(NotJson)?;
    let [metadata_user_id, metadata_session_id] = inner(metadata, ["user_id", "session_id"]);
    let [conversation_id] = inner(conversation, ["id"]);
    Ok(Peek {
        model: model.and_then(json::text),
        stream: stream == Some("true"),
        user: user.and_then(json::text),
        metadata_user_id: metadata_user_id.and_then(json::text),
        metadata_session_id: metadata_session_id.and_then(json::text),
        prompt_cache_key: prompt_cache_key.and_then(json::text),
        session_id: session_id.and_then(json::text),
        conversation: conversation_id.or(conversation).and_then(json::text),
        litellm_session_id: litellm_session_id.and_then(json::text),
        previous_response_id: previous_response_id.and_then(json::text),
        model_json: model,
        stream_options,
        messages,
        input,
        prompt,
    })
}

impl Peek<'_> {
    /// The start of the first real user message, at most 512 characters: later turns resend it unchanged.
    ///
    /// From `messages`, `input` or `prompt`. Blocks that agents put before the user's words are left out, unless there is nothing
    /// else. None where the body holds no user text.
    pub fn opening(&self) -> Option<String> {
        let prompt = || {
            let prompt = self.prompt?;
            text_of(prompt).or_else(|| json::find_element(prompt, |first| Some(text_of(first))).flatten())
        };
        let input = || self.input.and_then(|input| text_of(input).or_else(|| of_messages(input)));
        self.messages.and_then(of_messages).or_else(input).or_else(prompt)
    }
}

fn inner<'a, const N: usize>(object: Option<&'a str>, names: [&str; N]) -> [Option<&'a str>; N] {
    object.and_then(|object| json::fields(object.as_bytes(), names)).unwrap_or([None; N])
}

/// The opening among messages: the first that holds the user's own words, else the first user text of any kind.
fn of_messages(messages: &str) -> Option<String> {
    let mut injected = None;
    let own = json::find_element(messages, |message| {
        let [role, content] = inner(Some(message), ["role", "content"]);
        if json::text(role?)? != "user" {
            return None;
        }
        own_words(content?, &mut injected)
    });
    own.or(injected)
}

/// The user's own words in a message's content: a string, or the text blocks of either dialect joined.
fn own_words(content: &str, injected: &mut Option<String>) -> Option<String> {
    let mut own = String::new();
    let mut add = |text: String| {
        if INJECTED.iter().any(|tag| text.trim_start().starts_with(tag)) {
            injected.get_or_insert(text);
        } else {
            own.push_str(&text);
        }
    };
    match text_of(content) {
        Some(text) => add(text),
        None => _ = json::find_element(content, |block| block_text(block).map(&mut add).and(None::<()>)),
    }
    own.truncate(own.char_indices().nth(OPENING_CHARS).map_or(own.len(), |(at, _)| at));
    (!own.is_empty()).then_some(own)
}

/// The text of a content block: `text` in chat and messages, `input_text` in responses.
fn block_text(block: &str) -> Option<String> {
    let [kind, text] = inner(Some(block), ["type", "text"]);
    match kind {
        Some(kind) if !matches!(&*json::text(kind)?, "text" | "input_text") => None,
        _ => text_of(text?),
    }
}

/// A string that says something, cut to the length of an opening.
fn text_of(json: &str) -> Option<String> {
    let text = json::text_head(json, OPENING_CHARS)?;
    (!text.trim().is_empty()).then(|| text.into_owned())
}
