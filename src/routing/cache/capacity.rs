use std::time::Duration;

use crate::routing::Time;

/// The share of a cache up to which newcomers are admitted. The rest is for the growth of those who are there: a
/// conversation that loses its cache in the middle of its work costs more than one that begins a little later.
const ADMITTED: f64 = 0.98;

/// Where the search for an unknown capacity begins, tokens: above any cache.
const UNKNOWN: f64 = 1e9;

/// By how much a learned capacity shrinks for a miss that nothing but a smaller cache explains.
const SHRINK: f64 = 0.97;

/// It shrinks at most this often: one eviction shows in many turns.
const SHRINK_EVERY: Duration = Duration::from_secs(5);

/// By how much it grows for a turn that found its cache while others waited.
const GROW: f64 = 1.002;

/// Where a replica's capacity comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacitySource {
    /// The configuration.
    Set,
    /// The engine's metrics.
    Engine,
    /// Turns that missed.
    Learned,
}

impl CapacitySource {
    /// The name in JSON and logs.
    pub fn name(self) -> &'static str {
        match self {
            CapacitySource::Set => "set",
            CapacitySource::Engine => "engine",
            CapacitySource::Learned => "learned",
        }
    }
}

/// Tokens that a replica of a model whose engines do not say can keep, learned from its misses.
pub(super) struct Learned {
    tokens: f64,
    shrunk: Option<Time>,
}

impl Learned {
    pub fn new() -> Learned {
        Learned { tokens: UNKNOWN, shrunk: None }
    }

    /// Tokens; none before the first miss.
    pub fn tokens(&self) -> Option<u64> {
        (self.tokens < UNKNOWN).then_some(self.tokens as u64)
    }

    /// As it was learned before.
    pub fn restore(&mut self, tokens: Option<u64>) {
        self.tokens = tokens.map_or(UNKNOWN, |tokens| (tokens.max(1) as f64).min(UNKNOWN));
    }

    /// A conversation missed that should have been in a cache which was then believed to hold `believed` tokens: it holds
    /// fewer.
    pub fn missed(&mut self, believed: u64, now: Time) {
        if self.shrunk.is_some_and(|shrunk| now.since(shrunk) < SHRINK_EVERY) {
            return;
        }
        self.shrunk = Some(now);
        self.tokens = self.tokens.min(believed as f64) * SHRINK;
    }

    /// A turn left a conversation that counts as so many tokens: a replica can hold at least that.
    pub fn held(&mut self, tokens: u64) {
        if self.tokens < UNKNOWN {
            self.tokens = self.tokens.max(tokens as f64);
        }
    }

    /// A turn found its cache while others waited for room.
    pub fn kept(&mut self) {
        if self.tokens < UNKNOWN {
            self.tokens *= GROW;
        }
    }
}

/// Up to how much of a cache newcomers are admitted.
pub(super) fn admitted(tokens: u64) -> u64 {
    (tokens as f64 * ADMITTED) as u64
}
