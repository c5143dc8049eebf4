use std::collections::BTreeMap;

/// The prompts in flight on a replica that it has yet to read.
#[derive(Default)]
pub(super) struct Queue {
    to_compute: u64,
    /// How many there are of each length.
    lengths: BTreeMap<u64, u32>,
}

/// One of them, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prompt {
    pub length: u64,
    /// Those that should not be in the replica's cache.
    pub to_compute: u64,
}

impl Queue {
    pub fn add(&mut self, prompt: Prompt) {
        self.to_compute += prompt.to_compute;
        *self.lengths.entry(prompt.length).or_default() += 1;
    }

    pub fn remove(&mut self, prompt: Prompt) {
        self.to_compute = self.to_compute.saturating_sub(prompt.to_compute);
        if let Some(count) = self.lengths.get_mut(&prompt.length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prompt.length);
            }
        }
    }

    /// Tokens to compute for all of them.
    pub fn to_compute(&self) -> u64 {
        self.to_compute
    }

    /// Tokens of the longest, whatever of it should be cached.
    pub fn longest(&self) -> u64 {
        self.lengths.keys().last().copied().unwrap_or(0)
    }
}
