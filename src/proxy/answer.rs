//! Lets an engine's answer pass, as it is unless the operator changes it, and reads in passing how many tokens it took and what
//! the engine keeps of it.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, StatusCode, Version, header};
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora_proxy::Session;

use super::{Context, cors, intake, upstream};
use crate::fleet::InFlight;
use crate::metrics::METRICS;
use crate::request::usage::{self, Stage, Usage, UsageReader};
use crate::request::{Caller, KeyHasher, StoredIds, stored};

/// An answer that is not streamed is kept up to this size to read its usage.
const WHOLE_MAX: usize = 8 << 20;

/// A stream that has said nothing is held back for this long beyond the time after which its engine counts as hung: so what is
/// noticed then can still be mended.
const HOLD_BEYOND_HANG: Duration = Duration::from_secs(10);

/// Headers that end here: those about one connection only, and the balancer's own.
const ENDS_HERE: [&str; 5] = ["keep-alive", "proxy-connection", "proxy-authenticate", "upgrade", "x-homing-error"];

/// Reads the usage of one answer.
#[derive(Default)]
pub enum UsageTap {
    /// The header has not come.
    #[default]
    Waiting,
    Streamed(UsageReader),
    Whole(BytesMut),
    /// Too long to be kept.
    TooLong,
    /// It says nothing of tokens (an error).
    Silent,
}

impl UsageTap {
    fn begin(&mut self, answer: &ResponseHeader, stores: bool) {
        *self = match () {
            _ if !answer.status.is_success() => UsageTap::Silent,
            _ if is_bodiless(answer.status) || answer.status == StatusCode::RESET_CONTENT => UsageTap::Silent,
            _ if is_stream(answer) => UsageTap::Streamed(match stores {
                true => UsageReader::of_response(),
                false => UsageReader::new(),
            }),
            _ => UsageTap::Whole(BytesMut::new()),
        };
    }

    /// Takes the next piece. Returns whether the engine must have generated something for it.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        match self {
            UsageTap::Streamed(reader) => {
                let before = reader.events();
                reader.feed(bytes);
                return reader.stage() == Stage::Content && reader.events() > before;
            }
            UsageTap::Whole(kept) if kept.len() + bytes.len() <= WHOLE_MAX => kept.extend_from_slice(bytes),
            UsageTap::Whole(_) => {
                METRICS.limits_hit.with_label_values(&["answer_usage"]).inc();
                *self = UsageTap::TooLong;
            }
            UsageTap::TooLong => {}
            UsageTap::Waiting | UsageTap::Silent => return false,
        }
        true
    }

    /// How far a stream has come; none: the answer is no stream.
    fn stage(&self) -> Option<Stage> {
        match self {
            UsageTap::Streamed(reader) => Some(reader.stage()),
            _ => None,
        }
    }

    /// The ids of what the engine keeps, once they have come.
    fn take_ids(&mut self, end: bool) -> Option<StoredIds> {
        match self {
            UsageTap::Streamed(reader) => reader.take_ids(),
            UsageTap::Whole(kept) if end => stored::ids(kept),
            _ => None,
        }
    }

    /// Whether a stream has come to its last event.
    pub fn ended(&self) -> bool {
        matches!(self, UsageTap::Streamed(reader) if reader.ended())
    }

    /// How many lines of a stream were too long to be read.
    pub fn skipped_lines(&self) -> u64 {
        match self {
            UsageTap::Streamed(reader) => reader.skipped_lines(),
            _ => 0,
        }
    }

    /// The usage, as far as the answer has come.
    pub fn usage(&self) -> Option<Usage> {
        match self {
            UsageTap::Streamed(reader) => reader.usage(),
            UsageTap::Whole(kept) => usage::whole(kept),
            UsageTap::Waiting | UsageTap::TooLong | UsageTap::Silent => None,
        }
    }
}

/// Whether an answer is a stream of events.
pub fn is_stream(answer: &ResponseHeader) -> bool {
    answer.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Whether an event may be written into a stream: it is readable, and no length was announced that it would exceed or fall short of.
pub fn takes_events(answer: &ResponseHeader) -> bool {
    is_stream(answer)
        && !intake::is_packed(&answer.headers)
        && !answer.headers.contains_key(header::CONTENT_LENGTH)
        && !is_bodiless(answer.status)
}

/// Whether an answer of this status never has a body, whatever its header says.
fn is_bodiless(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The answer's header on its way to the client.
pub fn header(answer: &mut ResponseHeader, session: &mut Session, context: &mut Context) -> Result<()> {
    let version = session.req_header().version;
    if answer.status == StatusCode::SWITCHING_PROTOCOLS {
        serves(context);
        // No prompt is being read either, as far as can be told.
        context.in_flight.iter_mut().for_each(InFlight::began);
        return sign(answer, context);
    }
    if answer.status.is_informational() {
        return Ok(());
    }
    remove_what_ends_here(answer);
    context.changes.begin(answer, version)?;
    cors::mark(answer, context)?;
    if version < Version::HTTP_11 {
        // An older client knows no chunks: its answer ends with the connection.
        answer.remove_header(&header::TRANSFER_ENCODING);
        if !answer.headers.contains_key(header::CONTENT_LENGTH) && !is_bodiless(answer.status) {
            context.end_connection(session);
        }
    }
    if let Some(usage) = &mut context.usage {
        usage.begin(answer, context.stores);
    }
    let stage = context.usage.as_ref().and_then(UsageTap::stage);
    match stage.filter(|_| !intake::is_packed(&answer.headers)) {
        Some(_) => hold(context),
        None => {
            // An error of the engine's own says neither that it serves nor that it does not.
            if !answer.status.is_server_error() {
                serves(context);
            }
            context.let_answer_go();
        }
    }
    sign(answer, context)
}

/// The engine answers as it should.
fn serves(context: &Context) {
    if let Some(in_flight) = &context.in_flight {
        in_flight.answered();
    }
}

/// Holds a stream back until its first event.
fn hold(context: &mut Context) {
    if let Some(in_flight) = &context.in_flight {
        context.hold_answer(Instant::now() + in_flight.hang_limit() + HOLD_BEYOND_HANG);
    }
}

/// Says where the request went and why.
fn sign(answer: &mut ResponseHeader, context: &Context) -> Result<()> {
    if !answer.headers.contains_key("x-request-id") {
        answer.insert_header("x-request-id", &context.request_id)?;
    }
    if let Some(in_flight) = context.in_flight.as_ref().filter(|_| context.live.server.response_headers) {
        answer.insert_header("x-homing-replica", in_flight.replica())?;
        if let Some(decision) = in_flight.decision() {
            answer.insert_header("x-homing-decision", decision.name())?;
        }
    }
    Ok(())
}

/// A piece of the answer's body on its way to the client; the last one if `end`.
///
/// # Errors
/// If the engine says that it failed before it said anything else, and another is asked.
pub fn body(piece: &mut Option<Bytes>, end: bool, context: &mut Context, keys: &KeyHasher) -> Result<()> {
    if let Some(piece) = piece.as_ref().filter(|piece| !piece.is_empty()) {
        see(piece, context)?;
    }
    if context.stores {
        let ids = context.usage.as_mut().and_then(|tap| tap.take_ids(end));
        if let (Some(ids), Some(in_flight)) = (ids, &context.in_flight) {
            let caller = context.caller.as_deref().map_or(Caller::NOBODY, |caller| Caller::named(caller.name()));
            ids.all().for_each(|stored| in_flight.keeps(keys.stored(stored, caller)));
        }
    }
    context.changes.pass(piece, end);
    Ok(())
}

/// Notes a piece as it came from the engine. The first byte of a stream is that of its first event: before that the engine has
/// generated nothing.
fn see(piece: &[u8], context: &mut Context) -> Result<()> {
    let generated = context.usage.as_mut().is_some_and(|usage| usage.feed(piece));
    if let Some(in_flight) = context.in_flight.as_ref().filter(|_| generated) {
        in_flight.shows_life();
    }
    let stage = context.usage.as_ref().and_then(UsageTap::stage);
    if stage == Some(Stage::Opening) {
        return Ok(());
    }
    if matches!(stage, Some(Stage::FailedFirst | Stage::FailedLater)) && !context.failed_in_stream {
        upstream::failed(context);
        if stage == Some(Stage::FailedFirst) && context.holds_answer() {
            upstream::retry_on_error_event(context)?;
        }
        context.failed_in_stream = true;
        failed_in_stream(context);
    }
    if context.first_byte.is_none() {
        context.first_byte = Some(Instant::now());
        if stage.is_some() && !context.failed_in_stream {
            serves(context);
        }
        context.in_flight.as_mut().filter(|_| stage.is_some()).into_iter().for_each(InFlight::began);
        context.let_answer_go();
    }
    Ok(())
}

/// The engine says within its stream that it failed. The client reads that in its own dialect; here it is counted.
fn failed_in_stream(context: &Context) {
    if let Some(in_flight) = &context.in_flight {
        METRICS.stream_errors.with_label_values(&[in_flight.model().label(), in_flight.replica()]).inc();
        log::warn!("{}: the replica sent an error within its answer", context.summary());
    }
}

fn remove_what_ends_here(answer: &mut ResponseHeader) {
    let named: Vec<String> = answer
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !matches!(name.as_str(), "close" | "keep-alive" | "transfer-encoding" | "content-length" | ""))
        .collect();
    let ends_here = |name: &&HeaderName| {
        ENDS_HERE.contains(&name.as_str()) || cors::is_of_cors(name) || named.iter().any(|named| named == name.as_str())
    };
    let ending: Vec<HeaderName> = answer.headers.keys().filter(ends_here).cloned().collect();
    ending.iter().for_each(|name| drop(answer.remove_header(name)));
}
