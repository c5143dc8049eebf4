//! One turn as a client would send it.

use clap::ValueEnum;
use serde::Serialize;

use super::conversation::Conversation;
use super::text;
use crate::load::Call;

/// The API that the sessions speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// Anthropic's `/v1/messages`, as Claude Code sends it.
    Messages,
    /// OpenAI's `/v1/chat/completions`.
    Chat,
}

/// Where to send turns, and for which model.
#[derive(Clone, Debug)]
pub struct Target {
    /// Without a slash at its end.
    pub url: String,
    pub model: String,
    pub dialect: Dialect,
}

/// A message as both dialects write it.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    role: &'static str,
    pub content: String,
}

impl Message {
    /// What the model said.
    pub fn answer(content: String) -> Message {
        Message { role: "assistant", content }
    }

    /// What the user, or a tool, says at a turn.
    pub fn of(call: &Call) -> Message {
        let id = call.id;
        let subject = format!("{} {} {} of {:x}", id.session, id.conversation, id.turn, call.session_key);
        Message { role: "user", content: text::message(&subject, call.turn.message_tokens) }
    }
}

/// The system prompt of a conversation; agents share one of their own.
pub fn system(call: &Call) -> String {
    let subject = if call.id.conversation == 0 { "instructions" } else { "agents' instructions" };
    text::message(subject, call.turn.system_tokens)
}

/// The keys of Claude Code's body, in its order: the model first, the session behind the messages.
#[derive(Serialize)]
struct MessagesBody<'a> {
    model: &'a str,
    messages: &'a [Message],
    system: [TextBlock<'a>; 1],
    metadata: Metadata,
    max_tokens: u32,
    stream: bool,
}

#[derive(Serialize)]
struct TextBlock<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct Metadata {
    user_id: String,
}

#[derive(Serialize)]
struct ChatBody<'a> {
    model: &'a str,
    messages: Vec<ChatMessage<'a>>,
    max_tokens: u32,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct ChatMessage<'a> {
    role: &'a str,
    content: &'a str,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl Target {
    /// The request of a turn, with everything said so far. Its answer is to be as long as the load planned.
    pub fn request(
        &self,
        client: &reqwest::Client,
        call: &Call,
        conversation: &Conversation,
    ) -> reqwest::RequestBuilder {
        let Conversation { system, messages } = conversation;
        let session = format!("session-{:016x}", call.session_key);
        let max_tokens = call.turn.output_tokens;
        match self.dialect {
            Dialect::Messages => {
                let user_id = format!(r#"{{"session_id":"{session}"}}"#);
                let body = MessagesBody {
                    model: &self.model,
                    messages,
                    system: [TextBlock { r#type: "text", text: system }],
                    metadata: Metadata { user_id },
                    max_tokens,
                    stream: true,
                };
                let request = client
                    .post(format!("{}/v1/messages?beta=true", self.url))
                    .header("anthropic-version", "2023-06-01")
                    .header("user-agent", "claude-cli/2.0.0 (external, cli)")
                    .header("x-app", "cli")
                    .header("x-claude-code-session-id", session);
                let request = match call.id.conversation {
                    0 => request,
                    agent => request.header("x-claude-code-agent-id", format!("agent-{agent}")),
                };
                request.json(&body)
            }
            Dialect::Chat => {
                let said = messages.iter().map(|message| ChatMessage { role: message.role, content: &message.content });
                let body = ChatBody {
                    model: &self.model,
                    messages: std::iter::once(ChatMessage { role: "system", content: system }).chain(said).collect(),
                    max_tokens,
                    stream: true,
                    stream_options: StreamOptions { include_usage: true },
                };
                let key = match call.id.conversation {
                    0 => session,
                    agent => format!("{session}-agent-{agent}"),
                };
                client.post(format!("{}/v1/chat/completions", self.url)).header("x-session-id", key).json(&body)
            }
        }
    }
}
