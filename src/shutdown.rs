//! Ends the process, in good order.

use std::sync::Arc;

use async_trait::async_trait;
use log::{info, warn};
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use crate::live::Current;
use crate::proxy::{AccessLog, Activity};
use crate::state::Keeper;
use crate::traces::Traces;

/// Ends the process once a shutdown has begun and nothing is in flight any more, or the grace period is over.
pub struct Shutdown {
    pub activity: Arc<Activity>,
    pub live: Current,
    /// Locked while the process hands over to another.
    pub handing_over: Arc<Mutex<()>>,
    pub access_log: AccessLog,
    pub traces: Option<Traces>,
    pub keeper: Option<Arc<Keeper>>,
}

impl Shutdown {
    /// Ends when nothing is in flight any more; says why where something still is.
    async fn nothing_in_flight(&self) -> Option<&'static str> {
        // Until a hand-over has ended, it is open whether another process serves from now on.
        drop(self.handing_over.lock().await);
        // After it, what was accepted last has begun to be served by then.
        tokio::time::sleep(self.activity.farewell()).await;
        let grace = self.live.load().server.grace;
        info!("shutting down: requests in flight {}, which have at most {grace:?}", self.activity.requests());
        tokio::select! {
            () = self.activity.idle() => None,
            () = tokio::time::sleep(grace) => Some("the grace period is over"),
        }
    }
}

#[async_trait]
impl BackgroundService for Shutdown {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        if shutdown.wait_for(|begun| *begun).await.is_err() {
            return;
        }
        let why = tokio::select! {
            why = self.nothing_in_flight() => why,
            () = another_signal() => Some("told a second time"),
        };
        match why {
            Some(why) => warn!("{why}: requests cut off {}", self.activity.requests()),
            None => info!("stopped: nothing was cut off"),
        }
        self.access_log.flush();
        self.traces.as_ref().inspect(|traces| traces.flush());
        self.keeper.as_ref().inspect(|keeper| keeper.write());
        std::process::exit(0);
    }
}

/// Ends at the next SIGTERM or SIGINT: whoever sends one during a shutdown does not want to wait.
async fn another_signal() {
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        _ => std::future::pending().await,
    }
}
