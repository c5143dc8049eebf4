//! Looks for replicas that are not listed, again and again, and gives each model those that were found.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{join_all, pending};
use log::{info, warn};
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::ServiceReadyNotifier;
use pingora::services::background::BackgroundService;
use pingora_load_balancing::discovery::ServiceDiscovery;
use tokio::sync::Notify;

use super::{Model, Scraper, sources};
use crate::config::{Discovery, Replicas};
use crate::live::Current;
use crate::metrics::METRICS;
use crate::panics::rehearse;

/// The longest that one look may take.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Discovers the replicas of every model that has them discovered.
pub struct Discoverer {
    pub live: Current,
    pub scraper: Arc<Scraper>,
    /// Notified when the models or their settings have changed: then all look at once.
    pub changed: Notify,
}

/// A model, and where to look for its replicas.
struct Lookout {
    model: Arc<Model>,
    discovery: Discovery,
    source: Box<dyn ServiceDiscovery + Send + Sync>,
}

/// Why the last look failed; none if it did not. The log says each reason once.
#[derive(Default)]
pub struct Failing(Mutex<Option<String>>);

impl Discoverer {
    fn lookouts(&self) -> Vec<Lookout> {
        let fleet = self.live.load().fleet.clone();
        let lookout = |model: &Arc<Model>| match &model.settings().replicas {
            Replicas::Listed(_) => None,
            Replicas::Discovered(discovery) => {
                let (model, discovery) = (model.clone(), discovery.clone());
                Some(Lookout { model, source: sources::source(&discovery), discovery })
            }
        };
        fleet.models().iter().filter_map(lookout).collect()
    }

    async fn look(&self, lookout: &Lookout) {
        let found = match tokio::time::timeout(LOOK_MAX, sources::engines(lookout.source.as_ref())).await {
            Ok(found) => found,
            Err(_) => Err(format!("no answer within {LOOK_MAX:?}")),
        };
        let Lookout { model, discovery, .. } = lookout;
        match found {
            Ok(engines) => {
                model.failing.note(model.label(), None);
                if let Some(change) = model.discovered(discovery, engines) {
                    info!("model {}: {change}", model.label());
                    self.scraper.begin_round();
                }
            }
            Err(why) => {
                METRICS.discovery_failures.with_label_values(&[model.label()]).inc();
                model.failing.note(model.label(), Some(why));
            }
        }
    }

    async fn watch(&self, lookout: &Lookout) {
        loop {
            tokio::time::sleep(lookout.discovery.every).await;
            self.look(lookout).await;
        }
    }
}

impl Failing {
    fn note(&self, model: &str, why: Option<String>) {
        let mut said = self.0.lock();
        if *said == why {
            return;
        }
        match &why {
            Some(why) => warn!("model {model}: its replicas stay as they are, since looking for them failed: {why}"),
            None => info!("model {model}: looking for its replicas works again"),
        }
        *said = why;
    }
}

/// The discoverer as a service of the server, ready when everything was looked for once, found or not.
pub struct DiscoverService(pub Arc<Discoverer>);

#[async_trait]
impl BackgroundService for DiscoverService {
    async fn start_with_ready_notifier(&self, shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        self.go_on(shutdown, Some(ready)).await;
    }

    async fn start(&self, shutdown: ShutdownWatch) {
        self.go_on(shutdown, None).await;
    }
}

impl DiscoverService {
    async fn go_on(&self, mut shutdown: ShutdownWatch, mut ready: Option<ServiceReadyNotifier>) {
        let discoverer = &self.0;
        loop {
            rehearse("discovery");
            let lookouts = discoverer.lookouts();
            join_all(lookouts.iter().map(|lookout| discoverer.look(lookout))).await;
            if let Some(ready) = ready.take() {
                ready.notify_ready();
            }
            // What is under way when a change comes is dropped: it looks where it looked before.
            let watches = async {
                join_all(lookouts.iter().map(|lookout| discoverer.watch(lookout))).await;
                pending::<()>().await;
            };
            tokio::select! {
                () = watches => {}
                () = discoverer.changed.notified() => {}
                _ = shutdown.changed() => return,
            }
        }
    }
}
