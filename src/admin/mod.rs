//! The admin address: the page, metrics, health, routing as JSON, draining, reload. Never on a listener that clients use.

mod admission_json;
mod decisions_json;
mod gauges;
mod history_json;
mod page;
mod query;
mod replicas;
mod routing_json;
mod ticker;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Method, Response, StatusCode, header};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;
use prometheus::{Encoder, TextEncoder};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use crate::decisions::Decisions;
use crate::fleet::Model;
use crate::live::Current;
use crate::panics::contained;
use crate::proxy::Explainer;
use crate::reload::Reloader;
use crate::request::Dialect;
use query::Query;

pub use page::charts;
pub use ticker::HistoryService;

/// Answers on the admin address.
pub struct Admin {
    pub live: Current,
    pub reloader: Arc<Reloader>,
    pub decisions: Arc<Decisions>,
    pub explainer: Explainer,
    /// When the counters began, in seconds since 1970.
    pub since: u64,
}

/// The largest request body that is read before an answer.
const BODY_MAX: usize = 64 << 10;

/// Time for that body to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let head = session.req_header().method == Method::HEAD;
        let answered = contained(self.answered(session)).await;
        answered.unwrap_or_else(|_| with_length(text(StatusCode::INTERNAL_SERVER_ERROR, "a fault of Homing\n"), head))
    }
}

impl Admin {
    async fn answered(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let request = session.req_header();
        let (method, path) = (request.method.clone(), request.uri.path().to_owned());
        let query = request.uri.query().unwrap_or_default().to_owned();
        let allowed = self.allowed(session.get_header_bytes(header::AUTHORIZATION));
        let foreign = is_foreign(session);
        if allowed && (path.as_str(), &method) == ("/explain", &Method::POST) {
            return with_length(self.explain(session).await, false);
        }
        if tokio::time::timeout(BODY_TIME_MAX, discard_body(session)).await.is_err() {
            session.set_keepalive(None);
        }
        // Probes carry no token, and say nothing but yes or no.
        let answer = match path.as_str() {
            "/healthz" => reading(&method, || text(StatusCode::OK, "ok\n")),
            "/readyz" => reading(&method, || self.ready()),
            path if let Some(frame) = page::frame(path) => reading(&method, || frame),
            _ if !allowed => unauthorized(),
            _ if method == Method::POST && foreign => from_another_page(),
            "/metrics" => reading(&method, || self.metrics()),
            "/routing" => reading(&method, || json_answer(StatusCode::OK, &self.routing())),
            "/reload" if method == Method::POST => self.reload().await,
            "/reload" | "/explain" => not_allowed("POST"),
            path if path.starts_with("/replicas/") => self.drain(&method, path, &Query(&query)),
            path => reading(&method, || self.shown(path, &Query(&query)).unwrap_or_else(not_found)),
        };
        with_length(answer, method == Method::HEAD)
    }

    fn allowed(&self, authorization: &[u8]) -> bool {
        match &self.live.load().token {
            // In a time that does not tell where the two differ.
            Some(token) => authorization.ct_eq(crate::fleet::bearer(token).as_bytes()).into(),
            None => true,
        }
    }

    fn ready(&self) -> Response<Vec<u8>> {
        match gauges::ready(&self.live.load().fleet) {
            true => text(StatusCode::OK, "ready\n"),
            false => text(StatusCode::SERVICE_UNAVAILABLE, "no replica has answered yet\n"),
        }
    }

    fn metrics(&self) -> Response<Vec<u8>> {
        let mut body = Vec::new();
        match TextEncoder::new().encode(&gauges::gather(&self.live.load()), &mut body) {
            Ok(()) => answer(StatusCode::OK, prometheus::TEXT_FORMAT, body),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        }
    }

    fn routing(&self) -> Value {
        let fleet = self.live.load().fleet.clone();
        let models: Vec<Value> = fleet.models().iter().map(|model| routing_json::of(model, self.since)).collect();
        json!({ "models": models })
    }

    /// What is asked for by a longer path. None: there is nothing.
    fn shown(&self, path: &str, query: &Query) -> Option<Response<Vec<u8>>> {
        let ok = |value| Some(json_answer(StatusCode::OK, &value));
        if let Some(name) = path.strip_prefix("/routing/") {
            return ok(routing_json::of(self.model(name)?.as_ref(), self.since));
        }
        if let Some(name) = path.strip_prefix("/history/") {
            return ok(history_json::of(self.model(name)?.as_ref(), query.span()?));
        }
        if path == "/decisions" {
            return ok(decisions_json::of(&self.decisions, &query.filter()));
        }
        page::part(path, query, &self.live.load().fleet, &self.decisions, self.since)
    }

    fn model(&self, name: &str) -> Option<Arc<Model>> {
        let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
        self.live.load().fleet.models().iter().find(|model| model.label() == name).cloned()
    }

    /// Says what would become of the request that is the body of this one.
    async fn explain(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let (saved, _held) = match self.explainer.saved(session).await {
            Ok(saved) => saved,
            Err(error) => {
                session.set_keepalive(None);
                return json_answer(error.status(Dialect::OpenAi), &json!({"error": error.message()}));
            }
        };
        match self.explainer.explain(&saved) {
            Ok(explained) => json_answer(StatusCode::OK, &json!(explained)),
            Err(fault) => {
                json_answer(StatusCode::BAD_REQUEST, &json!({"error": format!("the saved request: {fault}")}))
            }
        }
    }

    async fn reload(&self) -> Response<Vec<u8>> {
        match self.reloader.reload_aside().await {
            Ok(needs_restart) => {
                json_answer(StatusCode::OK, &json!({"reloaded": true, "needs_restart": needs_restart}))
            }
            Err(faults) => {
                let faults: Vec<String> = faults.to_string().lines().map(str::to_owned).collect();
                json_answer(StatusCode::UNPROCESSABLE_ENTITY, &json!({"reloaded": false, "faults": faults}))
            }
        }
    }
}

/// Whether a page of another origin has its browser ask. Without a token, which such a page does not know, nothing else would
/// keep it from draining the replicas of whoever looks at it.
fn is_foreign(session: &ServerSession) -> bool {
    let origin = session.get_header_bytes(header::ORIGIN);
    let own = |scheme: &str| origin.strip_prefix(scheme.as_bytes()) == Some(session.get_header_bytes(header::HOST));
    !origin.is_empty() && !own("http://") && !own("https://")
}

fn from_another_page() -> Response<Vec<u8>> {
    json_answer(StatusCode::FORBIDDEN, &json!({"error": "pages of another origin may not change anything here"}))
}

/// A body means nothing here; it is read so that the connection can go on, up to a limit.
async fn discard_body(session: &mut ServerSession) {
    let mut length = 0;
    while let Ok(Some(piece)) = session.read_request_body().await {
        length += piece.len();
        if length > BODY_MAX {
            session.set_keepalive(None);
            return;
        }
    }
}

fn reading(method: &Method, answer: impl FnOnce() -> Response<Vec<u8>>) -> Response<Vec<u8>> {
    match *method {
        Method::GET | Method::HEAD => answer(),
        _ => not_allowed("GET, HEAD"),
    }
}

fn unauthorized() -> Response<Vec<u8>> {
    let mut answer = json_answer(StatusCode::UNAUTHORIZED, &json!({"error": "send the admin token as a bearer token"}));
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    answer
}

fn not_found() -> Response<Vec<u8>> {
    json_answer(StatusCode::NOT_FOUND, &json!({"error": "there is nothing at this path"}))
}

fn not_allowed(allow: &'static str) -> Response<Vec<u8>> {
    let mut answer =
        json_answer(StatusCode::METHOD_NOT_ALLOWED, &json!({"error": format!("this path answers only to {allow}")}));
    answer.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allow));
    answer
}

fn text(status: StatusCode, body: &str) -> Response<Vec<u8>> {
    answer(status, "text/plain; charset=utf-8", body.as_bytes().to_vec())
}

fn json_answer(status: StatusCode, body: &Value) -> Response<Vec<u8>> {
    answer(status, "application/json", body.to_string().into_bytes())
}

fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    answer
}

/// Pingora leaves the length to the app.
fn with_length(mut answer: Response<Vec<u8>>, head: bool) -> Response<Vec<u8>> {
    let length = answer.body().len().into();
    answer.headers_mut().insert(header::CONTENT_LENGTH, length);
    if head {
        answer.body_mut().clear();
    }
    answer
}
