//! What a rank counts besides its engine: the histograms of `/metrics`.

use crate::engine::{FinishReason, Snapshot, Timeline, Usage};

const TOKENS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4];
const STEP_TOKENS: &[f64] = &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const REQUEST_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const TOKEN_SECONDS: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];

/// A histogram with vLLM's bounds.
#[derive(Clone)]
pub struct Histogram {
    pub bounds: &'static [f64],
    /// Observations in each bucket alone; the last is above every bound.
    pub counts: Vec<u64>,
    pub sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub fn observe(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum += value;
    }
}

/// The figures of one rank since its process started.
#[derive(Clone)]
pub struct Stats {
    pub engine: Snapshot,
    pub stopped: u64,
    pub length: u64,
    pub aborted: u64,
    pub prompt_tokens: Histogram,
    pub generation_tokens: Histogram,
    pub max_tokens: Histogram,
    pub computed_tokens: Histogram,
    pub preemptions: Histogram,
    pub step_tokens: Histogram,
    pub first_token_s: Histogram,
    pub inter_token_s: Histogram,
    pub time_per_token_s: Histogram,
    pub e2e_s: Histogram,
    pub queue_s: Histogram,
    pub inference_s: Histogram,
    pub prefill_s: Histogram,
    pub decode_s: Histogram,
}

impl Stats {
    pub fn new() -> Self {
        Self {
            engine: Snapshot::default(),
            stopped: 0,
            length: 0,
            aborted: 0,
            prompt_tokens: Histogram::new(TOKENS),
            generation_tokens: Histogram::new(TOKENS),
            max_tokens: Histogram::new(TOKENS),
            computed_tokens: Histogram::new(TOKENS),
            preemptions: Histogram::new(PREEMPTIONS),
            step_tokens: Histogram::new(STEP_TOKENS),
            first_token_s: Histogram::new(FIRST_TOKEN_SECONDS),
            inter_token_s: Histogram::new(TOKEN_SECONDS),
            time_per_token_s: Histogram::new(TOKEN_SECONDS),
            e2e_s: Histogram::new(REQUEST_SECONDS),
            queue_s: Histogram::new(REQUEST_SECONDS),
            inference_s: Histogram::new(REQUEST_SECONDS),
            prefill_s: Histogram::new(REQUEST_SECONDS),
            decode_s: Histogram::new(REQUEST_SECONDS),
        }
    }

    /// Counts a request that ran to its end.
    pub fn finished(&mut self, reason: FinishReason, usage: &Usage, times: &Timeline, max_tokens: u32) {
        match reason {
            FinishReason::Stop => self.stopped += 1,
            FinishReason::Length => self.length += 1,
        }
        self.prompt_tokens.observe(usage.prompt_tokens.into());
        self.generation_tokens.observe(usage.output_tokens.into());
        self.max_tokens.observe(max_tokens.into());
        self.computed_tokens.observe((usage.prompt_tokens - usage.cached_tokens).into());
        self.preemptions.observe(usage.preemptions.into());
        let decode_s = times.finished_s - times.first_token_s;
        self.e2e_s.observe(times.finished_s - times.submitted_s);
        self.queue_s.observe(times.scheduled_s - times.submitted_s);
        self.inference_s.observe(times.finished_s - times.scheduled_s);
        self.prefill_s.observe(times.first_token_s - times.scheduled_s);
        self.decode_s.observe(decode_s);
        if usage.output_tokens > 1 {
            self.time_per_token_s.observe(decode_s / f64::from(usage.output_tokens - 1));
        }
    }
}
