use std::ops::RangeInclusive;

use crate::routing::ReplicaId;

/// Prompt tokens a second that a replica reads before anything is known of it.
const RATE_ASSUMED: f64 = 5_000.0;

/// Turns that computed fewer tokens say more of the network than of the replica.
const TOKENS_MIN: u64 = 512;

/// The weight of the newest turn in the mean.
const NEWEST: f64 = 0.1;

/// What can be true of a rate.
const RATES: RangeInclusive<f64> = 1.0..=1e9;

/// A replica counts as this many times slower or faster than the others at most.
const RATIO_MAX: f64 = 4.0;

/// How fast each replica reads prompts, learned from its times to first byte. What it generates meanwhile is in it, so
/// this is what a newcomer has to expect, not what the hardware could do.
#[derive(Default)]
pub(super) struct Speeds {
    replicas: Vec<Option<f64>>,
    model: Option<f64>,
}

impl Speeds {
    /// `tokens` were computed, in `seconds`, before the first byte of an answer of `replica`.
    pub fn note(&mut self, replica: ReplicaId, tokens: u64, seconds: f64) {
        if tokens < TOKENS_MIN || seconds <= 0.0 {
            return;
        }
        let rate = tokens as f64 / seconds;
        if self.replicas.len() <= replica.index() {
            self.replicas.resize(replica.index() + 1, None);
        }
        for mean in [&mut self.replicas[replica.index()], &mut self.model] {
            *mean = Some(mean.map_or(rate, |mean| mean + NEWEST * (rate - mean)));
        }
    }

    /// Prompt tokens a second that a replica was seen to read.
    pub fn of(&self, replica: ReplicaId) -> Option<f64> {
        self.replicas.get(replica.index()).copied().flatten()
    }

    /// The same over all replicas, if any was seen.
    pub fn of_model(&self) -> Option<f64> {
        self.model
    }

    /// Takes back what was seen before.
    pub fn restore(&mut self, replica: ReplicaId, rate: Option<f64>) {
        self.replicas.resize(self.replicas.len().max(replica.index() + 1), None);
        self.replicas[replica.index()] = rate.filter(|rate| RATES.contains(rate));
    }

    /// As [`Speeds::restore`], over all replicas.
    pub fn restore_model(&mut self, rate: Option<f64>) {
        self.model = rate.filter(|rate| RATES.contains(rate));
    }

    /// Prompt tokens a second over all replicas.
    pub fn rate(&self) -> f64 {
        self.model.unwrap_or(RATE_ASSUMED)
    }

    /// How many times longer than on the others everything takes on `replica`.
    pub fn slowness(&self, replica: ReplicaId) -> f64 {
        self.of(replica).map_or(1.0, |own| (self.rate() / own).clamp(1.0 / RATIO_MAX, RATIO_MAX))
    }

    /// Nothing is known of a replica any more.
    pub fn forget(&mut self, replica: ReplicaId) {
        if let Some(rate) = self.replicas.get_mut(replica.index()) {
            *rate = None;
        }
    }
}
