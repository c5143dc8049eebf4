//! How long a try waits for its engine: until a limit is reached, or until the engine hangs and another can be asked.
//!
//! An engine that generates a long answer which is not streamed sends no byte for many minutes. So the limits on silence hold only
//! while the engine shows no sign of life at all ([`crate::fleet::Life`]); the one on the whole is far above any generation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pingora::{Error, ErrorType};

use crate::config::Timeouts;
use crate::fleet::{Elsewhere, Engine, InFlight, Rest, now};
use crate::routing::Time;

/// The engine hangs, the client has got nothing, and there is another replica.
pub const HUNG: ErrorType = ErrorType::Custom("the replica hangs");
/// No first byte for too long.
pub const FIRST_BYTE: ErrorType = ErrorType::Custom("no first byte");
/// No next byte for too long.
pub const IDLE_STREAM: ErrorType = ErrorType::Custom("an idle stream");
/// The whole took too long.
pub const TOTAL: ErrorType = ErrorType::Custom("too long in all");

/// Whether an error says that the engine was waited for in vain.
pub fn is_limit(error: &ErrorType) -> bool {
    [HUNG, FIRST_BYTE, IDLE_STREAM, TOTAL].contains(error)
}

/// The patience of one try.
pub struct Patience {
    engine: Arc<Engine>,
    /// Whether it is counted among those in flight there.
    counted: bool,
    elsewhere: Elsewhere,
    timeouts: Timeouts,
    /// When the request was first sent on, to whichever engine.
    began: Time,
    /// When it was sent to this one.
    sent: Time,
    /// When something last went to the client, in milliseconds of [`now`]; 0: nothing so far.
    passed_ms: AtomicU64,
}

impl Patience {
    /// That of the try that begins now; `began` is when the first did.
    pub fn new(in_flight: &InFlight, began: Time) -> Patience {
        Patience {
            engine: in_flight.engine(),
            counted: in_flight.is_counted(),
            elsewhere: in_flight.elsewhere(),
            timeouts: in_flight.model().settings().timeouts.clone(),
            began,
            sent: now(),
            passed_ms: AtomicU64::new(0),
        }
    }

    /// Notes that something has gone to the client.
    pub fn passed(&self) {
        self.passed_ms.store(now().0, Ordering::Relaxed);
    }

    /// Notes that the engine has nothing to do for it, as long as that lives.
    pub fn rest(&self) -> Option<Rest> {
        self.counted.then(|| self.engine.resting.begin())
    }

    /// Whether something has gone to the client: from then on other limits hold.
    fn has_begun(&self) -> bool {
        self.last_passed().is_some()
    }

    /// What the try is to end with, if that is due.
    pub fn reached(&self) -> Option<Box<Error>> {
        let (due, limit) = self.next_limit();
        if due.since(now()).is_zero() {
            return Some(Error::new_up(limit));
        }
        let can_go_elsewhere = || !self.has_begun() && self.engine.life.is_hung() && self.elsewhere.is_open();
        can_go_elsewhere().then(|| Error::new_up(HUNG))
    }

    /// The limit that is reached first, if nothing happens before.
    fn next_limit(&self) -> (Time, ErrorType) {
        let alive = self.engine.life.last_sign();
        let silent = match self.last_passed() {
            None => (self.sent.max(alive) + self.timeouts.first_byte, FIRST_BYTE),
            Some(passed) => (passed.max(alive) + self.timeouts.idle_stream, IDLE_STREAM),
        };
        let total = self.began + self.timeouts.total;
        if total < silent.0 { (total, TOTAL) } else { silent }
    }

    fn last_passed(&self) -> Option<Time> {
        Some(Time(self.passed_ms.load(Ordering::Relaxed))).filter(|passed| passed.0 > 0)
    }
}
