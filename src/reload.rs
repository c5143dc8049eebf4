//! Re-reads the configuration while the balancer serves.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use log::{error, info, warn};
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, Faults};
use crate::fleet::{Discoverer, Scraper};
use crate::live::Current;
use crate::metrics::METRICS;
use crate::panics::{contained, rehearse};
use crate::proxy::Listeners;
use crate::serve::warn_if_open;

/// Puts a checked configuration in the place of the one that runs.
pub struct Reloader {
    pub path: PathBuf,
    /// The configuration that the process started with: what cannot change without a restart is still this one's.
    pub started: Config,
    pub live: Current,
    pub scraper: Arc<Scraper>,
    pub listeners: Arc<Listeners>,
    pub discoverer: Arc<Discoverer>,
    pub one_at_a_time: Mutex<()>,
}

impl Reloader {
    /// Reads the file again and puts it to use. Returns the settings that differ but wait for a restart.
    ///
    /// # Errors
    /// If the file does not check: then nothing changes.
    pub fn reload(&self) -> Result<Vec<&'static str>, Faults> {
        let _one_at_a_time = self.one_at_a_time.lock();
        rehearse("reload");
        let outcome = Config::load(&self.path);
        METRICS.reloads.with_label_values(&[if outcome.is_ok() { "ok" } else { "refused" }]).inc();
        METRICS.last_reload_successful.set(outcome.is_ok().into());
        let config = outcome.inspect_err(|faults| {
            error!("the configuration was not reloaded, the one before stays in force:\n{faults}");
        })?;
        let needs_restart = self.started.needs_restart(&config);
        for setting in &needs_restart {
            warn!("{setting} has changed in the file: that takes a restart");
        }
        warn_if_open(&config);
        let live = Arc::new(self.live.load().reconfigured(&config));
        self.live.store(live.clone());
        self.listeners.renew(&config.listen);
        self.scraper.configure(live.fleet.clone(), config.scrape);
        self.discoverer.changed.notify_one();
        info!("the configuration was reloaded");
        Ok(needs_restart)
    }

    /// The same, on a thread where reading files holds nobody up.
    ///
    /// # Errors
    /// As [`Reloader::reload`].
    pub async fn reload_aside(self: &Arc<Self>) -> Result<Vec<&'static str>, Faults> {
        let reloader = self.clone();
        match tokio::task::spawn_blocking(move || reloader.reload()).await {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// Has SIGHUP change nothing until the process serves: by itself it would end a process that has yet to heed it, one that waits
/// to take over too.
pub fn ignore_hangups() {
    // SAFETY: no code of ours runs at the signal.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

/// Reloads at each SIGHUP.
pub struct ReloadService(pub Arc<Reloader>);

#[async_trait]
impl BackgroundService for ReloadService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut hangups = match signal(SignalKind::hangup()) {
            Ok(hangups) => hangups,
            Err(error) => return error!("SIGHUP will not reload the configuration: {error}"),
        };
        loop {
            tokio::select! {
                // The outcome is logged and counted where it happens.
                _ = hangups.recv() => drop(contained(self.0.reload_aside()).await),
                _ = shutdown.changed() => return,
            }
        }
    }
}
