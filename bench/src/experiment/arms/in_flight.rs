/// Requests in flight on each replica, and whose turn it is when several have the fewest.
pub struct InFlight {
    pub counts: Vec<u32>,
    next: usize,
}

impl InFlight {
    pub fn new(replicas: usize) -> Self {
        Self { counts: vec![0; replicas], next: 0 }
    }

    /// The replica with the least `load`, ties in turn.
    pub fn least(&mut self, load: impl Fn(usize) -> f64) -> usize {
        let replicas = self.counts.len();
        let in_turn = (0..replicas).map(|step| (self.next + step) % replicas);
        let least = in_turn.min_by(|a, b| load(*a).total_cmp(&load(*b))).unwrap_or(0);
        self.next = (least + 1) % replicas;
        least
    }

    /// The replica with the fewest requests in flight, ties in turn.
    pub fn fewest(&mut self) -> usize {
        let counts = self.counts.clone();
        self.least(|replica| f64::from(counts[replica]))
    }
}
