use std::collections::VecDeque;

/// The last few values of something, and where most of them lie.
pub(super) struct Recent {
    kept: usize,
    values: VecDeque<f64>,
    /// In order, as of a few values ago; and the mean of these.
    sorted: Vec<f64>,
    mean: Option<f64>,
    since_sorted: usize,
}

impl Recent {
    /// Keeps the last `kept` values.
    pub fn new(kept: usize) -> Recent {
        let (values, sorted) = (VecDeque::with_capacity(kept), Vec::with_capacity(kept));
        Recent { kept, values, sorted, mean: None, since_sorted: 0 }
    }

    /// Notes a value. Those that are no number are left out.
    pub fn note(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.values.len() == self.kept {
            self.values.pop_front();
        }
        self.values.push_back(value);
        self.since_sorted += 1;
        // Sorting at every value would cost a turn more than all the rest of it.
        if self.since_sorted * 8 >= self.values.len() {
            self.sorted.clear();
            self.sorted.extend(&self.values);
            self.sorted.sort_unstable_by(f64::total_cmp);
            self.mean = Some(self.sorted.iter().sum::<f64>() / self.sorted.len() as f64);
            self.since_sorted = 0;
        }
    }

    /// What is kept, the oldest first.
    pub fn values(&self) -> Vec<f64> {
        self.values.iter().copied().collect()
    }

    /// The value that a share `q` (0 to 1) of them does not exceed; none before the first.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.sorted.len().checked_sub(1)?;
        self.sorted.get((q * last as f64).round() as usize).copied()
    }

    /// Their mean; none before the first.
    pub fn mean(&self) -> Option<f64> {
        self.mean
    }
}
