use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec};

use super::Maker;

/// What stands in the routers and the engines' readings at the moment of a scrape.
pub struct FleetGauges {
    pub in_flight: IntGaugeVec,
    pub model_in_flight: IntGaugeVec,
    pub conversations: IntGaugeVec,
    pub load: GaugeVec,
    pub up: IntGaugeVec,
    pub state: IntGaugeVec,
    pub restarts: IntCounterVec,
    pub circuit_opened: IntCounterVec,
    pub returning: IntGaugeVec,
    pub kv_cache_usage: GaugeVec,
    pub running: GaugeVec,
    pub waiting: GaugeVec,
    pub prefix_hit_ratio: GaugeVec,
    pub reading_age: GaugeVec,
    pub evicted: IntCounterVec,
    pub stored: IntGaugeVec,
    pub stored_evicted: IntCounterVec,
    pub limits_hit: IntCounterVec,
    pub parked: IntGaugeVec,
    pub parked_total: IntCounterVec,
    pub park_outcomes: IntCounterVec,
    pub would_park: IntCounterVec,
    pub linger: GaugeVec,
    pub held_tokens: IntGaugeVec,
    pub capacity_tokens: IntGaugeVec,
    pub turns: IntCounterVec,
    pub expected_tokens: IntCounterVec,
    pub found_tokens: IntCounterVec,
    pub error_tokens: IntCounterVec,
}

impl FleetGauges {
    pub(super) fn new(make: &Maker) -> FleetGauges {
        let replica = ["model", "replica"];
        FleetGauges {
            in_flight: make.int_gauges("homing_replica_in_flight", "Requests in flight on a replica.", &replica),
            model_in_flight: make.int_gauges(
                "homing_model_in_flight",
                "Requests in flight, also those whose rank the engine chose.",
                &["model"],
            ),
            conversations: make.int_gauges("homing_conversations", "Conversations at home on a replica.", &replica),
            load: make.gauges("homing_replica_load", "In flight + 8 x KV use + live conversations.", &replica),
            up: make.int_gauges("homing_replica_up", "1 if the replica is in use.", &replica),
            state: make.int_gauges(
                "homing_replica_state",
                "1 for the state that a replica is in, 0 for the others.",
                &["model", "replica", "state"],
            ),
            circuit_opened: make.counters(
                "homing_replica_circuit_opened_total",
                "Times that a replica was left alone for a while because requests failed there one after the other.",
                &replica,
            ),
            returning: make.int_gauges(
                "homing_replica_returning",
                "1 while a replica that has come back is filled gently.",
                &replica,
            ),
            restarts: make.counters("homing_replica_restarts_total", "Engine restarts seen.", &replica),
            kv_cache_usage: make.gauges(
                "homing_replica_kv_cache_usage_ratio",
                "KV cache used by running requests, as scraped.",
                &replica,
            ),
            running: make.gauges("homing_replica_running", "Requests running in the engine, as scraped.", &replica),
            waiting: make.gauges("homing_replica_waiting", "Requests waiting in the engine, as scraped.", &replica),
            prefix_hit_ratio: make.gauges(
                "homing_replica_prefix_cache_hit_ratio",
                "Prompt tokens found in the prefix cache since the engine started, as scraped.",
                &replica,
            ),
            reading_age: make.gauges("homing_replica_reading_age_seconds", "Age of the last reading.", &replica),
            evicted: make.counters(
                "homing_conversations_evicted_total",
                "Conversations pushed out of a model's table by its limit.",
                &["model"],
            ),
            stored: make.int_gauges(
                "homing_stored_responses",
                "Responses kept by engines whose replica is known, and threads of them.",
                &["model"],
            ),
            stored_evicted: make.counters(
                "homing_stored_responses_evicted_total",
                "Of those, the ones whose replica was forgotten because of the limit.",
                &["model"],
            ),
            limits_hit: make.counters(
                "homing_routing_limits_hit_total",
                "What a model's router forgot because of a limit.",
                &["model", "limit"],
            ),
            parked: make.int_gauges("homing_parked", "Requests that wait for room.", &["model"]),
            parked_total: make.counters("homing_parked_total", "Requests that had to wait for room.", &["model"]),
            park_outcomes: make.counters(
                "homing_parked_outcomes_total",
                "What became of requests for which there was no room; full: refused at once, without a wait.",
                &["model", "outcome"],
            ),
            would_park: make.counters(
                "homing_would_park_total",
                "Requests that would have had to wait, were admission not only observing.",
                &["model"],
            ),
            linger: make.gauges("homing_linger_seconds", "How long an idle conversation keeps its place.", &["model"]),
            held_tokens: make.int_gauges(
                "homing_replica_held_tokens",
                "Tokens of the conversations that have a place on a replica, and of all that runs there.",
                &replica,
            ),
            capacity_tokens: make.int_gauges(
                "homing_replica_capacity_tokens",
                "Tokens that a replica's cache can keep, as far as that is known.",
                &replica,
            ),
            turns: make.counters(
                "homing_turns_total",
                "Turns of conversations, by what became of their cache.",
                &["model", "cache"],
            ),
            expected_tokens: make.counters(
                "homing_cache_expected_tokens_total",
                "Cached tokens that turns at home should have found.",
                &["model"],
            ),
            found_tokens: make.counters(
                "homing_cache_found_tokens_total",
                "Cached tokens that those turns found.",
                &["model"],
            ),
            error_tokens: make.counters(
                "homing_cache_error_tokens_total",
                "By how much the two differed, turn by turn.",
                &["model"],
            ),
        }
    }

    /// Forgets every series, so that replicas that are gone do not linger.
    pub fn reset(&self) {
        let FleetGauges {
            in_flight,
            model_in_flight,
            conversations,
            load,
            up,
            state,
            restarts,
            circuit_opened,
            returning,
            kv_cache_usage,
            running,
            waiting,
            prefix_hit_ratio,
            reading_age,
            evicted,
            stored,
            stored_evicted,
            limits_hit,
            parked,
            parked_total,
            park_outcomes,
            would_park,
            linger,
            held_tokens,
            capacity_tokens,
            turns,
            expected_tokens,
            found_tokens,
            error_tokens,
        } = self;
        let counts = [
            in_flight,
            model_in_flight,
            conversations,
            up,
            state,
            returning,
            stored,
            parked,
            held_tokens,
            capacity_tokens,
        ];
        counts.iter().for_each(|gauge| gauge.reset());
        let counters = [
            restarts,
            circuit_opened,
            evicted,
            stored_evicted,
            limits_hit,
            parked_total,
            park_outcomes,
            would_park,
            turns,
        ];
        counters.iter().for_each(|counter| counter.reset());
        [expected_tokens, found_tokens, error_tokens].iter().for_each(|counter| counter.reset());
        let gauges = [load, kv_cache_usage, running, waiting, prefix_hit_ratio, reading_age, linger];
        gauges.iter().for_each(|gauge| gauge.reset());
    }
}
