//! Errors in vLLM's words, in the shape of the dialect that was spoken.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An error as vLLM's handlers raise it.
#[derive(Debug)]
pub struct ApiError {
    pub status: StatusCode,
    kind: &'static str,
    pub message: String,
    param: Option<String>,
}

impl ApiError {
    /// The body is not JSON. vLLM answers this in the shape of OpenAI on every route.
    pub fn bad_json(error: &serde_json::Error, body_len: usize) -> Self {
        let at = format!("body.{body_len}");
        let message = format!(
            "1 validation error:\n  {{'type': 'json_invalid', 'loc': '{at}', 'msg': 'JSON decode error', 'input': '<dict \
             of 0 items>', 'ctx': {{'error': '{error}'}}}}"
        );
        Self { status: StatusCode::BAD_REQUEST, kind: "Bad Request", message, param: Some(at) }
    }

    /// A field is missing or of the wrong type.
    pub fn bad_field(field: &str) -> Self {
        let at = format!("body.{field}");
        let message = format!("1 validation error:\n  {{'type': 'missing', 'loc': '{at}', 'msg': 'Field required'}}");
        Self { status: StatusCode::BAD_REQUEST, kind: "Bad Request", message, param: Some(at) }
    }

    pub fn bad_request(message: String, param: Option<&str>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "BadRequestError", message, param: param.map(str::to_owned) }
    }

    pub fn no_such_model(asked: &str, model: &str) -> Self {
        let message = format!("The model `{asked}` does not exist. Valid aliases: {model}.");
        Self { status: StatusCode::NOT_FOUND, kind: "NotFoundError", message, param: Some("model".to_owned()) }
    }

    pub fn no_such_response(id: &str) -> Self {
        let message = format!("Response with id '{id}' not found.");
        let param = Some("response_id".to_owned());
        Self { status: StatusCode::NOT_FOUND, kind: "invalid_request_error", message, param }
    }

    pub fn no_such_route() -> Self {
        let (status, kind) = (StatusCode::NOT_FOUND, "Not Found");
        Self { status, kind, message: kind.to_owned(), param: None }
    }

    /// vLLM stops to count where the limit is passed.
    pub fn too_long(prompt_tokens: u32, max_model_len: u32) -> Self {
        let prompt_tokens = prompt_tokens.min(max_model_len + 1);
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least \
             {prompt_tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the \
             length of the input prompt. (parameter=input_tokens, value={prompt_tokens})"
        );
        Self::bad_request(message, Some("input_tokens"))
    }

    pub fn engine_dead() -> Self {
        let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.".to_owned();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "InternalServerError", message, param: None }
    }

    pub fn starting() -> Self {
        let message = "The server is starting.".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, kind: "ServiceUnavailableError", message, param: None }
    }

    /// The response in OpenAI's shape.
    pub fn openai_response(&self) -> Response {
        (self.status, Json(self.openai())).into_response()
    }

    /// The response in Anthropic's shape. Bodies that do not parse never get that far: they are answered in the other.
    pub fn anthropic_response(&self) -> Response {
        if self.kind == "Bad Request" {
            return self.openai_response();
        }
        let error = json!({"type": self.kind, "message": self.message});
        (self.status, Json(json!({"type": "error", "error": error}))).into_response()
    }

    /// The body in OpenAI's shape, as streams carry it too.
    pub fn openai(&self) -> Value {
        let (message, kind, param, code) = (&self.message, self.kind, &self.param, self.status.as_u16());
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }
}
