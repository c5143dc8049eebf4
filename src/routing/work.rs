//! What an engine has to do.

use std::time::Duration;

use super::stored::Kept;
use super::{Ask, Attempt, Pin, Router, State};

impl Router {
    /// How long it should take an engine to read the longest of the prompts in flight there that it has not answered yet, as far
    /// as can be told from what it has read before.
    pub fn reading_time(&self, engine: usize) -> Duration {
        let engine = &self.engines[engine];
        let longest = engine.ids().map(|id| self.caches.longest_reading_s(id)).fold(0.0, f64::max);
        Duration::try_from_secs_f64(longest).unwrap_or(Duration::MAX)
    }

    /// Whether a request could go to an engine that is up, other than those in `tried` that have not come back since.
    pub fn could_go_elsewhere(&self, ask: &Ask, tried: &[Attempt]) -> bool {
        let takes = |index: &usize| {
            let engine = &self.engines[*index];
            let has_rank = match ask.pin {
                Pin::Rank(rank) if self.has_rank(rank) => rank < engine.spec.data_parallel_size,
                _ => true,
            };
            engine.state() == State::Up && has_rank && !self.has_tried(tried, *index)
        };
        // What an engine keeps, nobody else has.
        self.kept(ask) == Kept::Unknown && self.order.iter().any(takes)
    }
}
