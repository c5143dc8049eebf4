use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Things to come, by their time in seconds; at the same time, in the order in which they were put in.
pub struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    pushed: u64,
}

struct Entry<T> {
    at_s: f64,
    order: u64,
    item: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0 }
    }
}

impl<T> Queue<T> {
    /// Puts in what is to come at `at_s`.
    pub fn push(&mut self, at_s: f64, item: T) {
        self.heap.push(Reverse(Entry { at_s, order: self.pushed, item }));
        self.pushed += 1;
    }

    /// When the next one comes.
    pub fn next_s(&self) -> Option<f64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_s)
    }

    /// Takes the next one out, with its time.
    pub fn pop(&mut self) -> Option<(f64, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at_s, entry.item))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_s.total_cmp(&other.at_s).then(self.order.cmp(&other.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}
