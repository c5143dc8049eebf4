use std::ops::Range;

use super::health::Health;
use super::{DecisionCounts, State, Time};

/// One replica of a model: an index that is given to no other while anything of it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId(pub(super) u32);

impl ReplicaId {
    /// Its place in the router's list.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An engine to route to: one URL, with one replica or with one for each data-parallel rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineSpec {
    /// `host:port`, the name of its one replica; a rank is called `host:port#rank`.
    pub name: String,
    /// Data-parallel ranks, from 1.
    pub data_parallel_size: u32,
}

/// Where a request was sent: an engine and, where the balancer knows it, the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The engine's place in the router's list of engines.
    pub engine: usize,
    /// The replica, or none where the engine chooses among its ranks.
    pub replica: Option<ReplicaId>,
    /// The rank to name to the engine, where it is to be named.
    pub rank: Option<u32>,
}

/// What an engine's metrics said of one replica at one moment. None: the engine does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Requests being computed.
    pub running: Option<u64>,
    /// Requests waiting in the engine's queue.
    pub waiting: Option<u64>,
    /// KV cache used by running requests, 0 to 1.
    pub kv_cache_usage: Option<f64>,
    /// Prompt tokens looked up in the prefix cache since the engine started.
    pub prefix_queries: Option<u64>,
    /// Prompt tokens found there.
    pub prefix_hits: Option<u64>,
    /// Prompt tokens read since the engine started.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated since the engine started.
    pub generation_tokens: Option<u64>,
    /// Tokens that the KV cache can keep.
    pub capacity_tokens: Option<u64>,
    /// When the engine's process started, in seconds since 1970.
    pub process_start_s: Option<f64>,
}

impl Reading {
    /// Whether the engine must have started anew between `before` and this: a counter fell, or the process is another.
    pub fn restarted_since(&self, before: &Reading) -> bool {
        let fell = |now: Option<u64>, before: Option<u64>| now.zip(before).is_some_and(|(now, before)| now < before);
        let starts = self.process_start_s.zip(before.process_start_s);
        fell(self.prompt_tokens, before.prompt_tokens)
            || fell(self.generation_tokens, before.generation_tokens)
            || fell(self.prefix_queries, before.prefix_queries)
            || starts.is_some_and(|(now, before)| now != before)
    }

    /// Prompt tokens found in the prefix cache over those looked up, 0 to 1.
    pub fn prefix_hit_ratio(&self) -> Option<f64> {
        match (self.prefix_hits, self.prefix_queries) {
            (Some(hits), Some(queries)) if queries > 0 => Some((hits as f64 / queries as f64).min(1.0)),
            _ => None,
        }
    }
}

/// An engine as the router keeps it.
pub(super) struct Engine {
    pub spec: EngineSpec,
    pub health: Health,
    /// The ids of its replicas, which follow each other in the order of ranks.
    pub replicas: Range<u32>,
    /// Requests in flight whose rank the engine chose itself.
    pub unranked_in_flight: u32,
    /// How often it has come back.
    pub returns: u64,
    /// This balancer's requests in flight when the last reading came: the gauges of that reading count them too.
    pub in_flight_at_reading: u32,
}

impl Engine {
    pub fn new(spec: &EngineSpec, replicas: Range<u32>) -> Engine {
        let (spec, health) = (spec.clone(), Health::new());
        Engine { spec, health, replicas, unranked_in_flight: 0, returns: 0, in_flight_at_reading: 0 }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.health.state()
    }

    /// Its replicas in the order of ranks.
    pub fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        self.replicas.clone().map(ReplicaId)
    }
}

impl Replica {
    /// One of which nothing is known yet.
    pub fn new(engine: usize, rank: u32) -> Replica {
        Replica {
            engine,
            rank,
            in_flight: 0,
            kv_usage: None,
            read_at: Time::default(),
            reading: None,
            decisions: DecisionCounts::default(),
            restarts: 0,
        }
    }
}

/// A replica as the router keeps it.
pub(super) struct Replica {
    pub engine: usize,
    pub rank: u32,
    pub in_flight: u32,
    /// The KV cache in use as of the last reading, 0 to 1. With the moment of that reading it stands here and not only in
    /// the reading, because placement looks at every replica: what it needs is kept together.
    pub kv_usage: Option<f64>,
    pub read_at: Time,
    pub reading: Option<Box<Reading>>,
    pub decisions: DecisionCounts,
    pub restarts: u64,
}
