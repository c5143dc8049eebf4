//! `/v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::call::Call;
use super::error::ApiError;
use super::stream::{Events, failed, named, streamed, whole};
use crate::engine::{FinishReason, Usage};
use crate::fleet::process::Process;
use crate::fleet::rank::End;
use crate::fleet::render;

/// Serves `/v1/messages`.
pub async fn serve(State(process): State<Arc<Process>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(process, &headers, &body).await.unwrap_or_else(|error| error.anthropic_response())
}

/// Serves `/v1/messages/count_tokens`.
pub async fn count_tokens(State(process): State<Arc<Process>>, body: Bytes) -> Response {
    match read(process, &body) {
        Ok(call) => {
            let tokens = call.prompt.len();
            Json(json!({"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}}))
                .into_response()
        }
        Err(error) => error.anthropic_response(),
    }
}

fn read(process: Arc<Process>, body: &Bytes) -> Result<Call, ApiError> {
    Call::read(process, body, |body| {
        let messages = render::messages(body).ok_or("messages")?;
        Ok(render::tokens(&messages).collect())
    })
}

async fn answer(process: Arc<Process>, headers: &HeaderMap, body: &Bytes) -> Result<Response, ApiError> {
    let call = read(process, body)?;
    let max_tokens = call.count(&["max_tokens"]).ok_or_else(|| ApiError::bad_field("max_tokens"))?;
    let generation = call.generate(Some(headers), Some(max_tokens));
    let id = call.id("chatcmpl", headers);
    let model = call.process.model.clone();
    if call.streams() {
        let events = MessageEvents { id, model, prompt_tokens: call.prompt.len() };
        return Ok(match generation {
            Ok(generation) => streamed(generation, events),
            Err(error) => failed(&error, events),
        });
    }
    let (text, end) = whole(generation?).await?;
    let message = json!({
        "id": id, "type": "message", "role": "assistant", "content": [{"type": "text", "text": text}], "model": model,
        "stop_reason": stop_reason(end.reason), "usage": full_usage(&end.usage),
    });
    Ok(Json(message).into_response())
}

fn stop_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "end_turn",
        FinishReason::Length => "max_tokens",
    }
}

/// In this dialect the three counts of input tokens add up to the prompt.
fn full_usage(usage: &Usage) -> Value {
    let Usage { prompt_tokens, cached_tokens, created_cache_tokens, output_tokens, .. } = usage;
    json!({
        "input_tokens": prompt_tokens - cached_tokens - created_cache_tokens, "output_tokens": output_tokens,
        "cache_creation_input_tokens": created_cache_tokens, "cache_read_input_tokens": cached_tokens,
    })
}

struct MessageEvents {
    id: String,
    model: String,
    prompt_tokens: u32,
}

impl Events for MessageEvents {
    fn open(&mut self) -> String {
        let message = json!({
            "id": self.id, "type": "message", "role": "assistant", "content": [], "model": self.model,
            "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": self.prompt_tokens, "output_tokens": 0},
        });
        let block = json!({"type": "text", "text": ""});
        named(&json!({"type": "message_start", "message": message}))
            + &named(&json!({"type": "content_block_start", "content_block": block, "index": 0}))
    }

    fn token(&mut self, text: &str, _: u32) -> String {
        let delta = json!({"type": "text_delta", "text": text});
        named(&json!({"type": "content_block_delta", "delta": delta, "index": 0}))
    }

    fn last(&mut self, text: &str, end: &End) -> String {
        let token = if text.is_empty() { String::new() } else { self.token(text, 0) };
        let delta = json!({"stop_reason": stop_reason(end.reason), "stop_sequence": null});
        token
            + &named(&json!({"type": "content_block_stop", "index": 0}))
            + &named(&json!({"type": "message_delta", "delta": delta, "usage": full_usage(&end.usage)}))
            + &named(&json!({"type": "message_stop"}))
    }

    fn fail(&mut self, error: &ApiError) -> String {
        let error = json!({"type": "internal_error", "message": error.message});
        named(&json!({"type": "error", "error": error}))
    }
}
