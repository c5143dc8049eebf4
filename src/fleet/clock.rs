use std::time::Instant;

use once_cell::sync::Lazy;

use crate::routing::Time;

static START: Lazy<Instant> = Lazy::new(Instant::now);

/// What the clock says at the start, milliseconds (139 years): moments before it, in a process before this one, have a
/// time too.
const BEFORE: u64 = 1 << 42;

/// The present, on the clock that every router of this process is driven by.
pub fn now() -> Time {
    Time(BEFORE + START.elapsed().as_millis() as u64)
}
