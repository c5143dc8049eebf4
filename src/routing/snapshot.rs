use std::time::Duration;

use super::load::{all_read, in_flight, kv_usage, score};
use super::replica::Engine;
use super::{
    AdmissionCounts, Advice, CacheCounts, CapacitySource, DecisionCounts, Reading, Router, Settings, State, Time,
    Trouble,
};

/// A model's routing at one moment, for metrics, JSON and pages.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub settings: Settings,
    /// Requests in flight, those whose rank the engine chose included.
    pub in_flight: u64,
    pub decisions: DecisionCounts,
    /// Tries that followed a failed one.
    pub failed_over: u64,
    /// Conversations in the table.
    pub conversations: u64,
    /// Conversations pushed out of the table by its limit.
    pub conversations_evicted: u64,
    /// Stored responses and threads whose place is known.
    pub stored: u64,
    /// Those forgotten because of the limit.
    pub stored_evicted: u64,
    /// Conversations without a home of which it was forgotten why, because of the limit.
    pub lost_forgotten: u64,
    /// Engines away for a moment that were forgotten because of the limit.
    pub away_forgotten: u64,
    /// Requests that wait for room.
    pub parked: u64,
    /// How long the first of them has waited.
    pub longest_wait: Duration,
    pub admission: AdmissionCounts,
    /// How long an idle conversation keeps its place.
    pub linger: Duration,
    pub caches: CacheCounts,
    /// What is likely wrong where turns go home and yet find nothing.
    pub advice: Option<Advice>,
    /// In the order of the configuration; those no longer configured only while they have requests in flight.
    pub replicas: Vec<ReplicaSnapshot>,
}

/// One replica in a [`Snapshot`].
#[derive(Clone, Debug)]
pub struct ReplicaSnapshot {
    /// `host:port`, or `host:port#rank`.
    pub name: String,
    /// The name of its engine.
    pub engine: String,
    pub state: State,
    /// Why it is not up.
    pub trouble: Option<Trouble>,
    /// The engine is told to drain and nothing is in flight there any more.
    pub drained: bool,
    /// It has come back, and is filled gently as yet.
    pub returning: bool,
    /// How often its engine was left alone because requests failed there.
    pub circuit_opened: u64,
    pub in_flight: u32,
    /// Requests by decision, counted where each went first; a spilled one therefore where it was spilled to.
    pub decisions: DecisionCounts,
    pub conversations: u32,
    pub live: u32,
    /// `in flight + 8 x KV use + live`, as a new conversation would find it.
    pub load: f64,
    /// Tokens that the conversations with a place here take, and all that runs here.
    pub held_tokens: u64,
    /// Tokens that its cache can keep, as far as that is known.
    pub capacity_tokens: Option<u64>,
    pub capacity_source: CapacitySource,
    pub reading: Option<(Reading, Duration)>,
    /// Restarts of the engine seen.
    pub restarts: u64,
}

impl Router {
    /// The name of a replica: the engine's, with `#rank` where it has several.
    pub fn replica_name(&self, target: &super::Target) -> String {
        let engine = self.engine_name(target.engine);
        match target.rank.or(target.replica.map(|id| self.replicas[id.index()].rank)) {
            Some(rank) if self.engines[target.engine].spec.data_parallel_size > 1 => format!("{engine}#{rank}"),
            _ => engine.to_owned(),
        }
    }

    /// What stands now. Conversations due to be forgotten are forgotten first, and places end that are due to.
    pub fn snapshot(&mut self, now: Time) -> Snapshot {
        self.let_time_pass(now);
        self.caches.expire(self.linger(), now);
        let mut decisions = self.unranked;
        self.replicas.iter().for_each(|replica| decisions.add(&replica.decisions));
        let in_flight = self.engines.iter().map(|engine| u64::from(in_flight(engine, &self.replicas))).sum();
        Snapshot {
            settings: self.settings.clone(),
            in_flight,
            decisions,
            failed_over: self.failed_over,
            conversations: self.conversations.len() as u64,
            conversations_evicted: self.conversations.evicted(),
            stored: self.stored.len() as u64,
            stored_evicted: self.stored.evicted(),
            lost_forgotten: self.lost_forgotten,
            away_forgotten: self.away.forgotten(),
            parked: self.line.parked() as u64,
            longest_wait: self.line.longest_wait(now),
            admission: self.line.counts(),
            linger: self.linger(),
            caches: self.caches.counts(),
            advice: self.caches.advice(),
            replicas: self.replica_snapshots(now),
        }
    }

    fn is_drained(&self, engine: &Engine) -> bool {
        engine.health.trouble() == Some(Trouble::ToldToDrain) && in_flight(engine, &self.replicas) == 0
    }

    fn replica_snapshots(&self, now: Time) -> Vec<ReplicaSnapshot> {
        let kv_counts = all_read(&self.candidates, &self.replicas, now);
        let peers = self.peers();
        let ending =
            self.engines.iter().filter(|engine| !engine.health.configured && in_flight(engine, &self.replicas) > 0);
        self.order
            .iter()
            .map(|index| &self.engines[*index])
            .chain(ending)
            .flat_map(|engine| engine.ids().map(move |id| (engine, id)))
            .map(|(engine, id)| {
                let replica = &self.replicas[id.index()];
                let live = self.conversations.live_on(id);
                let (capacity_tokens, capacity_source) =
                    self.caches.capacity(id, self.settings.admission.kv_cache_tokens);
                ReplicaSnapshot {
                    name: self.replica_name(&self.target(id)),
                    engine: engine.spec.name.clone(),
                    state: engine.state(),
                    trouble: engine.health.trouble(),
                    drained: self.is_drained(engine),
                    returning: self.is_returning(id, peers),
                    circuit_opened: engine.health.circuit.opened(),
                    in_flight: replica.in_flight,
                    decisions: replica.decisions,
                    conversations: self.conversations.homed_on(id),
                    live,
                    load: score(replica, live, kv_usage(replica, now).filter(|_| kv_counts)),
                    held_tokens: self.caches.held(id),
                    capacity_tokens,
                    capacity_source,
                    reading: replica.reading.as_deref().map(|reading| (*reading, now.since(replica.read_at))),
                    restarts: replica.restarts,
                }
            })
            .collect()
    }
}
