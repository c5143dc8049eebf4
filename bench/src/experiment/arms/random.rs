use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{Arm, Asked, Choice};

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
    fn route(&mut self, _: &Asked) -> Choice {
        self.rng.random_range(0..self.replicas).into()
    }
}
