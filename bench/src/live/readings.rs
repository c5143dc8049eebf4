//! What the engines say of themselves, read for an arm as a balancer would.

use std::time::Duration;

use futures::future::join_all;
use homing::fleet::vllm_metrics::{self, RankMetrics};

use super::pace::Clock;
use super::request::Target;
use super::via::Via;
use crate::engine::{CacheCounters, Snapshot};

/// An engine that says nothing for this long is left at what it said last.
const READING_MAX: Duration = Duration::from_secs(2);
/// Timers are no finer.
const EVERY_MIN: Duration = Duration::from_millis(1);

/// Reads the engines for the arm until this is dropped; ends at once where there is no arm, or one that does without.
pub async fn read_on(via: Via, client: reqwest::Client, clock: Clock) {
    let Via::Arm(chooser) = via else { return };
    let Some(every_s) = chooser.reading_every_s() else { return };
    let mut said = vec![Snapshot::default(); chooser.engines.len()];
    let mut due = tokio::time::interval(clock.real(every_s).max(EVERY_MIN));
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let readings = join_all(chooser.engines.iter().map(|engine| read(&client, engine))).await;
        for (said, reading) in said.iter_mut().zip(readings) {
            *said = reading.unwrap_or(*said);
        }
        chooser.read(clock.now_s(), &said);
    }
}

async fn read(client: &reqwest::Client, engine: &Target) -> Option<Snapshot> {
    let request = client.get(format!("{}/metrics", engine.url)).timeout(READING_MAX);
    let page = request.send().await.ok()?.text().await.ok()?;
    vllm_metrics::parse(&page).ranks.first_key_value().map(|(_, rank)| snapshot(rank))
}

/// What vLLM does not publish stays 0: a balancer cannot go by it.
fn snapshot(rank: &RankMetrics) -> Snapshot {
    let number = |count: Option<u64>| u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX);
    Snapshot {
        running: number(rank.running),
        waiting: number(rank.waiting),
        kv_usage: rank.kv_cache_usage.unwrap_or(0.0),
        prefix_cache: CacheCounters { queries: rank.prefix_queries.unwrap_or(0), hits: rank.prefix_hits.unwrap_or(0) },
        prompt_tokens: rank.prompt_tokens.unwrap_or(0),
        generation_tokens: rank.generation_tokens.unwrap_or(0),
        preemptions: rank.preemptions.unwrap_or(0),
        ..Snapshot::default()
    }
}
