use std::time::Duration;

use super::queue::Queue;
use crate::routing::Time;

/// The weight of the newest admission in the mean time between two.
const NEWEST: f64 = 0.1;

/// Those who wait, and what became of them.
pub struct Line {
    pub(super) queue: Queue,
    pub(super) counts: AdmissionCounts,
    admitted: Option<Time>,
    /// Mean seconds between two admissions.
    pace_s: Option<f64>,
}

/// What admission has done since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionCounts {
    /// Requests that had to wait.
    pub parked: u64,
    /// Of those, the ones that went on to a replica.
    pub admitted: u64,
    /// Of those, the ones whose client left.
    pub left: u64,
    /// Refused after the longest wait.
    pub overdue: u64,
    /// Refused at once because too many waited.
    pub full: u64,
    /// Sent on after the longest wait, beyond what the caches can hold.
    pub forced: u64,
    /// With [`AdmissionMode::Observe`](crate::routing::AdmissionMode::Observe), requests that would have had to wait.
    pub would_park: u64,
    /// Places in the line that were given up because too many were kept.
    pub places_dropped: u64,
}

impl Line {
    pub fn new() -> Line {
        Line { queue: Queue::new(), counts: AdmissionCounts::default(), admitted: None, pace_s: None }
    }

    pub fn parked(&self) -> usize {
        self.queue.len()
    }

    pub fn longest_wait(&self, now: Time) -> Duration {
        self.queue.longest_wait(now)
    }

    pub fn counts(&self) -> AdmissionCounts {
        AdmissionCounts { places_dropped: self.queue.dropped(), ..self.counts }
    }

    pub(super) fn note_admission(&mut self, now: Time) {
        if let Some(before) = self.admitted.replace(now) {
            let gap_s = now.since(before).as_secs_f64();
            self.pace_s = Some(self.pace_s.map_or(gap_s, |mean| mean + NEWEST * (gap_s - mean)));
        }
    }

    /// When the line will have moved on by its own length, at the pace of late.
    pub(super) fn retry_after_s(&self, max_wait: Duration) -> u64 {
        let line_s = self.pace_s.unwrap_or(1.0) * self.queue.len() as f64;
        (line_s.ceil() as u64).clamp(1, max_wait.as_secs().max(1))
    }
}
