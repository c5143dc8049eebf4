//! How a request ends: its own error where there is one, then counts and a log line.

use std::time::Instant;

use bytes::Bytes;
use http::{StatusCode, header};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorSource, ErrorType, Result};
use pingora_proxy::{FailToProxy, Session};

use super::access_log::Line;
use super::answer::takes_events;
use super::error::OwnError;
use super::spans::{self, Whole};
use super::{Context, PANIC, Proxy, cors, patience};
use crate::fleet::InFlight;
use crate::metrics::METRICS;
use crate::request::endpoint;
use crate::request::traceparent::TraceParent;
use crate::request::usage::Usage;
use crate::routing::{CacheOutcome, Tokens};

/// The status that the log gives a request whose client left before the answer (nginx's convention).
const CLIENT_CLOSED: u16 = 499;

/// Answers with an error of the balancer's own, and closes the connection if the request was not read whole.
pub async fn answer_error(session: &mut Session, context: &mut Context, error: OwnError) -> Result<()> {
    METRICS.own_errors.with_label_values(&[error.code()]).inc();
    let body = error.body(context.dialect, &context.request_id);
    let mut answer = error.header(context.dialect, body.len(), &context.request_id)?;
    cors::mark(&mut answer, context)?;
    context.own_error = Some(error);
    if !session.downstream_session.is_body_done() || session.downstream_session.get_keepalive().is_none() {
        session.downstream_session.set_keepalive(None);
        answer.insert_header(header::CONNECTION, "close")?;
    }
    let head = session.req_header().method == http::Method::HEAD;
    session.write_response_header(answer, head).await?;
    if !head {
        session.write_response_body(Some(body), true).await?;
    }
    Ok(())
}

/// A request that failed for good: a whole answer if none has begun, a last event if a stream has.
pub async fn fail(session: &mut Session, error: &Error, context: &mut Context) -> FailToProxy {
    context.unwrap_body(session);
    // Pingora closes the connection after a failure; the answer is to say so.
    session.downstream_session.set_keepalive(None);
    if *error.etype() == ErrorType::WriteTimedout {
        let limit = if *error.esource() == ErrorSource::Upstream { "engine_write" } else { "client_write" };
        METRICS.limits_hit.with_label_values(&[limit]).inc();
    }
    let gone = is_clients(error);
    let begun = session.downstream_session.response_written().is_some_and(has_begun);
    let error_code = match (gone, begun) {
        (true, _) => CLIENT_CLOSED,
        (false, true) => {
            context.broke_off = true;
            log::warn!("{}: its answer was broken off ({})", context.summary(), error.etype().as_str());
            end_stream(session, error, context).await;
            0
        }
        (false, false) => {
            log::warn!("{}: no answer ({})", context.summary(), error.etype().as_str());
            let error = own_error(error, context);
            let status = error.status(context.dialect).as_u16();
            // If the client has gone meanwhile, that is all there is to know.
            let _ = answer_error(session, context, error).await;
            status
        }
    };
    FailToProxy { error_code, can_reuse_downstream: false }
}

/// Whether it was the client that went away.
fn is_clients(error: &Error) -> bool {
    use ErrorType::*;
    let of_connection = matches!(
        error.etype(),
        ConnectionClosed | ReadError | WriteError | ReadTimedout | WriteTimedout | ConnectError | H2Error
    );
    *error.esource() == ErrorSource::Downstream && of_connection
}

/// Whether this is the header of an answer, not of an interim one: nothing else can be answered then.
fn has_begun(answer: &ResponseHeader) -> bool {
    !answer.status.is_informational() || answer.status == StatusCode::SWITCHING_PROTOCOLS
}

fn own_error(error: &Error, context: &Context) -> OwnError {
    use ErrorType::*;
    match (error.esource(), error.etype()) {
        (_, kind) if *kind == PANIC => OwnError::Internal,
        (
            ErrorSource::Upstream,
            ConnectTimedout | ConnectRefused | ConnectNoRoute | ConnectError | SocketError | TLSHandshakeFailure
            | TLSHandshakeTimedout | InvalidCert | HandshakeError,
        ) => match context.in_flight.as_ref().is_some_and(InFlight::is_lost) {
            true => OwnError::ResponseGone,
            false => OwnError::NoReplica,
        },
        (ErrorSource::Upstream, kind) if patience::is_limit(kind) => OwnError::ReplicaTimeout,
        (ErrorSource::Upstream, _) => OwnError::ReplicaFailed,
        (ErrorSource::Downstream, _) => OwnError::BadRequest,
        _ => OwnError::Internal,
    }
}

/// Tells the reader of a broken stream that it is broken: otherwise it might take what came for all there is. Of another answer, and
/// of a stream that takes no event, nothing more can be said: it is cut off.
async fn end_stream(session: &mut Session, error: &Error, context: &mut Context) {
    if session.downstream_session.response_written().is_some_and(takes_events) {
        let error = own_error(error, context);
        METRICS.own_errors.with_label_values(&[error.code()]).inc();
        let event = error.event(context.dialect, &context.request_id);
        context.own_error = Some(error);
        // Ended properly, as engines end a stream after an error event. A client that has gone misses nothing.
        let _ = session.write_response_body(Some(event), true).await;
    }
}

impl Proxy {
    /// Counts a request that has ended and writes its line.
    pub(super) fn end(&self, session: &Session, error: Option<&Error>, context: &mut Context) {
        let end = End::of(session, error, context);
        let tokens =
            end.usage.map(|usage| Tokens { prompt: usage.prompt, cached: usage.cached, completion: usage.completion });
        let cache = context.in_flight.as_mut().and_then(|in_flight| in_flight.finish(tokens));
        self.record(context, end.usage, end.first_byte_s, cache);
        count(context, &end);
        let header = session.req_header();
        let (method, path) = (endpoint::shown_method(&header.method), endpoint::shown(header.uri.path()));
        let error = context.own_error.as_ref().map(|error| error.code()).or(context.broke_off.then_some("broken"));
        let trace = TraceParent::of(&header.headers);
        if let Some(traces) = &self.traces
            && let Some(spans) = spans::of(context, trace, &Whole { method, path, status: end.status, error })
        {
            traces.send(spans);
        }
        self.access_log.write(context.live.server.access_log, || Line {
            at: context.began_at,
            request_id: &context.request_id,
            traceparent: trace.map(|trace| trace.text),
            method,
            path,
            caller: context.caller.as_ref().map(|caller| caller.name()),
            model: context.model.as_ref().map(|model| model.label()),
            replica: context.in_flight.as_ref().map(|in_flight| in_flight.replica()),
            decision: context.in_flight.as_ref().and_then(|in_flight| in_flight.decision()).map(|d| d.name()),
            status: end.status,
            error,
            bytes_in: context.body_bytes,
            bytes_out: session.downstream_session.body_bytes_sent() as u64,
            first_byte_s: end.first_byte_s,
            total_s: end.total_s,
            parked_s: context.parked.map(|parked| parked.as_secs_f64()),
            usage: end.usage,
            cache: cache.map(CacheOutcome::name),
        });
    }
}

/// How a request ended.
struct End {
    status: u16,
    usage: Option<Usage>,
    first_byte_s: Option<f64>,
    total_s: f64,
}

impl End {
    fn of(session: &Session, error: Option<&Error>, context: &Context) -> End {
        let written = session.downstream_session.response_written().map(|answer| answer.status.as_u16());
        let whole = context.usage.as_ref().is_some_and(|usage| usage.ended());
        let left = error.is_some_and(is_clients) && !whole;
        let seconds = |moment: Instant| (moment - context.began).as_secs_f64();
        End {
            status: written.filter(|_| !left).unwrap_or(CLIENT_CLOSED),
            usage: context.usage.as_ref().and_then(|usage| usage.usage()),
            first_byte_s: context.first_byte.map(seconds),
            total_s: seconds(Instant::now()),
        }
    }
}

fn count(context: &Context, end: &End) {
    let skipped = context.usage.as_ref().map_or(0, |usage| usage.skipped_lines());
    if skipped > 0 {
        METRICS.limits_hit.with_label_values(&["answer_line"]).inc_by(skipped);
    }
    if let (Some(model), Some(parked)) = (&context.model, context.parked) {
        METRICS.parked_seconds.with_label_values(&[model.label()]).observe(parked.as_secs_f64());
    }
    if let Some(in_flight) = &context.in_flight {
        let (model, replica) = (in_flight.model().label(), in_flight.replica());
        let class = if context.broke_off { "broken" } else { status_class(end.status) };
        match in_flight.decision() {
            Some(decision) => {
                METRICS.requests.with_label_values(&[model, replica, decision.name(), class]).inc();
                METRICS.duration.with_label_values(&[model]).observe(end.total_s);
                end.first_byte_s.inspect(|s| METRICS.time_to_first_byte.with_label_values(&[model]).observe(*s));
                end.usage.inspect(|usage| count_tokens(model, usage));
            }
            None => METRICS.follow_requests.with_label_values(&[model, replica, class]).inc(),
        }
    }
    if let Some(caller) = context.caller.as_ref().map(|caller| caller.name()) {
        METRICS.caller_requests.with_label_values(&[caller, status_class(end.status)]).inc();
        end.usage.inspect(|usage| count_caller_tokens(caller, usage));
    }
}

fn count_tokens(model: &str, usage: &Usage) {
    let tokens = |source| METRICS.prompt_tokens.with_label_values(&[model, source]);
    match usage.cached {
        Some(cached) => {
            tokens("cached").inc_by(cached);
            tokens("computed").inc_by(usage.prompt.saturating_sub(cached));
        }
        None => tokens("unmeasured").inc_by(usage.prompt),
    }
    METRICS.completion_tokens.with_label_values(&[model]).inc_by(usage.completion);
}

fn count_caller_tokens(caller: &str, usage: &Usage) {
    METRICS.caller_tokens.with_label_values(&[caller, "prompt"]).inc_by(usage.prompt);
    METRICS.caller_tokens.with_label_values(&[caller, "completion"]).inc_by(usage.completion);
}

fn status_class(status: u16) -> &'static str {
    match status {
        CLIENT_CLOSED => "client_closed",
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

/// An answer of the balancer's own that is no error.
pub async fn answer_ok(
    session: &mut Session,
    context: &Context,
    status: StatusCode,
    kind: &str,
    body: Bytes,
    head: bool,
) -> Result<()> {
    let mut answer = ResponseHeader::build(status, Some(4))?;
    answer.insert_header(header::CONTENT_TYPE, kind)?;
    cors::mark(&mut answer, context)?;
    answer.insert_header(header::CONTENT_LENGTH, body.len().to_string())?;
    session.write_response_header(Box::new(answer), head).await?;
    if !head {
        session.write_response_body(Some(body), true).await?;
    }
    Ok(())
}
