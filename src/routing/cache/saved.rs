use serde::{Deserialize, Serialize};

use super::Caches;
use crate::routing::{Key, ReplicaId, Time};

/// No conversation is remembered through a longer pause: the longest `idle_forget`, a day.
const PAUSE_MAX_S: f64 = 86_400.0;

/// What is learned of a model's caches, for the next process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedCaches {
    /// Tokens a byte, growth and shared prefix, as the last turns showed them.
    sizes: [Vec<f64>; 3],
    /// Seconds.
    pauses: Vec<f64>,
    /// Tokens that a replica keeps, where no engine says so.
    capacity: Option<u64>,
    /// Prompt tokens that a replica reads a second.
    rate: Option<f64>,
}

impl Caches {
    pub fn save(&self) -> SavedCaches {
        SavedCaches {
            sizes: self.sizes.values(),
            pauses: self.pauses.values(),
            capacity: self.learned.tokens(),
            rate: self.speeds.of_model(),
        }
    }

    pub fn restore(&mut self, saved: &SavedCaches) {
        self.sizes.restore(&saved.sizes);
        saved
            .pauses
            .iter()
            .filter(|pause| (0.0..=PAUSE_MAX_S).contains(*pause))
            .for_each(|pause| self.pauses.note(*pause));
        self.learned.restore(saved.capacity);
        self.speeds.restore_model(saved.rate);
    }

    /// Prompt tokens that a replica reads a second, where that was seen.
    pub fn rate(&self, replica: ReplicaId) -> Option<f64> {
        self.speeds.of(replica)
    }

    pub fn restore_rate(&mut self, replica: ReplicaId, rate: Option<f64>) {
        self.speeds.restore(replica, rate);
    }

    /// A conversation is known to rest on a replica since then, with so many tokens of its own.
    pub fn rest(&mut self, replica: ReplicaId, key: Key, own: u64, since: Time, lingers: bool) {
        self.idle_since = self.idle_since.min(since);
        self.replicas[replica.index()].shadow.rest(key, own, since, lingers);
    }
}
