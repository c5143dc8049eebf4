use hdrhistogram::Histogram;

use super::{Bucket, Ended};

/// First bytes are told apart from 1 ms to an hour, to two digits.
const FIRST_BYTE_MAX_MS: u64 = 3_600_000;

/// A bucket that fills. A histogram is kept only from the first answer on: most buckets of most models are empty.
#[derive(Default)]
pub(super) struct Filling {
    sums: Bucket,
    first_bytes: Option<Histogram<u32>>,
}

impl Filling {
    pub fn note(&mut self, ended: &Ended) {
        let sums = &mut self.sums;
        if let Some(parked_s) = ended.parked_s {
            sums.waits += 1;
            sums.longest_wait_s = sums.longest_wait_s.max(parked_s as f32);
        }
        if !ended.routed {
            return;
        }
        sums.requests += 1;
        sums.completion_tokens += ended.completion;
        match (ended.prompt, ended.cached) {
            (Some(prompt), Some(cached)) => {
                sums.cached_tokens += cached;
                sums.computed_tokens += prompt.saturating_sub(cached);
            }
            (Some(prompt), None) => sums.unmeasured_tokens += prompt,
            (None, _) => {}
        }
        if let Some(seconds) = ended.first_byte_s {
            self.note_first_byte((seconds * 1000.0) as u64);
        }
    }

    pub fn parked(&mut self, parked: u64) {
        self.sums.parked = self.sums.parked.max(parked);
    }

    /// What it holds, as a bucket.
    pub fn bucket(&self) -> Bucket {
        let quantile = |q| Some(self.first_bytes.as_ref()?.value_at_quantile(q) as f32 / 1000.0);
        Bucket { first_byte_p50_s: quantile(0.5), first_byte_p95_s: quantile(0.95), ..self.sums }
    }

    fn note_first_byte(&mut self, ms: u64) {
        if self.first_bytes.is_none() {
            // These bounds are valid, so there is always one.
            self.first_bytes = Histogram::new_with_bounds(1, FIRST_BYTE_MAX_MS, 2).ok();
        }
        if let Some(first_bytes) = &mut self.first_bytes {
            first_bytes.saturating_record(ms);
        }
    }
}
