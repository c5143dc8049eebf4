//! Reads a turn's streamed answer.

use std::time::Instant;

use futures::StreamExt;
use homing::request::usage::{Usage, UsageReader};
use serde_json::Value;

/// An answer as it came.
pub struct Answer {
    /// The balancer's own account, where one stands in between.
    pub replica: Option<String>,
    pub decision: Option<String>,
    pub ended: Instant,
    pub text: String,
    pub usage: Usage,
}

/// Reads an answer to its end, and says when the first byte of its body comes.
///
/// # Errors
/// A message that says what was wrong with it.
pub async fn read(response: reqwest::Response, first_byte: impl FnOnce(Instant)) -> Result<Answer, String> {
    let status = response.status();
    if !status.is_success() {
        let body = response.text().await.unwrap_or_default();
        return Err(format!("{status}: {}", body.chars().take(200).collect::<String>()));
    }
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (replica, decision) = (header("x-homing-replica"), header("x-homing-decision"));
    let (mut usage, mut lines, mut first_byte) = (UsageReader::new(), Lines::default(), Some(first_byte));
    let mut body = response.bytes_stream();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| format!("the stream broke off: {error}"))?;
        if let Some(first_byte) = first_byte.take() {
            first_byte(Instant::now());
        }
        usage.feed(&piece);
        lines.feed(&piece);
    }
    let usage = usage.usage().ok_or("the stream said nothing of tokens")?;
    Ok(Answer { replica, decision, ended: Instant::now(), text: lines.text, usage })
}

/// Takes the model's words out of the events of a stream, of either dialect.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    text: String,
}

impl Lines {
    fn feed(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if let Some(event) =
                line.strip_prefix(b"data: ").and_then(|data| serde_json::from_slice::<Value>(data).ok())
            {
                let words = event.pointer("/choices/0/delta/content").or(event.pointer("/delta/text"));
                self.text += words.and_then(Value::as_str).unwrap_or_default();
            }
        }
    }
}
