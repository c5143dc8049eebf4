//! Requests in flight that their engine has nothing to do for: a WebSocket on which nobody speaks, an answer that its client does not
//! take. An engine is not to be called hung for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many of those are at one engine.
#[derive(Clone, Default)]
pub struct Resting(Arc<AtomicU32>);

/// One of them, until it is dropped.
pub struct Rest(Resting);

impl Resting {
    pub fn begin(&self) -> Rest {
        self.0.fetch_add(1, Ordering::Relaxed);
        Rest(self.clone())
    }

    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
