//! Answers in the making, as events or in one piece.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use serde_json::Value;

use super::error::ApiError;
use crate::fleet::rank::{End, Generation};
use crate::fleet::tokens;

/// How one endpoint writes its stream. Each method returns whole events.
pub trait Events: Send + 'static {
    /// What is sent at once, before there is a token.
    fn start(&mut self) -> String {
        String::new()
    }
    /// What is sent before the first token.
    fn open(&mut self) -> String {
        String::new()
    }
    /// A token that is not the last.
    fn token(&mut self, text: &str, index: u32) -> String;
    /// The last token and all that follows it.
    fn last(&mut self, text: &str, end: &End) -> String;
    /// What is sent when the engine dies.
    fn fail(&mut self, error: &ApiError) -> String;
}

/// The streamed answer. When the client goes away, the generation is dropped and with it aborted.
pub fn streamed(generation: Generation, mut events: impl Events) -> Response {
    let start = events.start();
    let tokens = stream::unfold(Some((generation, events)), |state| async {
        let (mut generation, mut events) = state?;
        let Some(output) = generation.next().await else {
            return Some((events.fail(&ApiError::engine_dead()), None));
        };
        let mut chunk = if output.index == 0 { events.open() } else { String::new() };
        let text = tokens::text(output.token);
        if let Some(end) = &output.end {
            chunk += &events.last(&text, end);
            return Some((chunk, None));
        }
        chunk += &events.token(&text, output.index);
        Some((chunk, Some((generation, events))))
    });
    let chunks = stream::once(async { start }).chain(tokens);
    event_stream(Body::from_stream(chunks.map(Ok::<_, Infallible>)))
}

/// A stream that has nothing but an error to say, with status 200 as vLLM's has by then.
pub fn failed(error: &ApiError, mut events: impl Events) -> Response {
    event_stream(Body::from(events.fail(error)))
}

fn event_stream(body: Body) -> Response {
    ([(CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
}

/// The whole answer at once.
///
/// # Errors
/// When the engine dies.
pub async fn whole(mut generation: Generation) -> Result<(String, End), ApiError> {
    let mut answer = String::new();
    while let Some(output) = generation.next().await {
        answer += &tokens::text(output.token);
        if let Some(end) = output.end {
            return Ok((answer, end));
        }
    }
    Err(ApiError::engine_dead())
}

/// An event without a name.
pub fn data(json: &Value) -> String {
    format!("data: {json}\n\n")
}

/// An event that is named by its type.
pub fn named(json: &Value) -> String {
    format!("event: {}\ndata: {json}\n\n", json["type"].as_str().unwrap_or_default())
}
