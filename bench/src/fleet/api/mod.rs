//! vLLM's HTTP interface in front of a [`Process`].

mod call;
mod chat;
mod completions;
mod error;
mod messages;
mod responses;
mod stream;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use self::error::ApiError;
use super::fault::Fault;
use super::process::{Process, unix_s};
use super::rank::Rank;
use super::{render, tokens};
use crate::engine::FinishReason;

/// The version of vLLM that is imitated.
const VERSION: &str = "0.32.0";
/// What vLLM signs its answers with: its version and a hash of its configuration.
const FINGERPRINT: &str = "vllm-0.32.0-simulated";
/// Bytes of a request body at most; agents send megabytes.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The routes of one server.
pub fn router(process: Arc<Process>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::serve))
        .route("/v1/completions", post(completions::serve))
        .route("/v1/messages", post(messages::serve))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/responses", post(responses::serve))
        .route("/v1/responses/{id}", get(responses::find))
        .route("/v1/models", get(models))
        .route("/tokenize", post(tokenize))
        .route("/health", get(health))
        .route("/ping", get(health).post(health))
        .route("/version", get(async || Json(json!({"version": VERSION}))))
        .route("/load", get(load))
        .route("/metrics", get(metrics))
        .fallback(async || ApiError::no_such_route().openai_response())
        .layer(middleware::from_fn_with_state(process.clone(), refuse_while_starting))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(process)
}

async fn refuse_while_starting(State(process): State<Arc<Process>>, request: Request, next: Next) -> Response {
    if *process.faults.borrow() == Fault::Starting {
        let error = ApiError::starting();
        let anthropic = request.uri().path().starts_with("/v1/messages");
        return if anthropic { error.anthropic_response() } else { error.openai_response() };
    }
    next.run(request).await
}

async fn health(State(process): State<Arc<Process>>) -> StatusCode {
    // Also between the end of the fault and that of the process: a balancer may ask at that very moment.
    match *process.faults.borrow() == Fault::EngineDead || process.ranks.iter().any(Rank::is_dead) {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::OK,
    }
}

async fn load(State(process): State<Arc<Process>>) -> Json<Value> {
    let requests: u32 = process.ranks.iter().map(|rank| rank.in_flight()).sum();
    Json(json!({"server_load": requests}))
}

async fn metrics(State(process): State<Arc<Process>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=1.0.0; charset=utf-8")], process.metrics())
}

async fn models(State(process): State<Arc<Process>>) -> Json<Value> {
    let created = unix_s() as u64;
    let permission = json!({
        "id": format!("modelperm-{}", process.new_id()), "object": "model_permission", "created": created,
        "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true, "allow_search_indices": false,
        "allow_view": true, "allow_fine_tuning": false, "organization": "*", "group": null, "is_blocking": false,
    });
    let model = json!({
        "id": process.model, "object": "model", "created": created, "owned_by": "vllm", "root": process.model,
        "parent": null, "max_model_len": process.profile.engine.max_model_len, "permission": [permission],
    });
    Json(json!({"object": "list", "data": [model]}))
}

/// Tokens of a `prompt` or of `messages`.
async fn tokenize(State(process): State<Arc<Process>>, body: Bytes) -> Response {
    let tokens = serde_json::from_slice::<Value>(&body)
        .map_err(|error| ApiError::bad_json(&error, body.len()))
        .and_then(|body| match (body["prompt"].as_str(), render::chat(&body)) {
            (Some(prompt), _) => Ok(tokens::tokenize(prompt).collect::<Vec<_>>()),
            (None, Some(messages)) => Ok(render::tokens(&messages).collect()),
            (None, None) => Err(ApiError::bad_field("prompt")),
        });
    match tokens {
        Ok(tokens) => {
            let max_model_len = process.profile.engine.max_model_len;
            let count = tokens.len();
            Json(json!({"count": count, "max_model_len": max_model_len, "tokens": tokens, "token_strs": null}))
                .into_response()
        }
        Err(error) => error.openai_response(),
    }
}

fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}
