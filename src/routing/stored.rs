use lru::LruCache;

use super::{Ask, Key, Router, Target};

/// Where the engines keep what later requests ask for by its id (stored responses, and threads of them).
///
/// Bounded: past its limit it forgets what was asked for the longest ago.
pub struct StoredTable {
    /// None: the engine that had it is gone, or has restarted.
    places: LruCache<Key, Option<Target>>,
    evicted: u64,
}

/// What is known of something stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing: it may be anywhere.
    Unknown,
    At(Target),
    Gone,
}

impl StoredTable {
    pub fn new() -> StoredTable {
        StoredTable { places: LruCache::unbounded(), evicted: 0 }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Forgotten because of the limit.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Notes where something is kept. Forgets others until at most `limit` remain.
    pub fn put(&mut self, key: Key, target: Target, limit: usize) {
        self.places.put(key, Some(target));
        while self.places.len() > limit.max(1) {
            self.places.pop_lru();
            self.evicted += 1;
        }
    }

    /// Everything known, the longest unused first.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Option<Target>)> {
        self.places.iter().rev()
    }

    /// Takes back what was known before, at most `limit` things.
    pub fn restore(&mut self, key: Key, place: Option<Target>, limit: usize) {
        self.places.put(key, place);
        while self.places.len() > limit.max(1) {
            self.places.pop_lru();
        }
    }

    /// Where something is kept. Not a use of it.
    pub fn find(&self, key: &Key) -> Kept {
        match self.places.peek(key) {
            None => Kept::Unknown,
            Some(None) => Kept::Gone,
            Some(Some(target)) => Kept::At(*target),
        }
    }

    /// Notes a use of it.
    pub fn used(&mut self, key: &Key) {
        self.places.promote(key);
    }

    /// An engine has lost all that it kept.
    pub fn lose(&mut self, engine: usize) {
        for (_, place) in self.places.iter_mut() {
            *place = place.filter(|target| target.engine != engine);
        }
    }
}

impl Router {
    /// Notes that the engine a request was sent to keeps something for later ones.
    pub fn keeps(&mut self, target: &Target, key: Key) {
        self.stored.put(key, *target, self.settings.conversations_max);
    }

    /// Whether anything is known of what is kept under this key.
    pub fn knows(&self, key: &Key) -> bool {
        self.stored.find(key) != Kept::Unknown
    }

    /// Whether what a request names was kept by an engine that is gone, or has restarted since.
    pub fn is_gone(&self, ask: &Ask) -> bool {
        self.kept(ask) == Kept::Gone
    }

    /// Where that is which a request names.
    pub(super) fn kept(&self, ask: &Ask) -> Kept {
        match ask.stored.map(|key| self.stored.find(&key)) {
            Some(Kept::At(target)) if !self.engines[target.engine].health.configured => Kept::Gone,
            Some(kept) => kept,
            None => Kept::Unknown,
        }
    }
}
