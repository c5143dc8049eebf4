use serde::Serialize;

/// What a model did in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bucket {
    /// Its end, in seconds since 1970; 0 while it fills.
    pub at: u64,
    /// Routed requests that ended.
    pub requests: u64,
    /// Prompt tokens of those: found in a cache, computed, or of an engine that does not say which.
    pub cached_tokens: u64,
    pub computed_tokens: u64,
    pub unmeasured_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Time to the first byte that half of them, or all but one in twenty, did not exceed, in seconds; to 1 %.
    pub first_byte_p50_s: Option<f32>,
    pub first_byte_p95_s: Option<f32>,
    /// The most requests that were seen parked at once, looked at every ten seconds.
    pub parked: u64,
    /// Waits for room that ended.
    pub waits: u64,
    /// The longest of them, in seconds.
    pub longest_wait_s: f32,
}

impl Bucket {
    /// Whether nothing happened in it.
    pub fn is_quiet(&self) -> bool {
        self.requests == 0 && self.parked == 0 && self.waits == 0
    }
}
