use super::{Answer, Arm, Asked, Finished};
use crate::engine::{Snapshot, load_since_0_27, load_until_0_26};

/// vLLM's own data-parallel balancer with one API server. It goes by what the engines said when the coordinator last
/// published it, and adds what it has sent since.
pub struct Off {
    counts: Vec<Snapshot>,
    in_flight: Vec<u32>,
    since_0_27: bool,
    /// Where the search for the least loaded begins, and so who wins a tie.
    start: usize,
}

impl Off {
    /// Ties go to the first.
    pub fn until_0_26(replicas: usize) -> Self {
        Self { counts: vec![Snapshot::default(); replicas], in_flight: vec![0; replicas], since_0_27: false, start: 0 }
    }

    /// Ties go round.
    pub fn since_0_27(replicas: usize) -> Self {
        Self { since_0_27: true, ..Self::until_0_26(replicas) }
    }

    fn load(&self, replica: usize) -> f64 {
        if self.since_0_27 {
            load_since_0_27(&self.counts[replica], self.in_flight[replica])
        } else {
            load_until_0_26(&self.counts[replica])
        }
    }
}

impl Arm for Off {
    fn route(&mut self, _: &Asked) -> Answer {
        let replicas = self.counts.len();
        let in_order = (0..replicas).map(|step| (self.start + step) % replicas);
        let least = in_order.min_by(|a, b| self.load(*a).total_cmp(&self.load(*b))).unwrap_or(0);
        self.counts[least].waiting += 1;
        self.in_flight[least] += 1;
        if self.since_0_27 {
            self.start = (self.start + 1) % replicas;
        }
        least.into()
    }

    fn finish(&mut self, finished: &Finished) {
        self.in_flight[finished.replica] -= 1;
    }

    /// vLLM's coordinator publishes at most every 100 ms (`stats_update_interval_ms`).
    fn reading_every_s(&self) -> Option<f64> {
        Some(0.1)
    }

    fn read(&mut self, _: f64, replicas: &[Snapshot]) {
        self.counts.copy_from_slice(replicas);
    }
}
