use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};

/// What every conversation begins with, as an agent's instructions do.
const SYSTEM_WORDS: usize = 600;
const FIRST_MESSAGE_WORDS: usize = 1000;
const LATER_MESSAGE_WORDS: usize = 60;
const ANSWER_TOKENS: u32 = 64;

/// The API that a conversation speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    Anthropic,
}

/// What the balancer did with one turn and what the engine made of it.
#[derive(Clone, Debug)]
pub struct Turn {
    pub replica: String,
    pub decision: String,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
}

/// Plays conversations through the balancer.
pub struct Player {
    pub client: reqwest::Client,
    pub balancer: SocketAddr,
    pub model: String,
}

impl Player {
    /// Plays a conversation: each turn sends everything said so far, as agents do.
    ///
    /// # Errors
    /// When a turn is not answered.
    pub async fn play(&self, index: usize, dialect: Dialect, turns: usize) -> io::Result<Vec<Turn>> {
        let mut messages = Vec::new();
        let mut played = Vec::new();
        for turn in 0..turns {
            let words = if turn == 0 { FIRST_MESSAGE_WORDS } else { LATER_MESSAGE_WORDS };
            let text = words_of(&format!("conversation {index} turn {turn}"), words);
            messages.push(json!({"role": "user", "content": text}));
            let (outcome, answer) = self.send(index, dialect, &messages).await.map_err(io::Error::other)?;
            messages.push(json!({"role": "assistant", "content": answer}));
            played.push(outcome);
        }
        Ok(played)
    }

    async fn send(&self, index: usize, dialect: Dialect, messages: &[Value]) -> reqwest::Result<(Turn, String)> {
        let answer = self.request(index, dialect, messages).send().await?.error_for_status()?;
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
        let (replica, decision) = (header("x-homing-replica"), header("x-homing-decision"));
        let answer: Value = answer.json().await?;
        let number = |pointer| answer.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let (prompt_tokens, cached_tokens, text) = match dialect {
            Dialect::OpenAi => (
                number("/usage/prompt_tokens"),
                number("/usage/prompt_tokens_details/cached_tokens"),
                answer.pointer("/choices/0/message/content"),
            ),
            Dialect::Anthropic => {
                let cached = number("/usage/cache_read_input_tokens");
                let prompt = number("/usage/input_tokens") + cached + number("/usage/cache_creation_input_tokens");
                (prompt, cached, answer.pointer("/content/0/text"))
            }
        };
        let text = text.and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok((Turn { replica, decision, prompt_tokens, cached_tokens }, text))
    }

    fn request(&self, index: usize, dialect: Dialect, messages: &[Value]) -> reqwest::RequestBuilder {
        let system = words_of("instructions", SYSTEM_WORDS);
        let url = |path| format!("http://{}{path}", self.balancer);
        let session = format!("demonstration-{index}");
        let (request, body) = match dialect {
            Dialect::OpenAi => {
                let system = json!({"role": "system", "content": system});
                let all: Vec<&Value> = std::iter::once(&system).chain(messages).collect();
                let request = self.client.post(url("/v1/chat/completions")).header("x-session-id", session);
                (request, json!({"model": self.model, "messages": all, "max_tokens": ANSWER_TOKENS}))
            }
            Dialect::Anthropic => {
                let request = self.client.post(url("/v1/messages")).header("x-claude-code-session-id", session);
                let body = json!({
                    "model": self.model, "messages": messages, "system": system, "max_tokens": ANSWER_TOKENS,
                });
                (request, body)
            }
        };
        request.json(&body)
    }
}

/// Text of that many words which differs with its `subject` from the first word on.
fn words_of(subject: &str, count: usize) -> String {
    (0..count).map(|word| format!("{subject} {word} ")).collect()
}
