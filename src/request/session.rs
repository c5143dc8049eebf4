//! Which conversation a request belongs to: the first source that gives an acceptable id wins.
//!
//! Ids are opaque and compared whole. What differs from request to request (`x-request-id`, `traceparent`) and where a client
//! sits (its address) are never keys.

use std::borrow::Cow;
use std::fmt;

use http::HeaderMap;
use http::header::{HeaderName, USER_AGENT};
use serde::Serialize;

use super::endpoint::{BodyForm, Endpoint};
use super::json;
use super::peek::Peek;
use super::source::KeySource;

/// The longest value taken as it stands: of the operator's own headers, and of an agent's name within its session. In bytes.
const VERBATIM_MAX: usize = 256;

/// Where to look: the operator's own headers, then the sources in their order.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'r> {
    pub headers: &'r [HeaderName],
    pub sources: &'r [KeySource],
    /// Whether an agent within a session has a conversation of its own.
    pub agents_apart: bool,
}

/// What tells a request's conversation apart. Its `Debug` shows no id.
#[derive(Clone, PartialEq, Eq)]
pub struct Session<'a> {
    /// The session id, or the conversation's opening.
    pub id: Cow<'a, [u8]>,
    /// The sub-agent within the session, where the client names one. Sub-agents have a prompt prefix of their own.
    pub agent: Option<&'a [u8]>,
    /// What gave the id.
    pub source: Found,
}

/// What gave a session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Found {
    /// A header that the operator configured.
    #[serde(rename = "session.headers")]
    Operator,
    #[serde(untagged)]
    Source(KeySource),
}

/// What the headers alone say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InHeaders<'a> {
    /// The session: no later source can change it.
    Found(Session<'a>),
    /// A source that reads the body comes first.
    NeedsBody,
    /// There is none, and the body would not help.
    Absent,
}

impl Session<'_> {
    /// Whether the id is the opening of the conversation, which is not a session id and never shown as one.
    pub fn is_opening(&self) -> bool {
        self.source == Found::Source(KeySource::Opening)
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("source", &self.source)
            .field("has_agent", &self.agent.is_some())
            .finish_non_exhaustive()
    }
}

/// Asks the headers, up to the first source that would need the body.
pub fn from_headers<'a>(rules: Rules<'_>, endpoint: &Endpoint, headers: &'a HeaderMap) -> InHeaders<'a> {
    if let Some(session) = from_operator(rules.headers, headers) {
        return InHeaders::Found(session);
    }
    for &source in rules.sources {
        if reads_body(source, endpoint) {
            return InHeaders::NeedsBody;
        }
        if let Some(session) = from_header_source(rules, source, headers) {
            return InHeaders::Found(session);
        }
    }
    InHeaders::Absent
}

/// Asks every source. Without a peek (the body is not JSON) those that read the body give nothing.
pub fn find<'a>(
    rules: Rules<'_>,
    endpoint: &Endpoint,
    headers: &'a HeaderMap,
    peek: Option<&'a Peek<'_>>,
) -> Option<Session<'a>> {
    from_operator(rules.headers, headers).or_else(|| {
        rules.sources.iter().find_map(|&source| match peek {
            Some(peek) if reads_body(source, endpoint) => from_body_source(source, peek),
            _ => from_header_source(rules, source, headers),
        })
    })
}

/// Whether a source looks into the body, and may find something there on this endpoint.
fn reads_body(source: KeySource, endpoint: &Endpoint) -> bool {
    match source {
        KeySource::MetadataUserId | KeySource::BodyIds | KeySource::BodyUser => endpoint.body_form() == BodyForm::Json,
        KeySource::Opening => endpoint.is_conversation(),
        _ => false,
    }
}

fn from_operator<'a>(names: &[HeaderName], headers: &'a HeaderMap) -> Option<Session<'a>> {
    let id = names.iter().find_map(|name| verbatim(headers, name.as_str()))?;
    Some(Session { id: Cow::Borrowed(id), agent: None, source: Found::Operator })
}

fn from_header_source<'a>(rules: Rules<'_>, source: KeySource, headers: &'a HeaderMap) -> Option<Session<'a>> {
    let names: &[&str] = match source {
        KeySource::ClaudeCode => &["x-claude-code-session-id"],
        KeySource::Codex if is_codex(headers) => &["session-id", "session_id", "conversation_id"],
        KeySource::SessionHeaders => &["x-session-id", "x-session-affinity", "x-opencode-session"],
        KeySource::SessionIdHeaders => &["session_id", "session-id"],
        KeySource::GatewayHeaders => {
            &["x-litellm-session-id", "x-kilocode-taskid", "x-task-id", "x-openwebui-chat-id", "x-conversation-id"]
        }
        KeySource::ClientRequestId => &["x-client-request-id"],
        _ => return None,
    };
    let id =
        names.iter().find_map(|name| headers.get(*name).map(|value| value.as_bytes()).filter(|id| is_opaque(id)))?;
    let agent = match source {
        _ if !rules.agents_apart => None,
        KeySource::ClaudeCode => verbatim(headers, "x-claude-code-agent-id"),
        // Codex's first thread bears the session's id: it is the same agent whether the header comes or not.
        KeySource::Codex => verbatim(headers, "thread-id").filter(|thread| *thread != id),
        _ => None,
    };
    Some(Session { id: Cow::Borrowed(id), agent, source: Found::Source(source) })
}

fn from_body_source<'a>(source: KeySource, peek: &'a Peek<'_>) -> Option<Session<'a>> {
    let id = match source {
        KeySource::MetadataUserId => session_in_user_id(peek.metadata_user_id.as_deref()?),
        KeySource::BodyIds => [
            &peek.prompt_cache_key,
            &peek.session_id,
            &peek.conversation,
            &peek.litellm_session_id,
            &peek.metadata_session_id,
        ]
        .into_iter()
        .find_map(|id| opaque(id.as_deref()?.into())),
        KeySource::BodyUser => opaque(peek.user.as_deref()?.into()),
        KeySource::Opening => peek.opening().map(Cow::Owned),
        _ => None,
    }?;
    let id = match id {
        Cow::Borrowed(id) => Cow::Borrowed(id.as_bytes()),
        Cow::Owned(id) => Cow::Owned(id.into_bytes()),
    };
    Some(Session { id, agent: None, source: Found::Source(source) })
}

/// The session in Anthropic's `metadata.user_id`: a JSON object with a `session_id`, or
/// `user_<hex>_account_<uuid or nothing>_session_<id>`. Anything else names a user.
fn session_in_user_id(user_id: &str) -> Option<Cow<'_, str>> {
    if user_id.starts_with('{') {
        let [session] = json::fields(user_id.as_bytes(), ["session_id"])?;
        return opaque(json::text(session?)?);
    }
    let (user, rest) = user_id.strip_prefix("user_")?.split_once("_account_")?;
    let (account, session) = rest.split_once("_session_")?;
    let is_hex = |text: &str, also: &str| text.chars().all(|c| c.is_ascii_hexdigit() || also.contains(c));
    (!user.is_empty() && is_hex(user, "") && is_hex(account, "-")).then(|| opaque(session.into()))?
}

fn opaque(id: Cow<'_, str>) -> Option<Cow<'_, str>> {
    is_opaque(id.as_bytes()).then_some(id)
}

/// Whether an id is long enough to be one conversation's and plain enough to be no text: 8 to 128 of `[A-Za-z0-9_.:-]`.
fn is_opaque(id: &[u8]) -> bool {
    (8..=128).contains(&id.len()) && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(byte))
}

/// The first value of a header as it stands, unless it is empty or too long.
fn verbatim<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let value = headers.get(name)?.as_bytes();
    (1..=VERBATIM_MAX).contains(&value.len()).then_some(value)
}

fn is_codex(headers: &HeaderMap) -> bool {
    let says_codex = |name: &str| {
        let value = headers.get(name).map_or(&b""[..], |value| value.as_bytes());
        value.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"codex"))
    };
    says_codex(USER_AGENT.as_str())
        || says_codex("originator")
        || headers.keys().any(|name| name.as_str().starts_with("x-codex-"))
}
