//! Lets an engine's answer pass as it is, and reads in passing how many tokens it took.

use std::time::Instant;

use bytes::BytesMut;
use http::{Version, header};
use pingora::Result;
use pingora::http::ResponseHeader;

use super::{Context, cors};
use crate::fleet::InFlight;
use crate::metrics::METRICS;
use crate::request::usage::{self, Usage, UsageReader};

/// An answer that is not streamed is kept up to this size to read its usage.
const WHOLE_MAX: usize = 8 << 20;

/// Headers about one connection only, which end here.
const HOP_BY_HOP: [&str; 4] = ["keep-alive", "proxy-connection", "proxy-authenticate", "upgrade"];

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
    fn begin(&mut self, answer: &ResponseHeader) {
        let content_type = answer.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        *self = match () {
            _ if !answer.status.is_success() => UsageTap::Silent,
            _ if content_type.starts_with(b"text/event-stream") => UsageTap::Streamed(UsageReader::new()),
            _ => UsageTap::Whole(BytesMut::new()),
        };
    }

    fn feed(&mut self, bytes: &[u8]) {
        match self {
            UsageTap::Streamed(reader) => reader.feed(bytes),
            UsageTap::Whole(kept) if kept.len() + bytes.len() <= WHOLE_MAX => kept.extend_from_slice(bytes),
            UsageTap::Whole(_) => {
                METRICS.limits_hit.with_label_values(&["answer_usage"]).inc();
                *self = UsageTap::TooLong;
            }
            UsageTap::Waiting | UsageTap::TooLong | UsageTap::Silent => {}
        }
    }

    /// Whether the answer is a stream, whose first byte comes as soon as its prompt is read.
    fn is_streamed(&self) -> bool {
        matches!(self, UsageTap::Streamed(_))
    }

    /// Whether a stream has come to its last event.
    pub fn ended(&self) -> bool {
        matches!(self, UsageTap::Streamed(reader) if reader.ended())
    }

    /// The usage, as far as the answer has come.
    pub fn usage(&self) -> Option<Usage> {
        match self {
            UsageTap::Streamed(reader) => {
                if reader.skipped_lines() > 0 {
                    METRICS.limits_hit.with_label_values(&["answer_line"]).inc_by(reader.skipped_lines());
                }
                reader.usage()
            }
            UsageTap::Whole(kept) => usage::whole(kept),
            UsageTap::Waiting | UsageTap::TooLong | UsageTap::Silent => None,
        }
    }
}

/// The answer's header on its way to the client: says where the request went and why.
pub fn header(answer: &mut ResponseHeader, version: Version, context: &mut Context) -> Result<()> {
    if answer.status.is_informational() {
        return Ok(());
    }
    context.release_body();
    remove_hop_by_hop(answer);
    answer.remove_header("x-homing-error");
    cors::mark(answer, context)?;
    if version < Version::HTTP_11 {
        // An older client knows no chunks: its answer ends with the connection.
        answer.remove_header(&header::TRANSFER_ENCODING);
    }
    if let Some(usage) = &mut context.usage {
        usage.begin(answer);
    }
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

/// A piece of the answer's body on its way to the client.
pub fn body(piece: Option<&[u8]>, context: &mut Context) {
    let Some(piece) = piece.filter(|piece| !piece.is_empty()) else { return };
    if context.first_byte.is_none() {
        context.first_byte = Some(Instant::now());
        let streamed = context.usage.as_ref().is_some_and(UsageTap::is_streamed);
        context.in_flight.as_mut().filter(|_| streamed).into_iter().for_each(InFlight::began);
    }
    if let Some(usage) = &mut context.usage {
        usage.feed(piece);
    }
}

fn remove_hop_by_hop(answer: &mut ResponseHeader) {
    let named: Vec<String> = answer
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !matches!(name.as_str(), "close" | "keep-alive" | "transfer-encoding" | "content-length" | ""))
        .collect();
    named.iter().map(String::as_str).chain(HOP_BY_HOP).for_each(|name| drop(answer.remove_header(name)));
}
