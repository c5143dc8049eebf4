use std::time::Duration;

use serde::Deserialize;

/// How one model is routed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether conversations have homes. Off: by load alone, and an engine chooses among its ranks itself.
    pub affinity: bool,
    /// Requests in flight on a home from which on its next request goes elsewhere; at least 1.
    pub spill_threshold: u32,
    /// A conversation unused for this long is forgotten.
    pub idle_forget: Duration,
    /// Conversations kept at most; the longest unused is forgotten first.
    pub conversations_max: usize,
    pub admission: Admission,
    pub recovery: Recovery,
}

/// When an engine is left alone at which requests fail, and how one that has come back is filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Requests in a row that must fail there; at least 1.
    pub failures: u32,
    /// For how long it is left alone then; after that one request tries it.
    pub pause: Duration,
    /// Each trial that fails doubles the pause, up to this.
    pub pause_max: Duration,
    /// New conversations a second at most that a replica gets which has come back, until it holds as much as the others; at
    /// least 1.
    pub return_rate: u32,
}

impl Default for Recovery {
    fn default() -> Recovery {
        Recovery::DEFAULT
    }
}

impl Recovery {
    /// Where nothing is configured.
    pub const DEFAULT: Recovery = Recovery {
        failures: 5,
        pause: Duration::from_secs(10),
        pause_max: Duration::from_mins(5),
        // An agent's first turn is thousands of tokens, of which a replica reads some thousands a second.
        return_rate: 2,
    };

    /// The time between two new conversations of a replica that has come back.
    pub fn gap(&self) -> Duration {
        Duration::from_secs(1) / self.return_rate.max(1)
    }
}

/// Whether new conversations wait until a replica's cache has room for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    pub mode: AdmissionMode,
    /// Tokens of a replica's cache, where the configuration says so; else the engine's word, else what is learned.
    pub kv_cache_tokens: Option<u64>,
    /// A request waits for this long at most.
    pub max_wait: Duration,
    /// What happens to it then.
    pub overdue: Overdue,
    /// Requests that wait at most.
    pub parked_max: usize,
    /// With others waiting, a conversation gives its place up after so many turns, at least 1. None: never.
    pub rotate: Option<u32>,
    /// How long an idle conversation keeps its place. None: by the pauses seen.
    pub linger: Option<Duration>,
}

/// Whether admission is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionMode {
    /// In force.
    Auto,
    /// By the rule alone; what would have waited is counted.
    Observe,
    /// By the rule alone.
    Off,
}

impl AdmissionMode {
    /// The name in the configuration, in JSON and in logs.
    pub fn name(self) -> &'static str {
        match self {
            AdmissionMode::Auto => "auto",
            AdmissionMode::Observe => "observe",
            AdmissionMode::Off => "off",
        }
    }
}

/// What happens to a request that has waited for as long as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overdue {
    /// It is told to come back, and finds its place in the line again.
    Refuse,
    /// It goes on, beyond what the caches can hold.
    Admit,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission::DEFAULT
    }
}

impl Admission {
    /// Where nothing is configured.
    pub const DEFAULT: Admission = Admission {
        mode: AdmissionMode::Auto,
        kv_cache_tokens: None,
        // Claude Code gives a silent answer up after 300 s.
        max_wait: Duration::from_secs(240),
        overdue: Overdue::Refuse,
        parked_max: 1024,
        rotate: None,
        linger: None,
    };

    /// By the rule alone.
    pub fn off() -> Admission {
        Admission { mode: AdmissionMode::Off, ..Admission::default() }
    }
}

/// `max_num_seqs` where it is not known: vLLM's own default. It stands in no metric of the engine.
pub const MAX_NUM_SEQS_ASSUMED: u32 = 256;

/// The rule's automatic spill threshold: a quarter of what an engine computes at once, and at least 1.
pub fn auto_spill_threshold(max_num_seqs: Option<u32>) -> u32 {
    (max_num_seqs.unwrap_or(MAX_NUM_SEQS_ASSUMED) / 4).max(1)
}
