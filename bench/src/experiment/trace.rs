use homing::routing::Decision;

use crate::engine::{CacheCounters, Usage};
use crate::load::TurnId;

/// What happened in one run, by the client's clock.
#[derive(Debug, Default)]
pub struct Trace {
    /// Measuring began.
    pub from_s: f64,
    /// Measuring ended, and the run with it.
    pub until_s: f64,
    /// In the order in which they were sent.
    pub turns: Vec<TurnRecord>,
    pub sessions_ended: Vec<SessionEnd>,
    /// Replicas with requests in flight, every second from `from_s` on.
    pub busy: Vec<u32>,
    /// What vLLM 0.26 would have counted from `from_s` on.
    pub vllm_cache: CacheCounters,
}

/// One turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnRecord {
    pub id: TurnId,
    pub replica: usize,
    /// Why it went there, for an arm that says so.
    pub decision: Option<Decision>,
    pub sent_s: f64,
    pub first_byte_s: Option<f64>,
    /// None while it runs.
    pub ended: Option<(f64, Usage)>,
}

/// The end of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionEnd {
    pub session: u64,
    pub at_s: f64,
}
