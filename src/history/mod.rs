//! What a model did lately, for charts: the last hour in buckets of ten seconds and the last day in buckets of two minutes.
//!
//! Pure: whoever keeps a [`History`] notes requests as they end and closes buckets as time passes. It takes at most
//! [`BYTES_MAX`] a model, however much goes by.

mod bucket;
mod filling;

use std::collections::VecDeque;

pub use bucket::Bucket;
use filling::Filling;

/// The most that the history of one model takes, in bytes: 256 models are 28 MiB.
pub const BYTES_MAX: usize = 112 << 10;

/// How far back a history looks, and how finely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Hour,
    Day,
}

impl Span {
    /// The span of this name in addresses.
    pub fn named(name: &str) -> Option<Span> {
        match name {
            "hour" => Some(Span::Hour),
            "day" => Some(Span::Day),
            _ => None,
        }
    }

    /// The name in JSON and in addresses.
    pub fn name(self) -> &'static str {
        match self {
            Span::Hour => "hour",
            Span::Day => "day",
        }
    }

    /// Seconds in a bucket.
    pub fn step_s(self) -> u64 {
        match self {
            Span::Hour => 10,
            Span::Day => 120,
        }
    }

    /// Buckets kept at most.
    pub fn buckets(self) -> usize {
        match self {
            Span::Hour => 360,
            Span::Day => 720,
        }
    }

    /// Seconds from its beginning to now.
    pub fn length_s(self) -> u64 {
        self.step_s() * self.buckets() as u64
    }
}

/// A request that has ended, or that waited for room in vain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// Whether it was routed: one that waited in vain only counts as a wait.
    pub routed: bool,
    /// Prompt tokens, and those of them that were cached; none where the engine did not say.
    pub prompt: Option<u64>,
    pub cached: Option<u64>,
    /// Tokens generated.
    pub completion: u64,
    /// From the request's header to the first byte of the answer's body, in seconds.
    pub first_byte_s: Option<f64>,
    /// How long it waited for room, in seconds, if it had to.
    pub parked_s: Option<f64>,
}

/// The history of one model.
pub struct History {
    hour: Track,
    day: Track,
}

/// One span of it: the buckets that are full, the latest last, and the one that fills now.
struct Track {
    span: Span,
    full: VecDeque<Bucket>,
    filling: Filling,
}

impl Default for History {
    fn default() -> History {
        History { hour: Track::new(Span::Hour), day: Track::new(Span::Day) }
    }
}

impl History {
    /// Counts a request into the buckets that fill now.
    pub fn note(&mut self, ended: &Ended) {
        self.hour.filling.note(ended);
        self.day.filling.note(ended);
    }

    /// Closes the buckets whose time is over. To be called at each multiple of ten seconds, with that moment in seconds
    /// since 1970 and the requests that are parked then. A moment that is not later than the last one changes nothing.
    pub fn tick(&mut self, at: u64, parked: u64) {
        self.hour.tick(at, parked);
        self.day.tick(at, parked);
    }

    /// The full buckets of a span, the latest last.
    pub fn buckets(&self, span: Span) -> impl DoubleEndedIterator<Item = &Bucket> + ExactSizeIterator {
        self.track(span).full.iter()
    }

    /// What has been counted since the last of them.
    pub fn filling(&self, span: Span) -> Bucket {
        self.track(span).filling.bucket()
    }

    fn track(&self, span: Span) -> &Track {
        match span {
            Span::Hour => &self.hour,
            Span::Day => &self.day,
        }
    }
}

impl Track {
    fn new(span: Span) -> Track {
        Track { span, full: VecDeque::new(), filling: Filling::default() }
    }

    fn tick(&mut self, at: u64, parked: u64) {
        self.filling.parked(parked);
        // A clock that was set back gives no second bucket of the same moment.
        if !at.is_multiple_of(self.span.step_s()) || self.full.back().is_some_and(|last| last.at == at) {
            return;
        }
        // At once and to the size: growing by halves and doubles would take more in the end.
        if self.full.is_empty() {
            self.full.reserve_exact(self.span.buckets());
        }
        if self.full.len() == self.span.buckets() {
            self.full.pop_front();
        }
        self.full.push_back(Bucket { at, ..self.filling.bucket() });
        self.filling = Filling::default();
    }
}
