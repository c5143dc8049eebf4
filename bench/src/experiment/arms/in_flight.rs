/// Requests in flight on each replica, and whose turn it is when several have the fewest.
pub struct InFlight {
    pub counts: Vec<u32>,
    next: usize,
}

impl InFlight {
    pub fn new(replicas: usize) -> Self {
        Self { counts: vec![0; replicas], next: 0 }
    }

    /// The replica with the fewest requests in flight, ties in turn.
    pub fn fewest(&mut self) -> usize {
        let replicas = self.counts.len();
        let in_turn = (0..replicas).map(|step| (self.next + step) % replicas);
        let fewest = in_turn.min_by_key(|replica| self.counts[*replica]).unwrap_or(0);
        self.next = (fewest + 1) % replicas;
        fewest
    }
}
