use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Requests being served, so that a shutdown can wait for the last of them.
#[derive(Default)]
pub struct Activity {
    requests: AtomicUsize,
    idle: Notify,
}

/// One request in [`Activity`], until it is dropped.
pub struct Busy(Arc<Activity>);

impl Activity {
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.requests.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
    }

    /// Requests being served now.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Ends when no request is being served.
    pub async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.requests() == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.requests.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
