use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// What a shutdown waits for: requests being served, and connections that may hold an answer back.
#[derive(Default)]
pub struct Activity {
    requests: AtomicUsize,
    connections: AtomicUsize,
    idle: Notify,
    lingers: AtomicBool,
}

/// How long a connection without a request is still served after another process has taken over: whoever was about to
/// send one is told to connect anew with its answer.
const FAREWELL: Duration = Duration::from_secs(2);

/// One request in [`Activity`], until it is dropped.
pub struct Busy(Arc<Activity>);

/// One connection in [`Activity`], until it is dropped.
pub struct Held(Arc<Activity>);

impl Activity {
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.requests.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
    }

    /// For a connection on which a request may have ended before its answer has left.
    pub fn hold(self: &Arc<Self>) -> Held {
        self.connections.fetch_add(1, Ordering::AcqRel);
        Held(self.clone())
    }

    /// Another process takes new connections from now on: no client is to notice.
    pub fn linger(&self) {
        self.lingers.store(true, Ordering::Release);
    }

    /// How long a connection without a request is still served once the process is to end.
    pub fn farewell(&self) -> Duration {
        if self.lingers.load(Ordering::Acquire) { FAREWELL } else { Duration::ZERO }
    }

    /// Requests being served now.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Ends when no request is being served and no connection is held.
    pub async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.requests() == 0 && self.connections.load(Ordering::Acquire) == 0 {
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

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.connections.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
