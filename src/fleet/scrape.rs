use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use log::{info, warn};
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use pingora::{Error, ErrorType, Result};
use tokio::sync::Notify;

use super::vllm_metrics::{self, EngineMetrics};
use super::{Engine, Fetcher, Fleet, Model, now, revive};
use crate::config::Scrape;
use crate::panics::rehearse;
use crate::routing::Reading;

/// Reads every engine's metrics and health in the background, never on the path of a request.
pub struct Scraper {
    task: ArcSwap<Task>,
    fetcher: Arc<Fetcher>,
    /// Notified when there may be a new engine, so that it is checked at once.
    changed: Notify,
}

/// Whom to read, and how.
struct Task {
    fleet: Arc<Fleet>,
    settings: Scrape,
}

impl Scraper {
    /// A scraper of `fleet`.
    pub fn new(fleet: Arc<Fleet>, settings: Scrape) -> Scraper {
        let task = ArcSwap::from_pointee(Task { fleet, settings });
        Scraper { task, fetcher: Arc::default(), changed: Notify::new() }
    }

    /// Takes another fleet and other settings, and begins a round at once.
    pub fn configure(&self, fleet: Arc<Fleet>, settings: Scrape) {
        self.task.store(Arc::new(Task { fleet, settings }));
        self.begin_round();
    }

    /// Begins a round at once, in which engines that are new are read.
    pub fn begin_round(&self) {
        self.changed.notify_one();
    }

    fn round(self: &Arc<Self>) {
        let task = self.task.load();
        let spread = task.settings.interval / 5;
        for model in task.fleet.models() {
            model.tell();
            for (index, engine) in model.engines() {
                let Some(check) = engine.begin_check() else { continue };
                let delay = if engine.answered() { jitter(spread) } else { Duration::ZERO };
                let (scraper, model) = (self.clone(), model.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    scraper.check(&model, index, &engine).await;
                    drop(check);
                });
            }
        }
    }

    async fn check(&self, model: &Arc<Model>, index: usize, engine: &Arc<Engine>) {
        if let Err(error) = engine.resolve().await {
            warn!("{}: {error}", engine.name);
        }
        let timeout = self.task.load().settings.timeout;
        let (scraped, probed) = tokio::join!(self.scrape(model, index, engine), self.fetcher.probe(engine, timeout));
        let outcome = scraped.and(probed);
        if let Some(up) = engine.checked(outcome.is_ok()) {
            let detail = outcome.err().map(|error| why(&error)).unwrap_or_default();
            model.learn(index, engine, &detail, |router| router.set_up(index, up));
        }
        revive::judge(&self.fetcher, model, index, engine);
    }

    /// Reads the metrics. An engine that serves none is only without readings, not out of order.
    async fn scrape(&self, model: &Arc<Model>, index: usize, engine: &Arc<Engine>) -> Result<()> {
        let (timeout, max_bytes) = {
            let settings = &self.task.load().settings;
            (settings.timeout, settings.max_bytes)
        };
        let answer = self.fetcher.get(engine, "/metrics", None, timeout, max_bytes).await?;
        if answer.status.is_server_error() {
            return Error::e_explain(ErrorType::HTTPStatus(answer.status.as_u16()), "reading /metrics");
        }
        if !answer.status.is_success() {
            return Ok(());
        }
        let metrics = vllm_metrics::parse(&String::from_utf8_lossy(&answer.body));
        if !metrics.is_vllm() {
            log::debug!("{}: its /metrics has no series of vLLM", engine.name);
            return Ok(());
        }
        let restarted = model.note_of(index, engine, |router| router.read(index, &readings(&metrics), now()));
        if restarted == Some(true) {
            model.wake();
            info!("replica {} has restarted: its conversations are placed anew", engine.name);
        }
        model.learn(index, engine, "", |router| router.set_asleep(index, metrics.sleeps()));
        engine.life.read(metrics);
        Ok(())
    }
}

/// What was wrong, in few words. Of a certificate that is not believed there is more to say.
fn why(error: &Error) -> String {
    match (error.etype(), &error.context) {
        (kind @ ErrorType::TLSHandshakeFailure, Some(context)) => {
            let (_, cause) = context.as_str().rsplit_once("cause: ").unwrap_or(("", context.as_str()));
            format!("{kind:?}, {cause}")
        }
        (kind, _) => format!("{kind:?}"),
    }
}

/// One reading for each rank, in their order; a rank that the metrics leave out has an empty one.
fn readings(metrics: &EngineMetrics) -> Vec<Reading> {
    let ranks = metrics.ranks.keys().last().map_or(0, |last| last + 1);
    let reading = |rank| {
        let said = metrics.ranks.get(&rank).cloned().unwrap_or_default();
        Reading {
            running: said.running,
            waiting: said.waiting,
            kv_cache_usage: said.kv_cache_usage,
            prefix_queries: said.prefix_queries,
            prefix_hits: said.prefix_hits,
            prompt_tokens: said.prompt_tokens,
            generation_tokens: said.generation_tokens,
            capacity_tokens: said.capacity_tokens,
            process_start_s: metrics.process_start_s,
        }
    };
    (0..ranks).map(reading).collect()
}

/// A random part of `spread`, so that the engines are not all asked at once.
fn jitter(spread: Duration) -> Duration {
    spread.mul_f64(f64::from(RandomState::new().hash_one(0) as u32) / f64::from(u32::MAX))
}

/// The scraper as a service of the server.
pub struct ScrapeService(pub Arc<Scraper>);

#[async_trait]
impl BackgroundService for ScrapeService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        loop {
            rehearse("scrape");
            self.0.round();
            let interval = self.0.task.load().settings.interval;
            tokio::select! {
                _ = tokio::time::sleep(interval) => {}
                _ = self.0.changed.notified() => {}
                _ = shutdown.changed() => return,
            }
        }
    }
}
