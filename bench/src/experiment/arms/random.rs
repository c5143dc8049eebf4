use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{Answer, Arm, Asked};

/// Draws lots.
pub struct Random {
    replicas: usize,
    rng: Pcg64,
}

impl Random {
    pub fn new(replicas: usize, seed: u64) -> Self {
        Self { replicas, rng: Pcg64::seed_from_u64(seed) }
    }
}

impl Arm for Random {
    fn route(&mut self, _: &Asked) -> Answer {
        self.rng.random_range(0..self.replicas).into()
    }
}
