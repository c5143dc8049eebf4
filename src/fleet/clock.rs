use std::time::Instant;

use once_cell::sync::Lazy;

use crate::routing::Time;

static START: Lazy<Instant> = Lazy::new(Instant::now);

/// The present, on the clock that every router of this process is driven by.
pub fn now() -> Time {
    Time(START.elapsed().as_millis() as u64)
}
