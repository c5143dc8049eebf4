//! Where a session key may come from.

use serde::{Deserialize, Serialize};

/// One source of a session key. The configuration lists them in the order they are asked; what it does not list is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// `x-claude-code-session-id`, with `x-claude-code-agent-id` for a sub-agent.
    ClaudeCode,
    /// Codex by its user agent, `originator` or `x-codex-*`: `session-id`, `session_id` or `conversation_id`, with `thread-id`.
    Codex,
    /// `x-session-id`, `x-session-affinity`, `x-opencode-session`.
    SessionHeaders,
    /// `session_id`, `session-id`.
    SessionIdHeaders,
    /// `x-litellm-session-id`, `x-kilocode-taskid`, `x-task-id`, `x-openwebui-chat-id`, `x-conversation-id`.
    GatewayHeaders,
    /// Body: the session inside `metadata.user_id`.
    MetadataUserId,
    /// Body: `prompt_cache_key`, `session_id`, `conversation`, `litellm_session_id`, `metadata.session_id`.
    BodyIds,
    /// Body: `user`, where it looks like an opaque id. Off by default: mostly it names a person.
    BodyUser,
    /// `x-client-request-id`. Off by default: Codex and pi set it to the session, others to each request.
    ClientRequestId,
    /// Body: the first user message, hashed. It tells conversations apart but is no session id.
    Opening,
}
