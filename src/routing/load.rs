//! The load of a replica, by which new conversations are placed where admission is not in force.

use std::time::Duration;

use super::replica::{Engine, Replica};
use super::{Conversations, ReplicaId, Time};

/// A full KV cache weighs as much as eight requests in flight (the published rule's figure).
pub const KV_WEIGHT: f64 = 8.0;

/// Readings older than this say nothing about now (the published rule's figure: three scrapes).
pub const READING_MAX_AGE: Duration = Duration::from_secs(15);

/// The KV cache in use on a replica, 0 to 1, if a reading fresh enough says so.
pub(super) fn kv_usage(replica: &Replica, now: Time) -> Option<f64> {
    replica.kv_usage.filter(|_| now.since(replica.read_at) < READING_MAX_AGE)
}

/// Whether the KV term counts now: every replica to choose from has a fresh reading.
pub(super) fn all_read(candidates: &[ReplicaId], replicas: &[Replica], now: Time) -> bool {
    candidates.iter().all(|id| kv_usage(&replicas[id.index()], now).is_some())
}

/// `in flight + 8 x KV use + live conversations`. Without a KV use, the first and the last.
pub(super) fn score(replica: &Replica, live: u32, kv_usage: Option<f64>) -> f64 {
    f64::from(replica.in_flight) + KV_WEIGHT * kv_usage.unwrap_or(0.0) + f64::from(live)
}

/// The replica with the least load, and that load; ties go to the fewest live conversations, then to the first listed.
///
/// The KV term counts only if every candidate has a fresh reading: otherwise those without one would look empty. So one
/// pass finds the least loaded both with it and without.
pub(super) fn least_loaded(
    candidates: &[ReplicaId],
    replicas: &[Replica],
    conversations: &Conversations,
    now: Time,
) -> Option<(ReplicaId, f64)> {
    let (mut with_kv, mut without_kv) = (Least::default(), Least::default());
    let mut all_read = true;
    for id in candidates {
        let replica = &replicas[id.index()];
        let live = conversations.live_on(*id);
        let usage = kv_usage(replica, now);
        all_read &= usage.is_some();
        with_kv.see(score(replica, live, usage), live, *id);
        without_kv.see(score(replica, live, None), live, *id);
    }
    let least = if all_read { with_kv } else { without_kv };
    Some((least.id?, least.load))
}

/// The least loaded of the replicas seen so far.
struct Least {
    load: f64,
    live: u32,
    id: Option<ReplicaId>,
}

impl Default for Least {
    fn default() -> Self {
        Least { load: f64::INFINITY, live: u32::MAX, id: None }
    }
}

impl Least {
    fn see(&mut self, load: f64, live: u32, id: ReplicaId) {
        if load < self.load || (load == self.load && live < self.live) {
            *self = Least { load, live, id: Some(id) };
        }
    }
}

/// The replica with the fewest requests in flight; ties go to `home`, then to the first listed.
pub(super) fn fewest_in_flight(candidates: &[ReplicaId], replicas: &[Replica], home: ReplicaId) -> Option<ReplicaId> {
    candidates.iter().copied().min_by_key(|id| (replicas[id.index()].in_flight, *id != home))
}

/// Requests that an engine has to do for each of its ranks, where it balances them itself.
///
/// The engine's own gauges are a few seconds old, so what this balancer has sent or got back since the reading is
/// added at once; its own requests in flight are the least that can be true.
pub(super) fn busy(engine: &Engine, replicas: &[Replica], now: Time) -> f64 {
    let own = f64::from(in_flight(engine, replicas));
    let gauges: Option<f64> = engine
        .ids()
        .map(|id| {
            let replica = &replicas[id.index()];
            let reading = replica.reading.as_ref()?;
            let fresh = now.since(replica.read_at) < READING_MAX_AGE;
            fresh.then_some((reading.running? + reading.waiting.unwrap_or(0)) as f64)
        })
        .sum();
    let since_reading = own - f64::from(engine.in_flight_at_reading);
    let busy = gauges.map_or(own, |gauges| own.max(gauges + since_reading));
    busy / engine.replicas.len().max(1) as f64
}

/// This balancer's requests in flight on an engine, over all its ranks.
pub(super) fn in_flight(engine: &Engine, replicas: &[Replica]) -> u32 {
    engine.unranked_in_flight + engine.ids().map(|id| replicas[id.index()].in_flight).sum::<u32>()
}
