//! `/v1/completions`.

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
use crate::fleet::tokens::tokenize;

/// vLLM's `max_tokens` where a completion names none.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// Serves the endpoint, for one prompt a request.
pub async fn serve(State(process): State<Arc<Process>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(process, &headers, &body).await.unwrap_or_else(|error| error.openai_response())
}

async fn answer(process: Arc<Process>, headers: &HeaderMap, body: &Bytes) -> Result<Response, ApiError> {
    let call = Call::read(process, body, |body| prompt(&body["prompt"]).ok_or("prompt"))?;
    let generation = call.generate(Some(headers), call.count(&["max_tokens"]).or(Some(DEFAULT_MAX_TOKENS)));
    let (id, model) = (call.id("cmpl", headers), call.process.model.clone());
    let created = unix_s() as u64;
    if call.streams() {
        let usage = call.body["stream_options"]["include_usage"] == true;
        let events = CompletionEvents { id, created, model, usage };
        return Ok(match generation {
            Ok(generation) => streamed(generation, events),
            Err(error) => failed(&error, events),
        });
    }
    let (text, end) = whole(generation?).await?;
    let choice = json!({
        "index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason(end.reason), "stop_reason": null,
        "token_ids": null, "prompt_logprobs": null, "prompt_token_ids": null, "routed_experts": null,
    });
    let completion = json!({
        "id": id, "object": "text_completion", "created": created, "model": model, "choices": [choice],
        "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": full_usage(&end.usage),
        "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null,
    });
    Ok(Json(completion).into_response())
}

/// The tokens of a prompt: a text, or the tokens themselves, or a list with one text.
fn prompt(prompt: &Value) -> Option<Vec<u32>> {
    let tokens: Vec<u32> = match prompt {
        Value::String(text) => tokenize(text).collect(),
        Value::Array(one) if one.len() == 1 && one[0].is_string() => tokenize(one[0].as_str()?).collect(),
        Value::Array(tokens) => {
            tokens.iter().map(|token| u32::try_from(token.as_u64()?).ok()).collect::<Option<_>>()?
        }
        _ => return None,
    };
    Some(tokens).filter(|tokens| !tokens.is_empty())
}

fn full_usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "completion_tokens": usage.output_tokens, "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}

struct CompletionEvents {
    id: String,
    created: u64,
    model: String,
    usage: bool,
}

impl CompletionEvents {
    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    fn text(&self, text: &str, finish_reason: Option<&str>) -> Value {
        self.chunk(json!([{
            "index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason, "stop_reason": null,
            "prompt_token_ids": null, "token_ids": null,
        }]))
    }
}

impl Events for CompletionEvents {
    fn token(&mut self, text: &str, _: u32) -> String {
        data(&self.text(text, None))
    }

    fn last(&mut self, text: &str, end: &End) -> String {
        let mut last = self.text(text, Some(finish_reason(end.reason)));
        if !self.usage {
            last["system_fingerprint"] = FINGERPRINT.into();
            return data(&last) + "data: [DONE]\n\n";
        }
        let mut usage = self.chunk(json!([]));
        usage["usage"] = full_usage(&end.usage);
        usage["system_fingerprint"] = FINGERPRINT.into();
        data(&last) + &data(&usage) + "data: [DONE]\n\n"
    }

    fn fail(&mut self, error: &ApiError) -> String {
        data(&error.openai()) + "data: [DONE]\n\n"
    }
}
