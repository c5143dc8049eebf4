//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::call::Call;
use super::error::ApiError;
use super::stream::{Events, data, failed, streamed, whole};
use super::{FINGERPRINT, finish_reason};
use crate::engine::Usage;
use crate::fleet::process::{Process, unix_s};
use crate::fleet::rank::End;
use crate::fleet::render;

/// Serves the endpoint.
pub async fn serve(State(process): State<Arc<Process>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(process, &headers, &body).await.unwrap_or_else(|error| error.openai_response())
}

async fn answer(process: Arc<Process>, headers: &HeaderMap, body: &Bytes) -> Result<Response, ApiError> {
    let call = Call::read(process, body, |body| {
        let messages = render::chat(body).ok_or("messages")?;
        Ok(render::tokens(&messages).collect())
    })?;
    let head = Head { id: call.id("chatcmpl", headers), created: unix_s() as u64, model: call.process.model.clone() };
    let generation = call.generate(Some(headers), call.count(&["max_completion_tokens", "max_tokens"]));
    if call.streams() {
        let options = &call.body["stream_options"];
        let events = ChatEvents {
            head,
            prompt_tokens: call.prompt.len(),
            usage: options["include_usage"] == true,
            usage_always: options["continuous_usage_stats"] == true,
        };
        return Ok(match generation {
            Ok(generation) => streamed(generation, events),
            Err(error) => failed(&error, events),
        });
    }
    let (text, end) = whole(generation?).await?;
    Ok(Json(head.completion(&text, &end)).into_response())
}

struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn completion(&self, text: &str, end: &End) -> Value {
        let message = json!({
            "role": "assistant", "content": text, "refusal": null, "annotations": null, "audio": null,
            "function_call": null, "reasoning": null,
        });
        let mut usage = full_usage(&end.usage);
        usage["prompt_tokens_details"]["multimodal_tokens"] = Value::Null;
        usage["completion_tokens_details"] = Value::Null;
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{
                "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(end.reason),
                "stop_reason": null, "token_ids": null, "routed_experts": null,
            }],
            "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": usage, "prompt_logprobs": null,
            "prompt_token_ids": null, "prompt_text": null, "kv_transfer_params": null, "ec_transfer_params": null,
            "metrics": null,
        })
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": choices,
        })
    }
}

fn full_usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens, "created_cache_tokens": usage.created_cache_tokens,
        },
    })
}

struct ChatEvents {
    head: Head,
    prompt_tokens: u32,
    /// Whether a last chunk tells the usage.
    usage: bool,
    /// Whether every chunk does.
    usage_always: bool,
}

impl ChatEvents {
    fn chunk(&self, choice: Value, output_tokens: u32) -> Value {
        let mut chunk = self.head.chunk(json!([choice]));
        if self.usage && self.usage_always {
            chunk["usage"] = json!({
                "prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens + output_tokens,
                "completion_tokens": output_tokens, "completion_tokens_details": null,
            });
        }
        chunk
    }
}

impl Events for ChatEvents {
    fn open(&mut self) -> String {
        let delta = json!({"role": "assistant", "content": ""});
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
        let mut chunk = self.chunk(choice, 0);
        chunk["prompt_token_ids"] = Value::Null;
        chunk["prompt_text"] = Value::Null;
        data(&chunk)
    }

    fn token(&mut self, text: &str, index: u32) -> String {
        let choice = json!({
            "index": 0, "delta": {"content": text}, "logprobs": null, "finish_reason": null, "token_ids": null,
        });
        data(&self.chunk(choice, index + 1))
    }

    fn last(&mut self, text: &str, end: &End) -> String {
        let delta = if text.is_empty() { json!({}) } else { json!({"content": text}) };
        let choice = json!({
            "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason(end.reason),
            "stop_reason": null, "token_ids": null,
        });
        let mut last = self.chunk(choice, end.usage.output_tokens);
        if !self.usage {
            last["system_fingerprint"] = FINGERPRINT.into();
            return data(&last) + "data: [DONE]\n\n";
        }
        let mut usage = self.head.chunk(json!([]));
        usage["usage"] = full_usage(&end.usage);
        usage["system_fingerprint"] = FINGERPRINT.into();
        data(&last) + &data(&usage) + "data: [DONE]\n\n"
    }

    fn fail(&mut self, error: &ApiError) -> String {
        data(&error.openai()) + "data: [DONE]\n\n"
    }
}
