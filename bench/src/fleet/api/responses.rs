//! `/v1/responses`, which keeps nothing: as vLLM without its response store.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::call::Call;
use super::error::ApiError;
use super::stream::{Events, named, streamed, whole};
use crate::engine::{FinishReason, Usage};
use crate::fleet::process::{Process, unix_s};
use crate::fleet::rank::End;
use crate::fleet::render;

/// Serves `POST /v1/responses`.
pub async fn serve(State(process): State<Arc<Process>>, body: Bytes) -> Response {
    answer(process, &body).await.unwrap_or_else(|error| error.openai_response())
}

/// Serves `GET /v1/responses/{id}`: no response is kept.
pub async fn find(Path(id): Path<String>) -> Response {
    let error = ApiError::no_such_response(&id);
    error.openai_response()
}

async fn answer(process: Arc<Process>, body: &Bytes) -> Result<Response, ApiError> {
    let call = Call::read(process, body, |body| {
        let messages = render::responses(body).ok_or("input")?;
        Ok(render::tokens(&messages).collect())
    })?;
    if let Some(previous) = call.body["previous_response_id"].as_str() {
        return Err(ApiError::no_such_response(previous));
    }
    // vLLM honours the rank header here only from 0.33 on.
    let generation = call.generate(None, call.count(&["max_output_tokens"]))?;
    let mut events = ResponseEvents {
        response: new_response(&call),
        item: format!("msg_{}", call.process.new_id()),
        text: String::new(),
        events: 0,
    };
    if call.streams() {
        return Ok(streamed(generation, events));
    }
    let (text, end) = whole(generation).await?;
    events.text = text;
    Ok(Json(events.completed(&end)).into_response())
}

fn new_response(call: &Call) -> Value {
    let mut response = json!({
        "id": format!("resp_{}", call.process.new_id()), "created_at": unix_s() as u64, "model": call.process.model,
        "object": "response", "output": [], "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "none",
        "tools": [], "top_p": 1.0, "background": false, "max_output_tokens": call.count(&["max_output_tokens"]),
        "service_tier": "auto", "status": "in_progress", "truncation": "disabled", "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    });
    let empty = [
        "incomplete_details",
        "instructions",
        "metadata",
        "max_tool_calls",
        "previous_response_id",
        "prompt",
        "reasoning",
        "text",
        "top_logprobs",
        "usage",
        "user",
        "kv_transfer_params",
        "ec_transfer_params",
        "input_messages",
        "output_messages",
    ];
    empty.iter().for_each(|field| response[field] = Value::Null);
    response
}

fn full_usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.created_cache_tokens,
            "input_tokens_per_turn": [], "cached_tokens_per_turn": [],
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {
            "reasoning_tokens": 0, "tool_output_tokens": 0, "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    })
}

struct ResponseEvents {
    response: Value,
    item: String,
    text: String,
    /// Events sent so far: the number of the next.
    events: u64,
}

impl ResponseEvents {
    fn event(&mut self, kind: &str, mut fields: Value) -> String {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.events.into();
        self.events += 1;
        named(&fields)
    }

    /// An event about the text of the answer.
    fn content(&mut self, kind: &str, mut fields: Value) -> String {
        fields["content_index"] = 0.into();
        fields["item_id"] = self.item.clone().into();
        fields["output_index"] = 0.into();
        self.event(kind, fields)
    }

    fn part(&self) -> Value {
        json!({"annotations": [], "text": self.text, "type": "output_text", "logprobs": null})
    }

    fn item(&self) -> Value {
        json!({
            "id": self.item, "content": [self.part()], "role": "assistant", "status": "completed", "type": "message",
            "phase": null,
        })
    }

    fn completed(&self, end: &End) -> Value {
        let mut response = self.response.clone();
        response["status"] = "completed".into();
        if end.reason == FinishReason::Length {
            response["status"] = "incomplete".into();
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["output"] = json!([self.item()]);
        response["usage"] = full_usage(&end.usage);
        response
    }
}

impl Events for ResponseEvents {
    fn start(&mut self) -> String {
        let response = self.response.clone();
        self.event("response.created", json!({"response": response}))
            + &self.event("response.in_progress", json!({"response": response}))
    }

    fn open(&mut self) -> String {
        let item = json!({
            "id": self.item, "content": [], "role": "assistant", "status": "in_progress", "type": "message",
            "phase": null,
        });
        let part = json!({"annotations": [], "text": "", "type": "output_text", "logprobs": []});
        self.event("response.output_item.added", json!({"item": item, "output_index": 0}))
            + &self.content("response.content_part.added", json!({"part": part}))
    }

    fn token(&mut self, text: &str, _: u32) -> String {
        self.text += text;
        self.content("response.output_text.delta", json!({"delta": text, "logprobs": []}))
    }

    fn last(&mut self, text: &str, end: &End) -> String {
        let mut events = if text.is_empty() { String::new() } else { self.token(text, 0) };
        let (text, part, item, response) = (self.text.clone(), self.part(), self.item(), self.completed(end));
        events += &self.content("response.output_text.done", json!({"logprobs": [], "text": text}));
        events += &self.content("response.content_part.done", json!({"part": part}));
        events += &self.event("response.output_item.done", json!({"item": item, "output_index": 0}));
        events += &self.event("response.completed", json!({"response": response}));
        events
    }

    fn fail(&mut self, error: &ApiError) -> String {
        super::stream::data(&error.openai())
    }
}
