use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::METRICS;

/// The bytes of request bodies held at this moment, over all requests, under one limit.
#[derive(Default)]
pub struct Buffered {
    bytes: AtomicU64,
}

/// One request's part of [`Buffered`], given back when dropped.
pub struct Reservation {
    all: Arc<Buffered>,
    bytes: u64,
}

impl Reservation {
    /// A part of nothing yet.
    pub fn new(all: &Arc<Buffered>) -> Reservation {
        Reservation { all: all.clone(), bytes: 0 }
    }

    /// Takes `bytes` more. False, and nothing is taken, if that would be over `bytes_max` in all.
    pub fn grow(&mut self, bytes: u64, bytes_max: u64) -> bool {
        let add = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= bytes_max);
        let taken = self.all.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if taken {
            self.bytes += bytes;
            METRICS.buffered_bytes.add(bytes as i64);
        }
        taken
    }

    /// Gives everything back.
    pub fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
        METRICS.buffered_bytes.sub(bytes as i64);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}
