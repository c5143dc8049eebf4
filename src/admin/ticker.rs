use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use crate::fleet::now;
use crate::history::Span;
use crate::live::Current;
use crate::panics::rehearse;

/// Closes the buckets of every model's history as time passes.
pub struct HistoryService(pub Current);

#[async_trait]
impl BackgroundService for HistoryService {
    async fn start(&self, _shutdown: ShutdownWatch) {
        let step = Duration::from_secs(Span::Hour.step_s());
        loop {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let next = (since_1970.as_secs() / step.as_secs() + 1) * step.as_secs();
            tokio::time::sleep(Duration::from_secs(next).saturating_sub(since_1970)).await;
            rehearse("history");
            for model in self.0.load().fleet.models() {
                let parked = model.router.lock().snapshot(now()).parked;
                model.history.lock().tick(next, parked);
            }
        }
    }
}
