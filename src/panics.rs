//! Panics: each ends what it happened in and nothing else, is counted, and is told of without its words, which may hold a
//! piece of a request.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use log::error;
use pingora::server::ShutdownWatch;
use pingora::services::ServiceReadyNotifier;
use pingora::services::background::BackgroundService;

use crate::metrics::METRICS;

thread_local! {
    /// Where this thread panicked last.
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Has every panic of the process counted, and logged by its place alone.
pub fn watch() {
    set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        METRICS.panics.inc();
        let place = panic.location().map_or_else(|| "an unknown place".into(), ToString::to_string);
        error!("a panic at {place}");
        PLACE.set(Some(place));
    }));
}

/// That something panicked.
#[derive(Debug)]
pub struct Panicked {
    place: Option<String>,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended by the panic at {}", self.place.as_deref().unwrap_or("an unknown place"))
    }
}

/// What `work` comes to, if it does not panic. What it had half changed is to be dropped, or not to matter.
///
/// # Errors
/// If it panicked.
pub async fn contained<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| Panicked { place: PLACE.take() })
}

/// As [`contained`], for what is done at once.
///
/// # Errors
/// If it panicked.
pub fn contained_now<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked { place: PLACE.take() })
}

/// How long a service rests after a panic: one that panics at once again is not to take a core.
const REST: Duration = Duration::from_secs(1);

/// A service of the background that begins anew after a panic.
pub struct Lasting<S>(pub S);

impl<S: BackgroundService + Send + Sync> Lasting<S> {
    async fn go_on(&self, shutdown: ShutdownWatch) {
        while contained(self.0.start(shutdown.clone())).await.is_err() {
            tokio::time::sleep(REST).await;
        }
    }
}

#[async_trait]
impl<S: BackgroundService + Send + Sync> BackgroundService for Lasting<S> {
    async fn start_with_ready_notifier(&self, shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        if contained(self.0.start_with_ready_notifier(shutdown.clone(), ready)).await.is_err() {
            tokio::time::sleep(REST).await;
            self.go_on(shutdown).await;
        }
    }

    async fn start(&self, shutdown: ShutdownWatch) {
        self.go_on(shutdown).await;
    }
}

/// In a debug build, panics once for each time that `HOMING_REHEARSE_PANIC` names the place, with words that must not come
/// out: so the tests see from outside where a panic ends. A release build knows nothing of it.
#[cfg(debug_assertions)]
pub fn rehearse(place: &str) {
    use once_cell::sync::Lazy;
    use parking_lot::Mutex;

    static DUE: Lazy<Mutex<Vec<String>>> = Lazy::new(|| {
        let places = std::env::var("HOMING_REHEARSE_PANIC").unwrap_or_default();
        Mutex::new(places.split(',').map(str::to_owned).collect())
    });
    let mut due = DUE.lock();
    if let Some(index) = due.iter().position(|due| due == place) {
        due.remove(index);
        drop(due);
        panic!("rehearsed, with m4rker");
    }
}

#[cfg(not(debug_assertions))]
pub fn rehearse(_place: &str) {}
