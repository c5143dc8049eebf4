use std::collections::HashMap;
use std::time::Duration;

use homing::routing::{
    Admission, Ask, EngineSpec, Key, Reading, Recovery, Router, Settings, Ticket, Time, Tokens, Turn, Verdict,
    auto_spill_threshold,
};

use super::{Answer, Arm, Asked, Before, Choice, Finished};
use crate::engine::{RequestId, Snapshot, Usage};

/// Bytes of a request to a token of its prompt, from the leanest conversation to the wordiest: English in JSON has 4.
const BYTES_PER_TOKEN: std::ops::Range<f64> = 3.4..4.6;

/// Homing's own router, driven as the proxy drives it.
pub struct HomingRouter {
    router: Router,
    told_capacity: Option<u64>,
    turns: HashMap<RequestId, Turn>,
    waiting: HashMap<Ticket, RequestId>,
}

impl HomingRouter {
    /// The product's defaults but for admission: the spill threshold is a quarter of `max_num_seqs`.
    pub fn new(fleet: &Before, admission: Admission) -> Self {
        let settings = Settings {
            affinity: true,
            spill_threshold: auto_spill_threshold(Some(fleet.engine.max_num_seqs)),
            idle_forget: Duration::from_secs(30 * 60),
            conversations_max: 8192,
            admission,
            recovery: Recovery::default(),
        };
        let engine = |index| EngineSpec { name: format!("replica-{index}"), data_parallel_size: 1 };
        let engines: Vec<EngineSpec> = (0..fleet.replicas).map(engine).collect();
        Self {
            router: Router::new(settings, &engines),
            told_capacity: fleet.told_capacity,
            turns: HashMap::new(),
            waiting: HashMap::new(),
        }
    }

    fn answer(&mut self, request: RequestId, verdict: Verdict) -> Answer {
        match verdict {
            Verdict::Go(turn) => {
                let choice = Choice { replica: turn.target.engine, decision: Some(turn.decision) };
                self.turns.insert(request, turn);
                Answer::Goes(choice)
            }
            Verdict::Parked(ticket) => {
                self.waiting.insert(ticket, request);
                Answer::Waits
            }
            Verdict::Refused(refusal) => Answer::Refused { retry_after_s: refusal.retry_after_s as f64 },
            Verdict::Gone => unreachable!("no request of a load names anything stored"),
        }
    }
}

impl Arm for HomingRouter {
    fn route(&mut self, asked: &Asked) -> Answer {
        // Agents of a session have conversations of their own.
        let key = Key::new(u128::from(asked.session_key) << 64 | asked.turn.conversation as u128);
        let ask = Ask { bytes: bytes(asked), ..Ask::of(Some(key)) };
        let verdict = self.router.route(&ask, time(asked.now_s)).expect("the router has engines");
        self.answer(asked.request, verdict)
    }

    fn began(&mut self, now_s: f64, request: RequestId) {
        if let Some(turn) = self.turns.get_mut(&request) {
            self.router.began(turn, time(now_s));
        }
    }

    fn finish(&mut self, finished: &Finished) {
        if let Some(turn) = self.turns.remove(&finished.request) {
            self.router.finish(&turn, finished.usage.map(tokens), time(finished.now_s));
        }
    }

    fn woken(&mut self, now_s: f64) -> Vec<(RequestId, Answer)> {
        let woken = self.router.woken(time(now_s));
        let answer = |woken: homing::routing::Woken| {
            let request = self.waiting.remove(&woken.ticket)?;
            Some((request, self.answer(request, woken.verdict)))
        };
        woken.into_iter().filter_map(answer).collect()
    }

    /// As the product looks.
    fn wakes_every_s(&self) -> Option<f64> {
        Some(0.1)
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
                capacity_tokens: self.told_capacity,
                process_start_s: Some(0.0),
            };
            self.router.read(engine, &[reading], time(now_s));
        }
    }
}

/// Every session writes in its own way.
fn bytes(asked: &Asked) -> u64 {
    let wordy = (asked.session_key >> 32) as f64 / f64::from(u32::MAX);
    let per_token = BYTES_PER_TOKEN.start + wordy * (BYTES_PER_TOKEN.end - BYTES_PER_TOKEN.start);
    (f64::from(asked.prompt.len()) * per_token) as u64
}

fn tokens(usage: Usage) -> Tokens {
    Tokens {
        prompt: usage.prompt_tokens.into(),
        cached: Some(usage.cached_tokens.into()),
        completion: usage.output_tokens.into(),
    }
}

fn time(now_s: f64) -> Time {
    Time((now_s * 1000.0) as u64)
}
