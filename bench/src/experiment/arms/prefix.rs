use std::cmp::Reverse;
use std::num::NonZeroUsize;

use homing::routing::auto_spill_threshold;
use lru::LruCache;

use super::in_flight::InFlight;
use super::{Answer, Arm, Asked, Finished};
use crate::engine::{BlockHash, EngineConfig, Prompt};

/// Blocks of a prompt that a replica must have been sent, as a share, for the prompt to follow them (SGLang router's
/// `cache_threshold`).
const MATCH: f64 = 0.3;

/// The replica that was sent the longest beginning of the prompt, as far as its cache can still have it; of several, the
/// one with the fewest requests in flight. A replica with a quarter of `max_num_seqs` more in flight than another gets
/// nothing: the spill threshold of Homing's rule.
pub struct Prefix {
    in_flight: InFlight,
    sent: Vec<LruCache<BlockHash, ()>>,
    guard: u32,
}

impl Prefix {
    pub fn new(replicas: usize, engine: &EngineConfig) -> Self {
        let blocks = NonZeroUsize::new(engine.num_blocks() as usize).unwrap_or(NonZeroUsize::MIN);
        Self {
            in_flight: InFlight::new(replicas),
            sent: (0..replicas).map(|_| LruCache::new(blocks)).collect(),
            guard: auto_spill_threshold(Some(engine.max_num_seqs)),
        }
    }

    fn matched(&self, replica: usize, prompt: &Prompt) -> usize {
        prompt.block_hashes().iter().take_while(|hash| self.sent[replica].contains(hash)).count()
    }

    fn choose(&mut self, prompt: &Prompt) -> usize {
        let counts = &self.in_flight.counts;
        let least = counts.iter().copied().min().unwrap_or(0);
        let allowed = (0..counts.len()).filter(|replica| counts[*replica] < least + self.guard);
        let best = allowed.map(|replica| (self.matched(replica, prompt), Reverse(counts[replica]), replica)).max();
        match best {
            Some((blocks, _, replica)) if blocks as f64 > MATCH * prompt.block_hashes().len() as f64 => replica,
            _ => self.in_flight.fewest(),
        }
    }
}

impl Arm for Prefix {
    fn route(&mut self, asked: &Asked) -> Answer {
        let replica = self.choose(asked.prompt);
        self.in_flight.counts[replica] += 1;
        // The end of a prompt is evicted first, as in the engine.
        asked.prompt.block_hashes().iter().rev().for_each(|hash| _ = self.sent[replica].put(*hash, ()));
        replica.into()
    }

    fn finish(&mut self, finished: &Finished) {
        self.in_flight.counts[finished.replica] -= 1;
    }
}
