//! What a run is summed up to.

use std::collections::HashMap;

use homing::routing::Decision;
use serde::Serialize;

use super::trace::{Trace, TurnRecord};

/// One row of the results. Times are in seconds, ratios from 0 to 1; none where there was nothing to count.
///
/// A wait or a session that is not over at the end counts with its time so far, so that starving some improves nothing. Where sessions
/// are long beside the time measured that is kind to a slow arm, so those that were completed also stand apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub arm: String,
    pub sessions: u32,
    pub seed: u64,
    /// Sessions that ended.
    pub sessions_per_h: f64,
    /// Output tokens of turns that ended, as the published figures count them.
    pub output_tokens_per_min: f64,
    pub ttfb_p50_s: Option<f64>,
    pub ttfb_p95_s: Option<f64>,
    pub ttfb_mean_s: Option<f64>,
    /// Replicas with requests in flight, sampled every second.
    pub replicas_busy: f64,
    /// Cached over prompt tokens of turns that ended.
    pub prefix_hit_ratio: Option<f64>,
    /// What the counters of vLLM 0.26 say, where a request that blocks its queue is counted at every attempt to start it.
    pub prefix_hit_ratio_vllm: Option<f64>,
    /// Sticky over sticky and spilled decisions, for an arm that has them.
    pub stayed_ratio: Option<f64>,
    pub session_mean_s: Option<f64>,
    pub session_p95_s: Option<f64>,
    /// A session's waits for first bytes, added up.
    pub session_wait_mean_s: Option<f64>,
    /// As the three above, of the sessions that ended alone.
    pub completed_mean_s: Option<f64>,
    pub completed_p95_s: Option<f64>,
    pub completed_wait_mean_s: Option<f64>,
}

/// A session in the time measured.
struct Life {
    time_s: f64,
    wait_s: f64,
    completed: bool,
}

impl Row {
    /// Sums up a run of `arm` with so many sessions.
    pub fn of(trace: &Trace, arm: String, sessions: u32, seed: u64) -> Self {
        let measured_s = trace.until_s - trace.from_s;
        let ended: Vec<_> = trace
            .turns
            .iter()
            .filter_map(|turn| turn.ended)
            .filter(|(at_s, _)| trace.measures(*at_s))
            .map(|(_, usage)| usage)
            .collect();
        let sum = |of: fn(&crate::engine::Usage) -> u32| ended.iter().map(|usage| f64::from(of(usage))).sum::<f64>();
        let sessions_ended = trace.sessions_ended.iter().filter(|end| trace.measures(end.at_s)).count();
        let waits = sorted(trace.turns.iter().filter_map(|turn| trace.wait_s(turn)).collect());
        let lives = trace.sessions();
        let (session_times, session_waits) = times_and_waits(lives.iter());
        let (completed_times, completed_waits) = times_and_waits(lives.iter().filter(|life| life.completed));
        let busy: Vec<f64> = trace.busy.iter().copied().map(f64::from).collect();
        Self {
            arm,
            sessions,
            seed,
            sessions_per_h: sessions_ended as f64 * 3600.0 / measured_s,
            output_tokens_per_min: sum(|usage| usage.output_tokens) * 60.0 / measured_s,
            ttfb_p50_s: quantile(&waits, 0.50),
            ttfb_p95_s: quantile(&waits, 0.95),
            ttfb_mean_s: mean(&waits),
            replicas_busy: mean(&busy).unwrap_or(0.0),
            prefix_hit_ratio: ratio(sum(|usage| usage.cached_tokens), sum(|usage| usage.prompt_tokens)),
            prefix_hit_ratio_vllm: ratio(trace.vllm_cache.hits as f64, trace.vllm_cache.queries as f64),
            stayed_ratio: ratio(
                trace.decided(Decision::Sticky),
                trace.decided(Decision::Sticky) + trace.decided(Decision::Spilled),
            ),
            session_mean_s: mean(&session_times),
            session_p95_s: quantile(&session_times, 0.95),
            session_wait_mean_s: mean(&session_waits),
            completed_mean_s: mean(&completed_times),
            completed_p95_s: quantile(&completed_times, 0.95),
            completed_wait_mean_s: mean(&completed_waits),
        }
    }
}

impl Trace {
    fn measures(&self, at_s: f64) -> bool {
        at_s >= self.from_s && at_s <= self.until_s
    }

    /// Turns with this decision that reached the balancer in the time measured.
    fn decided(&self, decision: Decision) -> f64 {
        let decided = |turn: &&TurnRecord| turn.decision == Some(decision) && self.measures(turn.sent_s);
        self.turns.iter().filter(decided).count() as f64
    }

    /// How long a turn waited for its first byte, if that wait was over, or not yet over, in the time measured.
    fn wait_s(&self, turn: &TurnRecord) -> Option<f64> {
        let over_s = turn.first_byte_s.unwrap_or(f64::INFINITY).min(self.until_s);
        self.measures(over_s).then_some(over_s - turn.sent_s)
    }

    /// Each session that ended, or had not yet ended, in the time measured.
    fn sessions(&self) -> Vec<Life> {
        let ends: HashMap<u64, f64> = self.sessions_ended.iter().map(|end| (end.session, end.at_s)).collect();
        // Its first turn begins a session, and they are in the order of their beginnings.
        let mut lives: Vec<(f64, f64, f64)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        for turn in &self.turns {
            let place = *places.entry(turn.id.session).or_insert_with(|| {
                let end_s = ends.get(&turn.id.session).copied().unwrap_or(self.until_s);
                lives.push((turn.sent_s, end_s, 0.0));
                lives.len() - 1
            });
            lives[place].2 += turn.first_byte_s.unwrap_or(f64::INFINITY).min(self.until_s) - turn.sent_s;
        }
        lives
            .into_iter()
            .filter(|(_, end_s, _)| self.measures(*end_s))
            .map(|(begin_s, end_s, wait_s)| Life { time_s: end_s - begin_s, wait_s, completed: end_s < self.until_s })
            .collect()
    }
}

/// The times, sorted, and the waits.
fn times_and_waits<'a>(lives: impl Iterator<Item = &'a Life>) -> (Vec<f64>, Vec<f64>) {
    let (times, waits) = lives.map(|life| (life.time_s, life.wait_s)).unzip();
    (sorted(times), waits)
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then_some(part / whole)
}

/// The arithmetic mean.
pub fn mean(values: &[f64]) -> Option<f64> {
    ratio(values.iter().sum(), values.len() as f64)
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The smallest of the sorted values that a share `q` of them does not exceed.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}
