//! Whether an engine does anything for those who wait for it.
//!
//! A vLLM whose core is stopped or stuck goes on answering `/health` and `/metrics` with 200, takes requests, and even sends the
//! header of a stream. What it does not do is generate. So only this is a sign of life: an event of an answer, or a change in what
//! the core says of itself in the metrics. Old values repeated are none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::now;
use super::vllm_metrics::EngineMetrics;
use crate::routing::Time;

/// What is known of an engine's life.
#[derive(Default)]
pub struct Life {
    /// When it last showed a sign, in milliseconds of [`now`].
    sign_ms: AtomicU64,
    said: Mutex<Said>,
    /// Since when it counts as hung.
    hung: watch::Sender<Option<Time>>,
}

/// What checks have seen.
#[derive(Default)]
struct Said {
    metrics: Option<EngineMetrics>,
    /// Since when every check has found it with something to do.
    busy_since: Option<Time>,
}

impl Life {
    /// Notes a sign of life.
    pub fn sign(&self) {
        self.sign_ms.fetch_max(now().0, Ordering::Relaxed);
    }

    /// When there was the last one.
    pub fn last_sign(&self) -> Time {
        Time(self.sign_ms.load(Ordering::Relaxed))
    }

    /// Takes what its metrics say: whatever has changed in them is a sign.
    pub(super) fn read(&self, metrics: EngineMetrics) {
        let before = self.said.lock().metrics.replace(metrics.clone());
        if before.is_some_and(|before| before != metrics) {
            self.sign();
        }
    }

    /// Looks at it; `busy`: it has something to do. Returns how long it has done nothing at all.
    pub(super) fn silence(&self, busy: bool) -> Duration {
        let mut said = self.said.lock();
        said.busy_since = busy.then(|| said.busy_since.unwrap_or(now()));
        said.busy_since.map_or(Duration::ZERO, |since| now().since(since.max(self.last_sign())))
    }

    /// Whether its metrics tell anything: without them, a long answer cannot be told from a hang.
    pub(super) fn tells(&self) -> bool {
        self.said.lock().metrics.is_some()
    }

    /// Whether it counts as hung.
    pub fn is_hung(&self) -> bool {
        self.hung.borrow().is_some()
    }

    /// Whether it counts as hung and has shown a sign of life since.
    pub(super) fn has_revived(&self) -> bool {
        self.hung.borrow().is_some_and(|since| self.last_sign() > since)
    }

    pub(super) fn set_hung(&self, hung: bool) {
        self.hung.send_replace(hung.then(now));
    }

    /// Ends when it does not count as hung any more, or does so anew.
    pub(super) fn hung_no_more(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut hung = self.hung.subscribe();
        async move {
            // An engine that is gone asks for nothing either.
            let _ = hung.changed().await;
        }
    }
}
