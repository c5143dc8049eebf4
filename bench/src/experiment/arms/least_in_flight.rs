use super::in_flight::InFlight;
use super::{Arm, Asked, Choice};

/// The replica with the fewest requests in flight.
pub struct LeastInFlight(InFlight);

impl LeastInFlight {
    pub fn new(replicas: usize) -> Self {
        Self(InFlight::new(replicas))
    }
}

impl Arm for LeastInFlight {
    fn route(&mut self, _: &Asked) -> Choice {
        let replica = self.0.fewest();
        self.0.counts[replica] += 1;
        replica.into()
    }

    fn finish(&mut self, replica: usize) {
        self.0.counts[replica] -= 1;
    }
}
