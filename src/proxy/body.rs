//! Reads a request's whole body before a replica is chosen, within its limits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Version, header};
use pingora::protocols::http::ServerSession;
use pingora_timeout::timeout;

use super::buffered::Reservation;
use super::error::OwnError;
use super::gate::BODY_ROOM;
use super::turnstile::{AnnouncedBody, Turnstile};
use crate::config::Limits;
use crate::metrics::METRICS;

/// A client that was refused is still read from for this long: a connection closed on unread bytes loses the answer.
pub const LINGER: Duration = Duration::from_secs(2);

/// Reads the body, however it is framed, and answers `Expect: 100-continue` on the way.
///
/// # Errors
/// If it is too large, too slow or broken, or if too many bodies are held.
pub async fn read(
    session: &mut ServerSession,
    reservation: &mut Reservation,
    limits: &Limits,
) -> Result<Bytes, OwnError> {
    let announced = announced_length(session);
    if announced.is_some_and(|length| length > limits.body_bytes) {
        return Err(too_large(limits));
    }
    if expects_continue(session) {
        answer_continue(session).await?;
    }
    let body = Turnstile::body(session);
    let all = async {
        match body {
            Some(body) => read_announced(session, body, reservation, limits).await,
            None => read_pieces(session, reservation, limits, announced).await,
        }
    };
    timeout(limits.body_read, all).await.unwrap_or_else(|_| Err(too_slow(limits)))
}

/// A body over HTTP/1 whose length its head announced is read where it arrives.
async fn read_announced(
    session: &mut ServerSession,
    body: AnnouncedBody,
    reservation: &mut Reservation,
    limits: &Limits,
) -> Result<Bytes, OwnError> {
    let mut here = 0;
    while here < body.length {
        let more = body.arrives(here).await.map_err(|_| unreadable(session))?;
        hold(reservation, (more - here) as u64, limits)?;
        here = more;
    }
    // It is read: Pingora, which has not begun to, would wait for it.
    session.req_header_mut().remove_header(&header::CONTENT_LENGTH);
    Ok(body.take())
}

/// Any other is what Pingora makes of it, piece by piece.
async fn read_pieces(
    session: &mut ServerSession,
    reservation: &mut Reservation,
    limits: &Limits,
    announced: Option<u64>,
) -> Result<Bytes, OwnError> {
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    let mut length = 0;
    loop {
        let chunk = match session.read_request_body().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(_) => return Err(unreadable(session)),
        };
        length += chunk.len() as u64;
        if length > limits.body_bytes {
            return Err(too_large(limits));
        }
        hold(reservation, chunk.len() as u64, limits)?;
        // A body that came in one piece is used as it is.
        match (first.take(), all.is_empty()) {
            (None, true) => first = Some(chunk),
            (Some(earlier), _) => {
                all.reserve(announced.unwrap_or(0).min(BODY_ROOM as u64) as usize);
                all.extend_from_slice(&earlier);
                all.extend_from_slice(&chunk);
            }
            (None, false) => all.extend_from_slice(&chunk),
        }
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}

fn hold(reservation: &mut Reservation, bytes: u64, limits: &Limits) -> Result<(), OwnError> {
    if !reservation.grow(bytes, limits.buffered_bytes) {
        METRICS.limits_hit.with_label_values(&["buffered"]).inc();
        return Err(OwnError::Overloaded);
    }
    Ok(())
}

fn unreadable(session: &mut ServerSession) -> OwnError {
    // Pingora takes some broken bodies for finished: what follows is no request.
    session.set_keepalive(None);
    OwnError::UnreadableBody
}

/// Reads on what a refused client still sends of its body, for a while.
pub async fn linger(session: &mut ServerSession) {
    let rest = async { while let Ok(Some(_)) = session.read_request_body().await {} };
    // Whether it came or the time is over: nothing is left to do.
    let _ = timeout(LINGER, rest).await;
}

fn announced_length(session: &ServerSession) -> Option<u64> {
    session.get_header(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn expects_continue(session: &ServerSession) -> bool {
    session.req_header().version >= Version::HTTP_11
        && session.get_header_bytes(header::EXPECT).eq_ignore_ascii_case(b"100-continue")
}

async fn answer_continue(session: &mut ServerSession) -> Result<(), OwnError> {
    // Pingora closes a connection on which it answers before the body is read, but this is no answer yet.
    session.set_close_on_response_before_downstream_finish(false);
    let written = session.write_continue_response().await;
    session.set_close_on_response_before_downstream_finish(true);
    written.map_err(|_| OwnError::UnreadableBody)
}

fn too_large(limits: &Limits) -> OwnError {
    METRICS.limits_hit.with_label_values(&["body"]).inc();
    OwnError::BodyTooLarge { bytes_max: limits.body_bytes }
}

fn too_slow(limits: &Limits) -> OwnError {
    METRICS.limits_hit.with_label_values(&["body_read"]).inc();
    OwnError::BodyTimeout { seconds: limits.body_read.as_secs() }
}
