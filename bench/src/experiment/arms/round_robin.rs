use super::{Answer, Arm, Asked};

/// One replica after the other.
pub struct RoundRobin {
    replicas: usize,
    next: usize,
}

impl RoundRobin {
    pub fn new(replicas: usize) -> Self {
        Self { replicas, next: 0 }
    }
}

impl Arm for RoundRobin {
    fn route(&mut self, _: &Asked) -> Answer {
        let replica = self.next;
        self.next = (replica + 1) % self.replicas;
        replica.into()
    }
}
