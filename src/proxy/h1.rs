//! Serves an HTTP/1 connection, request after request.
//!
//! The times that each request may take are watched by Pingora's timers, which cost a fraction of tokio's.

use std::pin::pin;
use std::sync::Arc;

use http::header;
use pingora::apps::{HttpPersistentSettings, HttpServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::body::LINGER;
use super::connection::{Edge, EngineProxy};
use super::error::OwnError;
use super::gate::Gate;
use super::turnstile::Turnstile;
use crate::metrics::METRICS;
use crate::panics::contained;
use crate::request::Dialect;
use crate::request::head::{self, Fault};

/// Serves until the connection ends; `deadline` is for its first head.
pub async fn serve(edge: &Edge, proxy: &Arc<EngineProxy>, stream: Stream, deadline: Instant, shutdown: &ShutdownWatch) {
    let mut gate = Gate::new(stream);
    let mut settings: Option<HttpPersistentSettings> = None;
    let mut deadline = Some(deadline);
    let mut farewell = pin!(edge.farewell(shutdown));
    loop {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let begins = async {
            tokio::select! {
                // What has come already is served.
                biased;
                () = gate.begins() => true,
                () = &mut farewell => false,
            }
        };
        match pingora_timeout::timeout(deadline.map_or_else(|| edge.idle(), left), begins).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => {
                let limit = if deadline.is_some() { "header_read" } else { "idle" };
                METRICS.limits_hit.with_label_values(&[limit]).inc();
                return;
            }
        }
        let limits = edge.limits();
        let due = deadline.take().map_or(limits.header_read, left);
        let Ok(head) = pingora_timeout::timeout(due, contained(gate.head(&limits))).await else {
            METRICS.limits_hit.with_label_values(&["header_read"]).inc();
            let error = OwnError::HeaderTimeout { seconds: limits.header_read.as_secs() };
            return refuse(gate, error).await;
        };
        let head = match head {
            Ok(Ok(Some(head))) => head,
            Ok(Ok(None)) => return,
            Ok(Err(fault)) => return refuse(gate, error_of(fault)).await,
            Err(_) => return refuse(gate, OwnError::Internal).await,
        };
        let mut session = ServerSession::new_http1(Box::new(Turnstile::new(gate)));
        match settings.take() {
            Some(settings) => settings.apply_to_session(&mut session),
            None => session.set_keepalive((!*shutdown.borrow()).then_some(edge.idle().as_secs())),
        }
        // Pingora takes it for bytes that were read with the request before.
        session.set_pipelined_prefix(head);
        let Some(ended) = proxy.process_new_http(session, shutdown).await else { return };
        let (reusable, kept) = ended.consume();
        let Ok(turnstile) = reusable.into_any().downcast::<Turnstile>() else { return };
        let Some(same) = turnstile.into_gate().filter(Gate::is_free) else { return };
        (gate, settings) = (same, kept);
    }
}

fn error_of(fault: Fault) -> OwnError {
    match fault {
        Fault::Malformed(what) => OwnError::MalformedHead(what),
        Fault::TooManyHeaders => {
            METRICS.limits_hit.with_label_values(&["headers"]).inc();
            OwnError::HeadTooLarge
        }
        Fault::TooLarge => {
            METRICS.limits_hit.with_label_values(&["header_bytes"]).inc();
            OwnError::HeadTooLarge
        }
        Fault::TargetTooLong => {
            METRICS.limits_hit.with_label_values(&["target"]).inc();
            OwnError::TargetTooLong
        }
        Fault::UnknownCoding => OwnError::UnknownCoding,
        Fault::Connect => OwnError::MethodNotAllowed("GET, HEAD, POST, DELETE"),
    }
}

/// Answers a request that is not let through, and closes.
async fn refuse(mut gate: Gate, error: OwnError) {
    let dialect = head::dialect(gate.refused());
    tell(&mut gate.stream, error, dialect).await;
    let mut rest = [0; 1024];
    let linger = async { while gate.stream.read(&mut rest).await.is_ok_and(|read| read > 0) {} };
    // Whether the client closed or the time is over: nothing is left to do.
    let _ = timeout(LINGER, linger).await;
}

/// Answers on a connection of which no request was taken, and says that nothing more will come.
pub async fn tell(stream: &mut (impl AsyncWrite + Unpin), error: OwnError, dialect: Dialect) {
    METRICS.own_errors.with_label_values(&[error.code()]).inc();
    let body = error.body(dialect, "-");
    let Ok(mut head) = error.header(dialect, body.len(), "-") else { return };
    if head.insert_header(header::CONNECTION, "close").is_err() {
        return;
    }
    let mut bytes = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend([b"\r\n", &body[..]].concat());
    let written = async {
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        stream.shutdown().await
    };
    // A client that has left, or takes nothing, misses it.
    let _ = timeout(LINGER, written).await;
}
