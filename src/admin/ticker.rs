use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use crate::fleet::now;
use crate::gone::Gone;
use crate::history::Span;
use crate::live::Current;
use crate::metrics::METRICS;
use crate::panics::rehearse;

/// Closes the buckets of every model's history as time passes, and forgets the series of replicas that are gone.
pub struct HistoryService(pub Current);

#[async_trait]
impl BackgroundService for HistoryService {
    async fn start(&self, _shutdown: ShutdownWatch) {
        let step = Duration::from_secs(Span::Hour.step_s());
        let mut gone = Gone::default();
        loop {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let next = (since_1970.as_secs() / step.as_secs() + 1) * step.as_secs();
            tokio::time::sleep(Duration::from_secs(next).saturating_sub(since_1970)).await;
            rehearse("history");
            let mut present = HashSet::new();
            for model in self.0.load().fleet.models() {
                let snapshot = model.router.lock().snapshot(now());
                model.history.lock().tick(next, snapshot.parked);
                // Where an engine chooses among its ranks, its own name stands for the replica.
                let names = snapshot.replicas.into_iter().flat_map(|replica| [replica.name, replica.engine]);
                present.extend(names.map(|name| (model.label().to_owned(), name)));
            }
            gone.sweep(&METRICS.by_replica(), &present, Instant::now());
        }
    }
}
