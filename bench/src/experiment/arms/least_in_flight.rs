use super::in_flight::InFlight;
use super::{Answer, Arm, Asked, Finished};

/// The replica with the fewest requests in flight.
pub struct LeastInFlight(InFlight);

impl LeastInFlight {
    pub fn new(replicas: usize) -> Self {
        Self(InFlight::new(replicas))
    }
}

impl Arm for LeastInFlight {
    fn route(&mut self, _: &Asked) -> Answer {
        let replica = self.0.fewest();
        self.0.counts[replica] += 1;
        replica.into()
    }

    fn finish(&mut self, finished: &Finished) {
        self.0.counts[finished.replica] -= 1;
    }
}
