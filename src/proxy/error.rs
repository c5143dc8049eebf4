//! The balancer's own errors, in the dialect of the path that was asked.

use bytes::Bytes;
use http::{StatusCode, header};
use pingora::Result;
use pingora::http::ResponseHeader;
use serde_json::json;

use crate::callers::limits::Exceeded;
use crate::request::Dialect;
use crate::routing::{Refusal, RefusedWhy};

/// An error of the balancer's own. Its code is stable: programs may rely on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnError {
    UnknownRoute,
    ClosedRoute,
    MethodNotAllowed(&'static str),
    UnknownModel,
    ModelRequired,
    InvalidKey,
    ModelNotAllowed,
    /// A limit of the caller.
    CallerLimit(Exceeded),
    /// None of several models is known to have made this response; or the caller is known not to have had it made.
    UnknownResponse,
    /// The replica that kept a response is gone, or has restarted since.
    ResponseGone,
    /// The path speaks WebSocket alone.
    UpgradeRequired,
    NotJson,
    UnreadableBody,
    BadRequest,
    /// What of the head of a request breaks a rule.
    MalformedHead(&'static str),
    HeadTooLarge,
    TargetTooLong,
    UnknownCoding,
    HeaderTimeout {
        seconds: u64,
    },
    ContentEncoding,
    BodyTooLarge {
        bytes_max: u64,
    },
    BodyTimeout {
        seconds: u64,
    },
    Overloaded,
    /// There was no room in the caches of the model.
    NotAdmitted(Refusal),
    NoReplica,
    ReplicaFailed,
    ReplicaTimeout,
    TooManyConnections,
    Internal,
}

/// Why a request goes no further.
pub enum Stopped {
    /// The balancer answers it.
    Own(OwnError),
    /// There is nobody to answer.
    Failed(Box<pingora::Error>),
}

impl From<OwnError> for Stopped {
    fn from(error: OwnError) -> Stopped {
        Stopped::Own(error)
    }
}

impl OwnError {
    /// The stable code, as in the body, the log and the metrics.
    pub fn code(&self) -> &'static str {
        match self {
            OwnError::UnknownRoute => "unknown_route",
            OwnError::ClosedRoute => "route_not_open",
            OwnError::MethodNotAllowed(_) => "method_not_allowed",
            OwnError::UnknownModel => "model_not_found",
            OwnError::ModelRequired => "model_required",
            OwnError::InvalidKey => "invalid_api_key",
            OwnError::ModelNotAllowed => "model_not_allowed",
            OwnError::CallerLimit(Exceeded::Rate { .. }) => "caller_rate",
            OwnError::CallerLimit(Exceeded::InFlight { .. }) => "caller_in_flight",
            OwnError::CallerLimit(Exceeded::Conversations { .. }) => "caller_conversations",
            OwnError::UnknownResponse => "response_not_found",
            OwnError::ResponseGone => "response_gone",
            OwnError::UpgradeRequired => "upgrade_required",
            OwnError::NotJson => "body_not_json",
            OwnError::UnreadableBody => "body_unreadable",
            OwnError::BadRequest | OwnError::MalformedHead(_) => "bad_request",
            OwnError::HeadTooLarge => "headers_too_large",
            OwnError::TargetTooLong => "target_too_long",
            OwnError::UnknownCoding => "transfer_coding",
            OwnError::HeaderTimeout { .. } => "header_timeout",
            OwnError::ContentEncoding => "content_encoding",
            OwnError::BodyTooLarge { .. } => "body_too_large",
            OwnError::BodyTimeout { .. } => "body_timeout",
            OwnError::Overloaded => "overloaded",
            OwnError::NotAdmitted(Refusal { why: RefusedWhy::Overdue, .. }) => "admission_overdue",
            OwnError::NotAdmitted(Refusal { why: RefusedWhy::Full, .. }) => "admission_full",
            OwnError::NoReplica => "no_replica",
            OwnError::ReplicaFailed => "replica_failed",
            OwnError::ReplicaTimeout => "replica_timeout",
            OwnError::TooManyConnections => "too_many_connections",
            OwnError::Internal => "internal_error",
        }
    }

    /// The status in `dialect`: Anthropic has one of its own, which its clients know, for a service that is full.
    pub fn status(&self, dialect: Dialect) -> StatusCode {
        match (self, dialect) {
            (OwnError::NotAdmitted(_), Dialect::Anthropic) => StatusCode::from_u16(529).unwrap_or(self.kind()),
            _ => self.kind(),
        }
    }

    /// The status by which errors are told apart.
    fn kind(&self) -> StatusCode {
        match self {
            OwnError::UnknownRoute | OwnError::ClosedRoute | OwnError::UnknownModel => StatusCode::NOT_FOUND,
            OwnError::UnknownResponse | OwnError::ResponseGone => StatusCode::NOT_FOUND,
            OwnError::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
            OwnError::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            OwnError::ModelRequired
            | OwnError::NotJson
            | OwnError::UnreadableBody
            | OwnError::BadRequest
            | OwnError::MalformedHead(_) => StatusCode::BAD_REQUEST,
            OwnError::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            OwnError::TargetTooLong => StatusCode::URI_TOO_LONG,
            OwnError::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            OwnError::ContentEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            OwnError::InvalidKey => StatusCode::UNAUTHORIZED,
            OwnError::ModelNotAllowed => StatusCode::FORBIDDEN,
            OwnError::CallerLimit(_) => StatusCode::TOO_MANY_REQUESTS,
            OwnError::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            OwnError::BodyTimeout { .. } | OwnError::HeaderTimeout { .. } => StatusCode::REQUEST_TIMEOUT,
            OwnError::Overloaded | OwnError::NotAdmitted(_) | OwnError::NoReplica | OwnError::TooManyConnections => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            OwnError::ReplicaFailed => StatusCode::BAD_GATEWAY,
            OwnError::ReplicaTimeout => StatusCode::GATEWAY_TIMEOUT,
            OwnError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What happened and what to do, for a person.
    pub fn message(&self) -> String {
        match self {
            OwnError::UnknownRoute => "There is nothing at this path. The routes stand in docs/operating.md.".into(),
            OwnError::ClosedRoute => "This path of the engine is not open to the outside.".into(),
            OwnError::MethodNotAllowed(allowed) => format!("This path answers only to {allowed}."),
            OwnError::UnknownModel => {
                "No model of this name is served here. GET /v1/models lists those that are.".into()
            }
            OwnError::ModelRequired => "Name the model: several are served here.".into(),
            OwnError::InvalidKey => {
                "Send an API key of this balancer, as `Authorization: Bearer KEY` or `x-api-key: KEY`.".into()
            }
            OwnError::ModelNotAllowed => "This API key may not use this model.".into(),
            OwnError::CallerLimit(exceeded) => {
                format!("The limit of this API key is reached: {}. Try again later.", exceeded.limit())
            }
            OwnError::UnknownResponse => {
                "It is not known here which replica has this response, or it is another caller's.".into()
            }
            OwnError::ResponseGone => {
                "The replica that kept this response is gone, and the response with it. Send the whole conversation."
                    .into()
            }
            OwnError::UpgradeRequired => "This path speaks WebSocket: ask for an upgrade, over HTTP/1.1.".into(),
            OwnError::NotJson => "The body is not a JSON object, so the model that it is for cannot be told.".into(),
            OwnError::UnreadableBody => "The body ended early or was framed wrongly.".into(),
            OwnError::BadRequest => "The request's headers break the rules of HTTP.".into(),
            OwnError::MalformedHead(what) => format!("The request breaks the rules of HTTP: {what}."),
            OwnError::HeadTooLarge => "The request's headers are too many or too large.".into(),
            OwnError::TargetTooLong => "The request's address is too long.".into(),
            OwnError::UnknownCoding => "Of transfer codings only chunked is known here.".into(),
            OwnError::HeaderTimeout { seconds } => format!("The headers did not arrive within {seconds} s."),
            OwnError::ContentEncoding => "Send the body as it is: packed ones are not read here.".into(),
            OwnError::BodyTooLarge { bytes_max } => format!("The body is larger than {bytes_max} bytes."),
            OwnError::BodyTimeout { seconds } => format!("The body did not arrive within {seconds} s."),
            OwnError::Overloaded => "Too many request bodies are held at this moment. Try again.".into(),
            OwnError::NotAdmitted(Refusal { why: RefusedWhy::Overdue, .. }) => {
                "No replica has had room for this conversation yet. Its place in line is kept for a minute: try again."
                    .into()
            }
            OwnError::NotAdmitted(Refusal { why: RefusedWhy::Full, .. }) => {
                "Too many conversations wait for room at this moment. Try again.".into()
            }
            OwnError::NoReplica => "No replica of this model can be reached. Try again.".into(),
            OwnError::ReplicaFailed => "The replica failed while it answered. Try again.".into(),
            OwnError::ReplicaTimeout => "The replica has been silent for too long. Try again.".into(),
            OwnError::TooManyConnections => "Too many connections are open. Try again.".into(),
            OwnError::Internal => "The balancer failed. Its log says more under the request id.".into(),
        }
    }

    /// Seconds after which another try makes sense.
    fn retry_after_s(&self) -> Option<u64> {
        match self {
            OwnError::NotAdmitted(refusal) => Some(refusal.retry_after_s),
            OwnError::CallerLimit(exceeded) => Some(exceeded.retry_after_s()),
            _ => {
                let passing = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];
                passing.contains(&self.kind()).then_some(1)
            }
        }
    }

    fn openai_type(&self) -> &'static str {
        match self.kind() {
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "service_unavailable_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.kind() {
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            StatusCode::REQUEST_TIMEOUT => "timeout_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// The body in `dialect`.
    pub fn body(&self, dialect: Dialect, request_id: &str) -> Bytes {
        let (code, message) = (self.code(), self.message());
        let body = match dialect {
            Dialect::OpenAi => json!({
                "error": {"message": message, "type": self.openai_type(), "param": null, "code": code},
            }),
            Dialect::Anthropic => json!({
                "type": "error",
                "error": {"type": self.anthropic_type(), "message": message, "code": code},
                "request_id": request_id,
            }),
        };
        Bytes::from(body.to_string())
    }

    /// The same as a last event of a stream that broke off.
    pub fn event(&self, dialect: Dialect, request_id: &str) -> Bytes {
        let body = self.body(dialect, request_id);
        let name = if dialect == Dialect::Anthropic { "event: error\n" } else { "" };
        Bytes::from([b"\n\n", name.as_bytes(), b"data: ", &body[..], b"\n\n"].concat())
    }

    /// The response's header in `dialect`, for a body of `length` bytes.
    ///
    /// # Errors
    /// Never in practice: all the values are valid in a header.
    pub fn header(&self, dialect: Dialect, length: usize, request_id: &str) -> Result<Box<ResponseHeader>> {
        let mut answer = ResponseHeader::build(self.status(dialect), Some(8))?;
        answer.insert_header(header::CONTENT_TYPE, "application/json")?;
        answer.insert_header(header::CONTENT_LENGTH, length.to_string())?;
        answer.insert_header("x-request-id", request_id)?;
        answer.insert_header("x-homing-error", self.code())?;
        if let Some(seconds) = self.retry_after_s() {
            answer.insert_header(header::RETRY_AFTER, seconds.to_string())?;
        }
        if *self == OwnError::ContentEncoding {
            answer.insert_header(header::ACCEPT_ENCODING, "identity")?;
        }
        if *self == OwnError::InvalidKey {
            answer.insert_header(header::WWW_AUTHENTICATE, "Bearer")?;
        }
        if *self == OwnError::UpgradeRequired {
            answer.insert_header(header::UPGRADE, "websocket")?;
        }
        if let OwnError::MethodNotAllowed(allowed) = self {
            answer.insert_header(header::ALLOW, *allowed)?;
        }
        Ok(Box::new(answer))
    }
}
