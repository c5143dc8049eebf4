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
pub(super) struct Away {
    engines: LruCache<String, (Drains, Time)>,
    forgotten: u64,
}

impl Away {
    pub fn new() -> Away {
        Away { engines: LruCache::sparse(ENGINES_MAX), forgotten: 0 }
    }

    /// An engine of this name is not configured any more.
    pub fn leaves(&mut self, name: &str, drains: Drains, now: Time) {
        if let Some((other, (_, left))) = self.engines.push(name.to_owned(), (drains, now))
            && other != name
            && now.since(left) <= AWAY_MAX
        {
            self.forgotten += 1;
        }
    }

    /// It is again. None: it has been away for too long, or was never here.
    pub fn returns(&mut self, name: &str, now: Time) -> Option<Drains> {
        self.engines.pop(name).filter(|(_, left)| now.since(*left) <= AWAY_MAX).map(|(drains, _)| drains)
    }

    /// Those that are not away for too long, with the moments at which they left, the first that left first.
    pub fn iter(&self, now: Time) -> impl Iterator<Item = (&str, Drains, Time)> {
        let engines = self.engines.iter().rev().map(|(name, (drains, left))| (name.as_str(), *drains, *left));
        engines.filter(move |(_, _, left)| now.since(*left) <= AWAY_MAX)
    }

    /// How many were forgotten before their time.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
