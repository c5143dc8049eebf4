//! One turn: its request, and its answer as it came.

use futures::StreamExt;
use serde_json::{Value, json};

/// The API that a session speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Messages,
    Responses,
}

/// What is asked.
pub struct Request {
    pub api: Api,
    pub streamed: bool,
    pub body: Value,
}

/// What came of it, as far as it came.
#[derive(Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub replica: String,
    pub request_id: String,
    pub body: Vec<u8>,
    /// Why it broke off.
    pub broken: Option<String>,
}

impl Api {
    pub fn path(self) -> &'static str {
        match self {
            Api::Chat => "/v1/chat/completions",
            Api::Messages => "/v1/messages",
            Api::Responses => "/v1/responses",
        }
    }

    /// A body that asks for an answer of `max_tokens` to what was said.
    pub fn body(self, model: &str, messages: &[Value], max_tokens: u32, streamed: bool) -> Value {
        match self {
            Api::Chat | Api::Messages => {
                json!({"model": model, "messages": messages, "max_tokens": max_tokens, "stream": streamed})
            }
            Api::Responses => {
                json!({"model": model, "input": messages, "max_output_tokens": max_tokens, "stream": streamed})
            }
        }
    }
}

impl Reply {
    /// Reads an answer to its end, whatever that is.
    pub async fn read(response: reqwest::Response) -> Reply {
        let header =
            |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let (replica, request_id) = (header("x-homing-replica"), header("x-request-id"));
        let mut reply = Reply { status: response.status().as_u16(), replica, request_id, ..Reply::default() };
        let mut pieces = response.bytes_stream();
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) => reply.body.extend_from_slice(&piece),
                Err(error) => {
                    reply.broken = Some(format!("cut off after {} bytes: {error}", reply.body.len()));
                    break;
                }
            }
        }
        reply
    }

    /// Whether anything of an answer has come, not only word of a failure.
    pub fn has_begun(&self) -> bool {
        let text = String::from_utf8_lossy(&self.body);
        let mut events = text.lines().filter(|line| line.starts_with("data: ")).peekable();
        match events.peek() {
            Some(_) => events.any(|data| !data.contains("\"error\":{") && !data.ends_with("[DONE]")),
            None => !self.body.is_empty(),
        }
    }

    /// The model's words, if the answer is whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn words(&self, request: &Request) -> Result<String, String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        let text = String::from_utf8_lossy(&self.body);
        if self.status != 200 {
            return Err(format!("status {}: {}", self.status, shortened(&text)));
        }
        if request.streamed { streamed(request.api, &text) } else { whole(request.api, &text) }
    }
}

/// Enough of a text to know it by.
pub fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

fn whole(api: Api, text: &str) -> Result<String, String> {
    let answer: Value = serde_json::from_str(text).map_err(|error| format!("{error} in {}", shortened(text)))?;
    let words = match api {
        Api::Chat => answer.pointer("/choices/0/message/content"),
        Api::Messages => answer.pointer("/content/0/text"),
        Api::Responses => answer.pointer("/output/0/content/0/text"),
    };
    words.and_then(Value::as_str).map(str::to_owned).ok_or_else(|| format!("no words in {}", shortened(text)))
}

fn streamed(api: Api, text: &str) -> Result<String, String> {
    let (mut words, mut ends) = (String::new(), 0);
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if data == "[DONE]" {
            ends += u32::from(api == Api::Chat);
            continue;
        }
        let event: Value = serde_json::from_str(data).map_err(|error| format!("{error} in {}", shortened(data)))?;
        if event.get("error").is_some_and(|error| !error.is_null()) {
            return Err(format!("an error within the stream: {}", shortened(data)));
        }
        let kind = event["type"].as_str().unwrap_or_default();
        ends += u32::from(kind == "message_stop" || kind.starts_with("response.completed"));
        let said = match (api, kind) {
            (Api::Chat, _) => event.pointer("/choices/0/delta/content"),
            (Api::Messages, "content_block_delta") => event.pointer("/delta/text"),
            (Api::Responses, "response.output_text.delta") => event.get("delta"),
            _ => None,
        };
        words += said.and_then(Value::as_str).unwrap_or_default();
    }
    match ends {
        1 => Ok(words),
        _ => Err(format!("a stream with {ends} ends: {}", shortened(text))),
    }
}
