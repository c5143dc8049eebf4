use std::time::Duration;

use homing::routing::{
    Ask, EngineSpec, Key, Pin, Reading, Route, Router, Settings, Target, Time, auto_spill_threshold,
};

use super::{Arm, Asked, Choice};
use crate::engine::Snapshot;

/// Homing's own router, driven as the proxy drives it.
pub struct Affinity {
    router: Router,
    targets: Vec<Target>,
}

impl Affinity {
    /// The product's defaults: the spill threshold is a quarter of `max_num_seqs`.
    pub fn new(replicas: usize, max_num_seqs: u32) -> Self {
        let settings = Settings {
            affinity: true,
            spill_threshold: auto_spill_threshold(Some(max_num_seqs)),
            idle_forget: Duration::from_secs(30 * 60),
            conversations_max: 8192,
        };
        let engines: Vec<EngineSpec> =
            (0..replicas).map(|index| EngineSpec { name: format!("replica-{index}"), data_parallel_size: 1 }).collect();
        Self { router: Router::new(settings, &engines), targets: Vec::new() }
    }
}

impl Arm for Affinity {
    fn route(&mut self, asked: &Asked) -> Choice {
        // Agents of a session have conversations of their own.
        let key = Key::new(u128::from(asked.session_key) << 64 | asked.turn.conversation as u128);
        let ask = Ask { key: Some(key), pin: Pin::None };
        let Route { target, decision } = self.router.route(&ask, time(asked.now_s)).expect("the router has engines");
        self.targets.resize(self.targets.len().max(target.engine + 1), target);
        self.targets[target.engine] = target;
        Choice { replica: target.engine, decision: Some(decision) }
    }

    fn finish(&mut self, replica: usize) {
        self.router.finish(&self.targets[replica]);
    }

    /// As the product scrapes.
    fn reading_every_s(&self) -> Option<f64> {
        Some(5.0)
    }

    fn read(&mut self, now_s: f64, replicas: &[Snapshot]) {
        for (engine, snapshot) in replicas.iter().enumerate() {
            let reading = Reading {
                running: Some(snapshot.running.into()),
                waiting: Some(snapshot.waiting.into()),
                kv_cache_usage: Some(snapshot.kv_usage),
                prefix_queries: Some(snapshot.prefix_cache.queries),
                prefix_hits: Some(snapshot.prefix_cache.hits),
                prompt_tokens: Some(snapshot.prompt_tokens),
                generation_tokens: Some(snapshot.generation_tokens),
                process_start_s: Some(0.0),
            };
            self.router.read(engine, &[reading], time(now_s));
        }
    }
}

fn time(now_s: f64) -> Time {
    Time((now_s * 1000.0) as u64)
}
