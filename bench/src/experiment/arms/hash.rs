use super::{Answer, Arm, Asked};

/// The session's key decides. Keys are random, so what is left of one when it is divided is a hash of it.
pub struct Hash {
    replicas: u64,
}

impl Hash {
    pub fn new(replicas: usize) -> Self {
        Self { replicas: replicas as u64 }
    }
}

impl Arm for Hash {
    fn route(&mut self, asked: &Asked) -> Answer {
        ((asked.session_key % self.replicas) as usize).into()
    }
}
