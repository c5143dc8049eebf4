use crate::routing::recent::Recent;
use crate::routing::turn::TOKENS_MAX;

/// Tokens a byte of a request before anything is known: JSON around English text and code.
const PER_BYTE_ASSUMED: f64 = 0.3;

/// Tokens that a conversation grows by from one turn to the next before anything is known.
const GROWTH_ASSUMED: f64 = 500.0;

/// How large the conversations of a model are, learned from what its engines report.
pub(super) struct Sizes {
    per_byte: Recent,
    growth: Recent,
    shared: Recent,
    /// What follows from the last: kept, because whoever looks for room asks for it at every replica.
    shared_tokens: u64,
}

impl Sizes {
    pub fn new() -> Sizes {
        Sizes { per_byte: Recent::new(64), growth: Recent::new(64), shared: Recent::new(32), shared_tokens: 0 }
    }

    /// What the last turns showed: tokens a byte, growth, shared prefix.
    pub fn values(&self) -> [Vec<f64>; 3] {
        [self.per_byte.values(), self.growth.values(), self.shared.values()]
    }

    /// Takes it back, as far as it can be true.
    pub fn restore(&mut self, values: &[Vec<f64>; 3]) {
        for (recent, values) in [&mut self.per_byte, &mut self.growth, &mut self.shared].into_iter().zip(values) {
            values
                .iter()
                .filter(|value| (0.0..=TOKENS_MAX as f64).contains(*value))
                .for_each(|value| recent.note(*value));
        }
        self.learn_shared();
    }

    /// A request of so many bytes had so many prompt tokens.
    pub fn note_prompt(&mut self, bytes: u64, tokens: u64) {
        if bytes > 0 && tokens > 0 {
            self.per_byte.note(tokens as f64 / bytes as f64);
        }
    }

    /// A conversation grew by so much from one turn to the next.
    pub fn note_growth(&mut self, tokens: u64) {
        self.growth.note(tokens as f64);
    }

    /// A first turn found so many tokens in a cache that had seen others.
    pub fn note_shared(&mut self, tokens: u64) {
        self.shared.note(tokens as f64);
        self.learn_shared();
    }

    /// The lower quartile: a conversation that comes back with its own prefix in the cache must not pass for what all share.
    fn learn_shared(&mut self) {
        self.shared_tokens = self.shared.quantile(0.25).unwrap_or(0.0) as u64;
    }

    /// Prompt tokens of a request that nothing else is known of. High rather than low: a conversation taken for smaller
    /// than it is costs others their cache, one taken for larger only a little room.
    pub fn of_bytes(&self, bytes: u64) -> u64 {
        let tokens = (bytes as f64 * self.per_byte.quantile(0.9).unwrap_or(PER_BYTE_ASSUMED)) as u64;
        tokens.min(TOKENS_MAX)
    }

    /// What a conversation will have grown by after its next turn.
    pub fn growth(&self) -> u64 {
        self.growth.mean().unwrap_or(GROWTH_ASSUMED) as u64
    }

    /// The prefix that all conversations share.
    pub fn shared(&self) -> u64 {
        self.shared_tokens
    }
}
