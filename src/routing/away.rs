//! Engines that are not configured any more, for as long as they may only be away for a moment.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;

use super::Time;
use super::health::Drains;

/// An engine that is away for longer comes back as a new one.
const AWAY_MAX: Duration = Duration::from_mins(10);

/// Engines remembered at most: beyond, the ones that left first are forgotten before their time.
const ENGINES_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Whether each of them is to drain, and when it left.
pub(super) struct Away(LruCache<String, (Drains, Time)>);

impl Away {
    pub fn new() -> Away {
        Away(LruCache::sparse(ENGINES_MAX))
    }

    /// An engine of this name is not configured any more.
    pub fn leaves(&mut self, name: &str, drains: Drains, now: Time) {
        self.0.put(name.to_owned(), (drains, now));
    }

    /// It is again. None: it has been away for too long, or was never here.
    pub fn returns(&mut self, name: &str, now: Time) -> Option<Drains> {
        self.0.pop(name).filter(|(_, left)| now.since(*left) <= AWAY_MAX).map(|(drains, _)| drains)
    }
}
