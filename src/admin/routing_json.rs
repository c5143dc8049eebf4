//! `GET /routing`: a model's routing as JSON. Numbers are numbers, and null where nothing is known.

use serde::Serialize;
use serde_json::{Value, json};

use super::admission_json::{self, Admission, Cache};
use crate::config::SpillThreshold;
use crate::fleet::{Model, now};
use crate::routing::{Advice, DecisionCounts, MAX_NUM_SEQS_ASSUMED, ReplicaSnapshot, Trouble};

#[derive(Serialize)]
struct Routing<'a> {
    model: &'a str,
    affinity: &'static str,
    spill_threshold: u32,
    spill_threshold_source: &'static str,
    max_num_seqs: u32,
    max_num_seqs_source: &'static str,
    idle_forget_s: u64,
    conversations_max: usize,
    conversations: u64,
    conversations_evicted: u64,
    stored: u64,
    stored_evicted: u64,
    /// Since when the totals count, in seconds since 1970.
    since: u64,
    totals: Totals,
    admission: Admission,
    cache: Cache,
    advice: Option<AdviceToOperator>,
    replicas: Vec<Replica<'a>>,
}

#[derive(Serialize)]
struct Totals {
    in_flight: u64,
    #[serde(flatten)]
    decisions: DecisionCounts,
    failed_over: u64,
}

#[derive(Serialize)]
struct AdviceToOperator {
    name: Advice,
    sentence: &'static str,
}

#[derive(Serialize)]
struct Replica<'a> {
    replica: &'a str,
    state: &'static str,
    /// Why it is not up.
    state_why: Option<String>,
    drained: bool,
    returning: bool,
    circuit_opened: u64,
    in_flight: u32,
    placed: u64,
    sticky: u64,
    spilled_in: u64,
    client_pinned: u64,
    balanced: u64,
    unrouted: u64,
    conversations: u32,
    live: u32,
    load: f64,
    held_tokens: u64,
    capacity_tokens: Option<u64>,
    capacity_source: &'static str,
    running: Option<u64>,
    waiting: Option<u64>,
    kv_cache_usage: Option<f64>,
    prefix_cache_hit_ratio: Option<f64>,
    reading_age_s: Option<f64>,
    restarts: u64,
}

/// The routing of one model, whose counters began at `since`.
pub fn of(model: &Model, since: u64) -> Value {
    let snapshot = model.router.lock().snapshot(now());
    let settings = model.settings();
    let routing = Routing {
        model: model.label(),
        affinity: if snapshot.settings.affinity { "on" } else { "off" },
        spill_threshold: snapshot.settings.spill_threshold,
        spill_threshold_source: match settings.spill_threshold {
            SpillThreshold::Auto => "auto",
            SpillThreshold::Set(_) => "set",
        },
        max_num_seqs: settings.max_num_seqs.unwrap_or(MAX_NUM_SEQS_ASSUMED),
        max_num_seqs_source: if settings.max_num_seqs.is_some() { "set" } else { "assumed" },
        idle_forget_s: snapshot.settings.idle_forget.as_secs(),
        conversations_max: snapshot.settings.conversations_max,
        conversations: snapshot.conversations,
        conversations_evicted: snapshot.conversations_evicted,
        stored: snapshot.stored,
        stored_evicted: snapshot.stored_evicted,
        since,
        totals: Totals {
            in_flight: snapshot.in_flight,
            decisions: snapshot.decisions,
            failed_over: snapshot.failed_over,
        },
        admission: admission_json::admission(&snapshot),
        cache: admission_json::cache(&snapshot),
        advice: snapshot.advice.map(|name| AdviceToOperator { name, sentence: name.sentence() }),
        replicas: snapshot.replicas.iter().map(replica).collect(),
    };
    json!(routing)
}

fn replica(replica: &ReplicaSnapshot) -> Replica<'_> {
    let reading = replica.reading.as_ref().map(|(reading, _)| reading);
    Replica {
        replica: &replica.name,
        state: replica.state.name(),
        state_why: replica.trouble.map(Trouble::sentence),
        drained: replica.drained,
        returning: replica.returning,
        circuit_opened: replica.circuit_opened,
        in_flight: replica.in_flight,
        placed: replica.decisions.placed,
        sticky: replica.decisions.sticky,
        spilled_in: replica.decisions.spilled,
        client_pinned: replica.decisions.client_pinned,
        balanced: replica.decisions.balanced,
        unrouted: replica.decisions.unrouted,
        conversations: replica.conversations,
        live: replica.live,
        load: replica.load,
        held_tokens: replica.held_tokens,
        capacity_tokens: replica.capacity_tokens,
        capacity_source: replica.capacity_source.name(),
        running: reading.and_then(|reading| reading.running),
        waiting: reading.and_then(|reading| reading.waiting),
        kv_cache_usage: reading.and_then(|reading| reading.kv_cache_usage),
        prefix_cache_hit_ratio: reading.and_then(|reading| reading.prefix_hit_ratio()),
        reading_age_s: replica.reading.as_ref().map(|(_, age)| age.as_secs_f64()),
        restarts: replica.restarts,
    }
}
