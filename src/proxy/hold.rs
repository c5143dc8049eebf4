//! Holds the beginning of a stream back until it has said something, so that another replica can be asked as if nothing had been.

use std::time::Instant;

use pingora::protocols::http::HttpTask;
use pingora::{Error, ErrorType};

use crate::metrics::METRICS;

/// Bytes that are held back at most. What opens a stream has hundreds; of a request with many choices, thousands.
const BYTES_MAX: usize = 256 << 10;

/// The engine ended a stream in order without an event: it broke off, whatever its framing says.
pub const EMPTY: ErrorType = ErrorType::Custom("a stream without an event");

/// The beginning of one answer.
#[derive(Default)]
pub struct Hold {
    /// Whether it is a stream that has said nothing so far.
    unsaid: bool,
    /// Until when at most; none: nothing is held back.
    until: Option<Instant>,
    held: Vec<HttpTask>,
    /// Of the bodies held.
    bytes: usize,
}

/// What becomes of a piece of the answer.
pub enum Passed {
    /// These go to the client, in this order.
    On(Vec<HttpTask>),
    Held,
    /// The engine ended its answer before it had said anything.
    Failed(Box<Error>),
}

impl Hold {
    /// Holds the answer back that begins now.
    pub fn begin(&mut self, until: Instant) {
        *self = Hold { unsaid: true, until: Some(until), ..Hold::default() };
    }

    /// Lets the next piece pass, and with it what was held: the stream has said something.
    pub fn end(&mut self) {
        self.unsaid = false;
        self.until = None;
    }

    /// Whether the answer is held back.
    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the stream has said something, and nothing of it is held: from now on everything passes.
    pub fn is_over(&self) -> bool {
        !self.unsaid && !self.is_on() && self.held.is_empty()
    }

    /// When it ends, whatever has come.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Takes the next pieces.
    pub fn pass(&mut self, mut pieces: Vec<HttpTask>) -> Passed {
        if self.unsaid && pieces.iter().any(ends_in_order) {
            return Passed::Failed(Error::new_up(EMPTY));
        }
        if self.is_on() {
            if let Some(at) = pieces.iter().position(|piece| matches!(piece, HttpTask::Failed(_)))
                && let HttpTask::Failed(error) = pieces.swap_remove(at)
            {
                return Passed::Failed(error);
            }
            // What was held before is not looked at again: an engine may send its comments byte by byte.
            self.bytes += pieces.iter().map(bytes).sum::<usize>();
            self.held.append(&mut pieces);
            if self.bytes <= BYTES_MAX {
                return Passed::Held;
            }
            METRICS.limits_hit.with_label_values(&["hold"]).inc();
        }
        Passed::On(if self.held.is_empty() { pieces } else { self.take(pieces) })
    }

    /// Ends the hold: what was held, and then `pieces`.
    pub fn take(&mut self, mut pieces: Vec<HttpTask>) -> Vec<HttpTask> {
        self.until = None;
        self.held.append(&mut pieces);
        std::mem::take(&mut self.held)
    }
}

fn ends_in_order(piece: &HttpTask) -> bool {
    piece.is_end() && !matches!(piece, HttpTask::Failed(_))
}

fn bytes(piece: &HttpTask) -> usize {
    match piece {
        HttpTask::Body(Some(bytes), _) => bytes.len(),
        _ => 0,
    }
}
