//! One vLLM server process: its ranks, and what its HTTP interface needs to know.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::fault::Fault;
use super::metrics;
use super::rank::{Generation, Rank};
use super::tokens::{END, answer, scramble};
use crate::engine::{Engine, Profile, Prompt, Request};

/// How every process of a fleet is started.
#[derive(Clone, Debug)]
pub struct Settings {
    pub profile: Profile,
    /// Engines behind one port, 1 or more.
    pub ranks: u16,
    /// How many times as fast as in reality, above 0.
    pub speed: f64,
    /// Tokens after which the model ends an answer of its own accord, the end token included. Without it every answer is
    /// as long as the request allows.
    pub answer_tokens: Option<u32>,
}

/// A process from its start to its end. A restart makes a new one.
pub struct Process {
    pub model: String,
    pub profile: Profile,
    pub ranks: Vec<Rank>,
    pub started_unix_s: f64,
    pub faults: watch::Receiver<Fault>,
    answer_tokens: Option<u32>,
    next_request: AtomicU64,
    /// The rank that wins the next tie.
    next_rank: AtomicUsize,
    stale_metrics: Mutex<Option<String>>,
}

impl Process {
    /// Starts the engines with empty caches.
    pub fn start(settings: &Settings, faults: watch::Receiver<Fault>) -> Self {
        let rank = |_| Rank::start(Engine::new(settings.profile.clone()), settings.speed, faults.clone());
        Self {
            model: settings.profile.model.name.clone(),
            profile: settings.profile.clone(),
            ranks: (0..settings.ranks).map(rank).collect(),
            started_unix_s: unix_s(),
            faults: faults.clone(),
            answer_tokens: settings.answer_tokens,
            next_request: AtomicU64::new(1),
            next_rank: AtomicUsize::new(0),
            stale_metrics: Mutex::new(None),
        }
    }

    /// The rank for a request that asks for none: the least loaded, ties in turn.
    pub fn least_loaded_rank(&self) -> usize {
        let ranks = self.ranks.len();
        let first = self.next_rank.fetch_add(1, Ordering::Relaxed) % ranks;
        let in_turn = (0..ranks).map(|offset| (first + offset) % ranks);
        let least = in_turn.min_by(|a, b| self.ranks[*a].load().total_cmp(&self.ranks[*b].load()));
        least.unwrap_or(first)
    }

    /// Hashes the tokens of a prompt for these engines.
    pub fn prompt(&self, tokens: impl Iterator<Item = u32>) -> Prompt {
        let mut prompt = Prompt::new(self.profile.engine.block_size);
        prompt.extend(tokens);
        prompt
    }

    /// Starts a generation. The prompt must leave room for a token in the context.
    pub fn generate(&self, rank: usize, prompt: Prompt, max_tokens: u32) -> Generation {
        let fingerprint = prompt.fingerprint();
        let output = match self.answer_tokens {
            Some(length) if length < max_tokens => {
                answer(fingerprint).take(length.saturating_sub(1) as usize).chain([END]).collect()
            }
            _ => answer(fingerprint).take(max_tokens as usize).collect(),
        };
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        self.ranks[rank].submit(Request { id, prompt, output, max_tokens })
    }

    /// A fresh identifier of 16 hexadecimal digits.
    pub fn new_id(&self) -> String {
        let number = self.next_request.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}", scramble(number ^ self.started_unix_s.to_bits()))
    }

    /// The page of `/metrics`.
    pub fn metrics(&self) -> String {
        let mut stale = self.stale_metrics.lock();
        if *self.faults.borrow() == Fault::StaleMetrics {
            return stale.get_or_insert_with(|| metrics::render(self)).clone();
        }
        *stale = None;
        metrics::render(self)
    }
}

/// The time since the epoch in seconds.
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
