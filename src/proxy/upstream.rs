//! Sends a request to its replica, and to another one if that fails before a byte of the answer has come.

use std::time::Duration;

use http::{StatusCode, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType, OrErr, Result, RetryType};

use super::asked::RANK_HEADER;
use super::coalescing::Coalescing;
use super::dial::Dial;
use super::hold::EMPTY;
use super::patience::{FIRST_BYTE, HUNG, IDLE_STREAM, TOTAL};
use super::{Context, PANIC};
use crate::fleet::{Fetcher, TRIES_MAX, bearer};
use crate::metrics::METRICS;
use crate::routing::Retry;

/// Tries that Pingora is to allow: ours, and one more at the same engine (see [`Context::once_more_here`]).
pub const PINGORA_TRIES: usize = TRIES_MAX + 1;

/// An engine that failed a request has this long to say that it is healthy.
const HEALTH_MAX: Duration = Duration::from_secs(2);

/// The chosen engine's address.
pub async fn peer(context: &mut Context) -> Result<Box<HttpPeer>> {
    loop {
        context.begin_try();
        let Some(in_flight) = &context.in_flight else {
            return Error::e_explain(ErrorType::InternalError, "a request was sent on before it was routed");
        };
        match in_flight.engine().peer().await {
            Ok(mut peer) => {
                let connect = in_flight.model().settings().timeouts.connect;
                peer.options.connection_timeout = Some(connect);
                peer.options.total_connection_timeout = Some(connect);
                if context.switches {
                    // Over HTTP/2 nothing is upgraded.
                    peer.options.set_http_version(1, 1);
                }
                Dial::take(&mut peer);
                if context.once_more_here || context.switches {
                    // Connections are shared only within a group: alone in one, it gets a fresh connection. What switches
                    // needs one that holds its head back, and those kept of an engine of HTTP/2 do not.
                    peer.group_key = own_group(context);
                }
                return Ok(Box::new(peer));
            }
            Err(error) if !fail_over(context, Retry::Unreachable, "unresolved") => {
                return Err(
                    Error::because(ErrorType::ConnectNoRoute, "a replica's name does not resolve", error).into_up()
                );
            }
            Err(_) => {}
        }
    }
}

/// Has the head of a request wait for its body, if it has one. One that asks for another protocol waits until Pingora has noted
/// that it has none: an engine that agrees before that is taken for one whose client has ended what it had to say.
pub fn hold_head(connection: Option<&Digest>, context: &Context) {
    if let Some(connection) = connection.filter(|_| context.sent_bytes > 0 || context.switches) {
        Coalescing::hold_next_head(connection);
    }
}

/// Frames the request anew (its body is whole) and addresses it to the engine.
pub fn write_header(request: &mut RequestHeader, context: &Context) -> Result<()> {
    let Some(in_flight) = &context.in_flight else { return Ok(()) };
    let engine = in_flight.engine();
    join_cookies(request)?;
    request.remove_header(&header::TRANSFER_ENCODING);
    request.remove_header(&header::EXPECT);
    if !context.switches {
        request.remove_header(&header::UPGRADE);
    }
    if context.changes.are_due() {
        // What is packed cannot be changed.
        request.remove_header(&header::ACCEPT_ENCODING);
    }
    request.remove_header(&header::CONTENT_LENGTH);
    if context.sent_bytes > 0 || request.method == http::Method::POST {
        request.insert_header(header::CONTENT_LENGTH, context.sent_bytes.to_string())?;
    }
    if request.uri.authority().is_some() || !request.raw_path().starts_with(b"/") {
        // An origin gets the path alone, also where a client wrote the whole address, which HTTP/1 keeps beside the URI.
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
        request.set_uri(path.parse().or_err(ErrorType::InternalError, "the path of a request")?);
    }
    request.insert_header(header::HOST, &engine.name)?;
    if let Some(rank) = in_flight.rank() {
        request.insert_header(RANK_HEADER, rank.to_string())?;
    }
    if let Some(key) = engine.api_key() {
        request.insert_header(header::AUTHORIZATION, bearer(&key))?;
        request.remove_header("x-api-key");
    } else if !context.live.passes_credentials() {
        request.remove_header(&header::AUTHORIZATION);
        request.remove_header("x-api-key");
    }
    write_request_id(request, context, in_flight.tries())
}

/// HTTP/2 lets a client split its cookies over several headers, which older engines would read as one cookie alone
/// (RFC 9113, 8.2.3).
fn join_cookies(request: &mut RequestHeader) -> Result<()> {
    let cookies: Vec<&[u8]> = request.headers.get_all(header::COOKIE).iter().map(|value| value.as_bytes()).collect();
    if cookies.len() > 1 {
        let joined = cookies.join(&b"; "[..]);
        request.insert_header(header::COOKIE, joined)?;
    }
    Ok(())
}

/// Every try carries an id of its own: engines before vLLM 0.14 fail a second one of the same id.
fn write_request_id(request: &mut RequestHeader, context: &Context, tries: usize) -> Result<()> {
    let tries = tries + usize::from(context.once_more_here);
    if tries > 1 {
        request.insert_header("x-request-id", format!("{}-{tries}", context.request_id))?;
    } else if !request.headers.contains_key("x-request-id") {
        request.insert_header("x-request-id", &context.request_id)?;
    }
    Ok(())
}

/// An engine may switch to another protocol only where it is asked to.
fn switches_unasked(answer: &ResponseHeader, context: &Context) -> bool {
    answer.status == StatusCode::SWITCHING_PROTOCOLS && !context.switches
}

/// An engine that will not serve answers 429, 502 or 503: another is tried, and the answer is dropped. With no other
/// left the answer passes. A 500 may be the request's own fault; but it is also what a vLLM answers to all that it had in flight
/// when its core died, and then its health says so, or has said so before: it may be back by now.
pub async fn retry_on_status(answer: &ResponseHeader, context: &mut Context, fetcher: &Fetcher) -> Result<()> {
    if switches_unasked(answer, context) {
        context.answered = true;
        return Err(Error::explain(ErrorType::InvalidHTTPHeader, "a replica switched protocols unasked").into_up());
    }
    if answer.status.is_informational() && answer.status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(());
    }
    let reason = match answer.status {
        StatusCode::TOO_MANY_REQUESTS => "status_429",
        StatusCode::BAD_GATEWAY => "status_502",
        StatusCode::SERVICE_UNAVAILABLE => "status_503",
        // Boxed: it is rare, and its future would be made room for, and copied, with every answer.
        StatusCode::INTERNAL_SERVER_ERROR if Box::pin(has_died(context, fetcher)).await => "status_500",
        _ => {
            context.answered = true;
            return Ok(());
        }
    };
    if answer.status != StatusCode::TOO_MANY_REQUESTS {
        failed(context);
    }
    if fail_over(context, Retry::Refused, reason) {
        return Err(elsewhere());
    }
    context.answered = true;
    Ok(())
}

async fn has_died(context: &Context, fetcher: &Fetcher) -> bool {
    match &context.in_flight {
        Some(in_flight) => in_flight.is_out() || fetcher.probe(&in_flight.engine(), HEALTH_MAX).await.is_err(),
        None => false,
    }
}

/// A stream whose first event is an error: as good as a 503, since nothing of it has gone to the client. With no other replica
/// left it passes.
pub fn retry_on_error_event(context: &mut Context) -> Result<()> {
    match fail_over(context, Retry::Refused, "error_event") {
        true => Err(elsewhere()),
        false => Ok(()),
    }
}

/// Ends a try after the next has been chosen.
const ELSEWHERE: ErrorType = ErrorType::Custom("trying another replica");

fn elsewhere() -> Box<Error> {
    let mut error = Error::new_up(ELSEWHERE);
    error.set_retry(true);
    error
}

/// A connection that could not be made.
pub fn retry_on_connect(mut error: Box<Error>, context: &mut Context) -> Box<Error> {
    failed(context);
    if matches!(error.etype(), ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout) {
        METRICS.limits_hit.with_label_values(&["connect"]).inc();
    }
    let retry = fail_over(context, Retry::Unreachable, "connect");
    error.set_retry(retry);
    error
}

/// A connection that ended, or another error after it was made.
pub fn retry_on_close(mut error: Box<Error>, context: &mut Context, reused: bool) -> Box<Error> {
    if [ELSEWHERE, PANIC].contains(error.etype()) {
        return error;
    }
    if let Some(reason) = given_up(error.etype()) {
        return retry_on_silence(error, context, reason);
    }
    let closed = (closed_without_a_byte(&error) || untouched(&error)) && !context.answered;
    // A stream that ended before it said anything.
    let unsaid = context.holds_answer() && *error.esource() == ErrorSource::Upstream;
    // An engine closes its idle connections after a while: that it closed a reused one does not mean that it is gone.
    let why = if reused { Retry::Refused } else { Retry::Unreachable };
    if unsaid || closed && !reused {
        failed(context);
    }
    let reason = if *error.etype() == EMPTY { "empty" } else { "closed" };
    let mut retry = (closed || unsaid) && fail_over(context, why, reason);
    if closed && !retry && reused && !context.once_more_here {
        context.once_more_here = true;
        retry = true;
    }
    error.set_retry(retry);
    error
}

/// Why a try ended whose engine does not answer.
fn given_up(error: &ErrorType) -> Option<&'static str> {
    let ends = [(HUNG, "hung"), (FIRST_BYTE, "first_byte"), (IDLE_STREAM, "idle_stream"), (TOTAL, "total")];
    ends.into_iter().find(|(end, _)| end == error).map(|(_, reason)| reason)
}

/// An engine that does not answer. Where nothing has gone to the client, another is asked.
fn retry_on_silence(mut error: Box<Error>, context: &mut Context, reason: &'static str) -> Box<Error> {
    // Pingora takes it for the client's, since the session of the client noticed it.
    error.as_up();
    if *error.etype() != HUNG {
        METRICS.limits_hit.with_label_values(&[reason]).inc();
    }
    if *error.etype() == FIRST_BYTE {
        failed(context);
    }
    let mut retry = matches!(*error.etype(), HUNG | FIRST_BYTE) && fail_over(context, Retry::Unreachable, reason);
    if *error.etype() == HUNG && !retry && !context.once_more_here {
        // The other replica has gone meanwhile. Here it waits on.
        context.once_more_here = true;
        retry = true;
    }
    error.set_retry(retry);
    error
}

/// Whether the engine ended the connection before it answered anything. One that answered something broken has done the
/// work, and would do it again.
fn closed_without_a_byte(error: &Error) -> bool {
    // Pingora counts the bytes of an answer's header only in the words of its error.
    let answered = |words: &str| words.contains("bytes already read: ") && !words.ends_with("bytes already read: 0");
    *error.esource() == ErrorSource::Upstream
        && matches!(error.etype(), ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError)
        && !error.context.as_ref().is_some_and(|words| answered(words.as_str()))
}

/// Whether an engine cannot have done what a request asks on an HTTP/2 connection: it said so, as at a shutdown, and
/// Pingora marks that for a retry; or the request could not be sent whole.
fn untouched(error: &Error) -> bool {
    let reading = error.context.as_ref().is_some_and(|words| words.as_str() == "while reading h2 header");
    *error.esource() == ErrorSource::Upstream
        && *error.etype() == ErrorType::H2Error
        && (!reading || matches!(error.retry, RetryType::Decided(true)))
}

/// Counts a failure of the engine, whether or not another is left to try.
pub fn failed(context: &Context) {
    if let Some(in_flight) = &context.in_flight {
        in_flight.failed();
    }
}

fn fail_over(context: &mut Context, why: Retry, reason: &str) -> bool {
    let Some(in_flight) = &mut context.in_flight else { return false };
    let failed = in_flight.replica().to_owned();
    let moved = in_flight.fail_over(why);
    if moved {
        METRICS.retries.with_label_values(&[in_flight.model().label(), &failed, reason]).inc();
        log::warn!("request {}: {failed} failed ({reason}), trying {}", context.request_id, in_flight.replica());
    }
    moved
}

/// A group of connections that no other request shares.
fn own_group(context: &Context) -> u64 {
    u64::from_str_radix(&context.request_id, 16).unwrap_or(1).max(1)
}
