//! Lets pages of the origins that the operator named call from a browser (CORS, as the Fetch standard has it).
//!
//! The balancer alone says who may: what an engine says of it goes no further, since an engine knows nothing of the
//! balancer's callers and allows everyone unless told otherwise.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_proxy::Session;

use super::Context;
use crate::metrics::METRICS;

const METHODS: &str = "GET, HEAD, POST, DELETE";

/// What a page may read besides the headers that it always may.
const EXPOSED: &str = "x-request-id, retry-after, x-homing-error, x-homing-replica, x-homing-decision";

/// How long a browser may rely on the answer, in seconds: the longest that Chromium keeps it.
const MAX_AGE_S: &str = "7200";

/// Whether a header of an answer says which pages may read it, which no engine may.
pub fn is_of_cors(name: &HeaderName) -> bool {
    name.as_str().starts_with("access-control-")
}

/// Of the `origins` that may call, the one that answers to this request are to name.
pub fn origin(headers: &HeaderMap, origins: &[HeaderValue]) -> Option<HeaderValue> {
    let own = headers.get(header::ORIGIN)?;
    origins.iter().find(|origin| *origin == "*" || *origin == own).cloned()
}

/// Whether a browser asks beforehand if a page of an origin that may call may do so.
pub fn asks_beforehand(request: &RequestHeader, context: &Context) -> bool {
    context.origin.is_some()
        && request.method == Method::OPTIONS
        && request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers it. No key is asked for: browsers send none with that question.
pub async fn allow(session: &mut Session, context: &Context) -> Result<()> {
    METRICS.local_requests.with_label_values(&["preflight"]).inc();
    let mut answer = ResponseHeader::build(StatusCode::NO_CONTENT, Some(8))?;
    answer.insert_header(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS)?;
    answer.insert_header(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S)?;
    if let Some(names) = session.req_header().headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert_header(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone())?;
    }
    name_origin(&mut answer, context)?;
    session.write_response_header(Box::new(answer), true).await
}

/// Says on an answer who may read it.
///
/// # Errors
/// Never in practice: all the values are valid in a header.
pub fn mark(answer: &mut ResponseHeader, context: &Context) -> Result<()> {
    if context.origin.is_some() {
        answer.insert_header(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED)?;
    }
    name_origin(answer, context)
}

fn name_origin(answer: &mut ResponseHeader, context: &Context) -> Result<()> {
    if let Some(origin) = &context.origin {
        answer.insert_header(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone())?;
    }
    let origins = &context.live.server.origins;
    if !origins.is_empty() && origins.iter().all(|origin| origin != "*") {
        // What is kept of an answer is for one origin only.
        answer.append_header(header::VARY, "origin")?;
    }
    Ok(())
}
