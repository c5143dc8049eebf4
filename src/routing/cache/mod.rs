//! What the replicas' prefix caches hold, as far as it can be known from here, and what is learned from each answer
//! (`turns.rs`).

mod capacity;
mod outcome;
mod queue;
mod saved;
mod shadow;
mod sizes;
mod speed;
mod turns;

use std::time::Duration;

pub use capacity::CapacitySource;
pub use outcome::{Advice, CacheCounts, CacheOutcome};
pub use saved::SavedCaches;
pub use shadow::Standing;
pub(super) use turns::Expectation;

use super::recent::Recent;
use super::{Key, ReplicaId, Time};
use capacity::{Learned, admitted};
use outcome::Watch;
use queue::Queue;
use shadow::Shadow;
use sizes::Sizes;
use speed::Speeds;

/// The automatic linger: the pauses between the turns of a conversation that are not longer are this share of them. Room
/// is kept for an agent that runs a tool, not for one whose person has gone for lunch. Of the shares tried in the
/// experiment (0.25 to 0.95) this one serves all loads well.
const LINGER_QUANTILE: f64 = 0.9;
const LINGER_MIN: Duration = Duration::from_millis(500);
const LINGER_MAX: Duration = Duration::from_secs(60);

/// The caches of all replicas of a model.
pub(super) struct Caches {
    replicas: Vec<Replica>,
    sizes: Sizes,
    speeds: Speeds,
    learned: Learned,
    pauses: Recent,
    /// No place has been idle for longer than since then: so most looks for places that are to end need not look.
    idle_since: Time,
    watch: Watch,
    counts: CacheCounts,
}

struct Replica {
    shadow: Shadow,
    /// Tokens that the engine says it can keep.
    said: Option<u64>,
    queue: Queue,
}

impl Replica {
    fn new() -> Replica {
        Replica { shadow: Shadow::new(), said: None, queue: Queue::default() }
    }
}

impl Caches {
    pub fn new() -> Caches {
        Caches {
            replicas: Vec::new(),
            sizes: Sizes::new(),
            speeds: Speeds::default(),
            learned: Learned::new(),
            pauses: Recent::new(256),
            idle_since: Time::default(),
            watch: Watch::default(),
            counts: CacheCounts::default(),
        }
    }

    /// Makes room for so many replicas.
    pub fn resize(&mut self, replicas: usize) {
        self.replicas.resize_with(self.replicas.len().max(replicas), Replica::new);
    }

    /// Notes what a replica's engine says that it can keep.
    pub fn read(&mut self, replica: ReplicaId, capacity: Option<u64>) {
        self.replicas[replica.index()].said = capacity.filter(|tokens| *tokens > 0);
    }

    /// Tokens that a replica can keep, and who says so. None: nothing is known yet.
    pub fn capacity(&self, replica: ReplicaId, set: Option<u64>) -> (Option<u64>, CapacitySource) {
        match (set, self.replicas[replica.index()].said) {
            (Some(tokens), _) => (Some(tokens), CapacitySource::Set),
            (None, Some(tokens)) => (Some(tokens), CapacitySource::Engine),
            (None, None) => (self.learned.tokens(), CapacitySource::Learned),
        }
    }

    /// Tokens up to which newcomers are admitted to a replica.
    pub fn admitted(&self, replica: ReplicaId, set: Option<u64>) -> u64 {
        self.capacity(replica, set).0.map_or(u64::MAX, admitted)
    }

    /// Tokens that the conversations with a place on a replica take, and all that runs there, the prefix that all share
    /// counted once.
    pub fn held(&self, replica: ReplicaId) -> u64 {
        let shadow = &self.replicas[replica.index()].shadow;
        if shadow.is_free() { 0 } else { self.sizes.shared().saturating_add(shadow.held()) }
    }

    /// Conversations with a place that have nothing in flight.
    pub fn lingering(&self, replica: ReplicaId) -> usize {
        self.replicas[replica.index()].shadow.lingering()
    }

    /// Conversations without a place whose cache should still be there.
    pub fn resident(&self, replica: ReplicaId) -> usize {
        self.replicas[replica.index()].shadow.left()
    }

    /// Whether nothing has a place on a replica.
    pub fn is_free(&self, replica: ReplicaId) -> bool {
        self.replicas[replica.index()].shadow.is_free()
    }

    /// How a conversation stands with a replica.
    pub fn standing(&self, replica: ReplicaId, key: &Key) -> Standing {
        self.replicas[replica.index()].shadow.standing(key)
    }

    /// Whether a turn of the conversation is in flight on a replica.
    pub fn is_running(&self, replica: ReplicaId, key: &Key) -> bool {
        self.replicas[replica.index()].shadow.is_running(key)
    }

    /// Tokens of its own that a conversation will have after its next turn: by its last size, or by the bytes of its
    /// request.
    pub fn own_tokens(&self, size: Option<u64>, bytes: u64) -> u64 {
        let size = size.unwrap_or_else(|| self.sizes.of_bytes(bytes)) + self.sizes.growth();
        size.saturating_sub(self.sizes.shared())
    }

    /// Seconds until a replica would have read a new conversation's own tokens and all that is queued there.
    pub fn reading_s(&self, replica: ReplicaId, own: u64) -> f64 {
        let Replica { shadow, queue, .. } = &self.replicas[replica.index()];
        let shared = if shadow.is_empty() { self.sizes.shared() } else { 0 };
        (own + shared + queue.to_compute()) as f64 / self.speeds.rate()
    }

    /// Seconds in which a replica should read the longest prompt that is in flight there, if nothing of it is cached.
    pub fn longest_reading_s(&self, replica: ReplicaId) -> f64 {
        let longest = self.replicas[replica.index()].queue.longest();
        longest as f64 * self.speeds.slowness(replica) / self.speeds.rate()
    }

    /// How many times longer than on the others everything takes on a replica.
    pub fn slowness(&self, replica: ReplicaId) -> f64 {
        self.speeds.slowness(replica)
    }

    /// How long an idle conversation keeps its place.
    pub fn linger(&self) -> Duration {
        let pause_s = self.pauses.quantile(LINGER_QUANTILE).unwrap_or(0.0);
        Duration::from_secs_f64(pause_s).clamp(LINGER_MIN, LINGER_MAX)
    }

    /// Ends the places that have been idle for too long.
    pub fn expire(&mut self, linger: Duration, now: Time) {
        if now.since(self.idle_since) <= linger {
            return;
        }
        self.replicas.iter_mut().for_each(|replica| replica.shadow.expire(linger, now));
        self.idle_since = self.replicas.iter().filter_map(|replica| replica.shadow.idle_since()).min().unwrap_or(now);
    }

    /// A conversation that had its place on a replica lives elsewhere now.
    pub fn give_up(&mut self, replica: ReplicaId, key: Key) {
        self.replicas[replica.index()].shadow.give_up(key);
    }

    /// Notes the pause of a conversation between two turns.
    pub fn note_pause(&mut self, pause: Duration) {
        self.pauses.note(pause.as_secs_f64());
    }

    /// Drops from the shadow what the replica's cache can no longer keep.
    pub fn cut(&mut self, replica: ReplicaId, set: Option<u64>) {
        let capacity = self.capacity(replica, set).0.unwrap_or(u64::MAX);
        let shadow = &mut self.replicas[replica.index()].shadow;
        // What runs is counted with all that its turn will add, and has half of it on average.
        let not_yet = self.sizes.growth() / 2 * shadow.running() as u64;
        let too_many = shadow.cut(capacity.saturating_add(not_yet).saturating_sub(self.sizes.shared()));
        self.counts.untracked += too_many;
    }

    /// The cache of a replica is empty again.
    pub fn clear(&mut self, replica: ReplicaId) {
        self.replicas[replica.index()].shadow.clear_idle();
    }

    /// A replica gave its place to another: nothing is known of it.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.replicas[replica.index()] = Replica::new();
        self.speeds.forget(replica);
    }

    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// What is likely wrong where turns go home and yet find nothing.
    pub fn advice(&self) -> Option<Advice> {
        self.watch.advice()
    }
}
