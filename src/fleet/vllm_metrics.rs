//! What a vLLM engine says in its `/metrics`, by data-parallel rank.
//!
//! The Prometheus text format is read only as far as vLLM's own series need it; anything else in the text is passed over.

use std::collections::BTreeMap;

/// One reading of an engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineMetrics {
    /// By rank. Empty where the text holds no vLLM series at all: this is not a vLLM engine.
    pub ranks: BTreeMap<u32, RankMetrics>,
    /// When the engine's server started, in seconds since 1970. Absent where it runs in several processes.
    pub process_start_s: Option<f64>,
}

/// One reading of a rank. None where the engine does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankMetrics {
    /// Requests in the running batch.
    pub running: Option<u64>,
    /// Requests in the engine's own queue.
    pub waiting: Option<u64>,
    /// Share of the KV cache that running requests use, 0 to 1. Idle cached conversations do not count.
    pub kv_cache_usage: Option<f64>,
    /// Prompt tokens looked up in the prefix cache since the start.
    pub prefix_queries: Option<u64>,
    /// Prompt tokens found there since the start.
    pub prefix_hits: Option<u64>,
    /// Prompt tokens since the start, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens since the start.
    pub generation_tokens: Option<u64>,
    /// Requests put back because the KV cache was full, since the start.
    pub preemptions: Option<u64>,
    /// Whether the rank sleeps: requests would hang although the engine is healthy.
    pub asleep: Option<bool>,
    /// Tokens that the rank's KV cache holds.
    pub capacity_tokens: Option<u64>,
}

impl EngineMetrics {
    /// Whether the text came from vLLM.
    pub fn is_vllm(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// Whether a rank of it sleeps. vLLM puts all of them to sleep at once.
    pub fn sleeps(&self) -> bool {
        self.ranks.values().any(|rank| rank.asleep == Some(true))
    }
}

/// Ranks above this are not read: no engine has them.
const RANK_MAX: u32 = 1023;

/// Reads a text. Lines that make no sense are passed over.
pub fn parse(text: &str) -> EngineMetrics {
    let mut ranks: BTreeMap<u32, Readings> = BTreeMap::new();
    let mut process_start_s = None;
    for series in text.lines().filter_map(Series::parse) {
        if series.name == "process_start_time_seconds" {
            process_start_s = Some(series.value);
        } else if let Some(name) = series.name.strip_prefix("vllm:") {
            let rank = series.label("engine").map_or(Some(0), |rank| rank.parse().ok());
            if let Some(rank) = rank.filter(|rank| *rank <= RANK_MAX) {
                ranks.entry(rank).or_default().take(name, &series);
            }
        }
    }
    let rank_count = ranks.len() as u64;
    EngineMetrics {
        ranks: ranks.into_iter().map(|(rank, readings)| (rank, readings.finish(rank_count))).collect(),
        process_start_s,
    }
}

/// A rank's values as they are met.
#[derive(Default)]
struct Readings {
    values: BTreeMap<&'static str, f64>,
    asleep: Option<bool>,
    kv_cache_size_tokens: Option<u64>,
    /// Tokens by blocks, of all ranks together.
    blocks_tokens: Option<u64>,
}

/// Each count, added up where several models (LoRA adapters) have a series of their own.
const COUNTS: [&str; 9] = [
    "num_requests_running",
    "num_requests_waiting",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "gpu_prefix_cache_queries_total",
    "gpu_prefix_cache_hits_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "num_preemptions_total",
];
/// Each share of the rank, the same whatever the model.
const SHARES: [&str; 2] = ["kv_cache_usage_perc", "gpu_cache_usage_perc"];

impl Readings {
    fn take(&mut self, name: &str, series: &Series<'_>) {
        if let Some(name) = COUNTS.into_iter().find(|count| *count == name) {
            *self.values.entry(name).or_default() += series.value;
        } else if let Some(name) = SHARES.into_iter().find(|share| *share == name) {
            let share = self.values.entry(name).or_default();
            *share = share.max(series.value.min(1.0));
        } else if name == "engine_sleep_state" && series.label("sleep_state") == Some("awake") {
            self.asleep = Some(series.value == 0.0);
        } else if name == "cache_config_info" {
            let number = |label| series.label(label)?.parse::<u64>().ok();
            self.kv_cache_size_tokens = number("kv_cache_size_tokens");
            self.blocks_tokens =
                number("num_gpu_blocks").zip(number("block_size")).and_then(|(blocks, size)| blocks.checked_mul(size));
        }
    }

    fn finish(self, rank_count: u64) -> RankMetrics {
        // Some versions give a series under its old name beside the new one: never both.
        let value = |name, alias| self.values.get(name).or(self.values.get(alias)).copied();
        let count = |name, alias| value(name, alias).map(|value| value as u64);
        RankMetrics {
            running: count("num_requests_running", ""),
            waiting: count("num_requests_waiting", ""),
            kv_cache_usage: value("kv_cache_usage_perc", "gpu_cache_usage_perc"),
            prefix_queries: count("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
            prefix_hits: count("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
            prompt_tokens: count("prompt_tokens_total", ""),
            generation_tokens: count("generation_tokens_total", ""),
            preemptions: count("num_preemptions_total", ""),
            asleep: self.asleep,
            // Every rank reports the blocks of all ranks, but the tokens of its own.
            capacity_tokens: self.kv_cache_size_tokens.or(self.blocks_tokens.map(|tokens| tokens / rank_count)),
        }
    }
}

/// One line of the text: `name{label="value",…} value`.
struct Series<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Series<'a> {
    /// None for comments, for what is no series, and for values that no count or share can have (NaN, infinite, negative).
    fn parse(line: &'a str) -> Option<Self> {
        let name_end = line.find(['{', ' ', '\t'])?;
        let (name, rest) = line.split_at(name_end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(labels) => {
                let end = labels_end(labels)?;
                (&labels[..end], &labels[end + 1..])
            }
            None => ("", rest),
        };
        let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(Self { name, labels, value })
    }

    /// A label's value. Escapes in it are left as they are: no label that is asked for has any.
    fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (key, quoted) = rest.split_once("=\"")?;
            let (value, after) = quoted.split_at(value_end(quoted)?);
            if key.trim_matches([',', ' ']) == name {
                return Some(value);
            }
            rest = &after[1..];
        }
    }
}

/// Where the labels end: at the first `}` outside quotes.
fn labels_end(labels: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + labels[at..].find(['"', '}'])?;
        if labels[found..].starts_with('}') {
            return Some(found);
        }
        at = found + 1 + value_end(&labels[found + 1..])? + 1;
    }
}

/// Where a label's value ends: at the first `"` that no backslash escapes.
fn value_end(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}
