//! Where there is room for a newcomer, and where of these it has the least to expect.

use super::Fit;
use super::queue::Parked;
use crate::routing::cache::Standing;
use crate::routing::{Ask, Key, Placement, ReplicaId, Router, Time};

/// What a request in flight on a replica adds to the seconds that a newcomer has to expect there.
const IN_FLIGHT_S: f64 = 3.0;

/// What an idle conversation with a place there adds: it will be back.
const LINGERING_S: f64 = 1.5;

/// What a conversation adds whose place there is gone and whose cache is not: it may be back, and newcomers without pause
/// must not crowd the first replica while others stand empty.
const RESIDENT_S: f64 = 0.5;

impl Router {
    /// The replica with room for a newcomer on which it has the least to expect; one that holds nothing takes anyone.
    pub(super) fn with_room(&mut self, ask: &Ask, key: &Key, now: Time) -> Option<Fit> {
        self.caches.expire(self.linger(), now);
        self.gently(now, |among| self.cheapest(ask, key, among, |id, own| self.has_room(id, own)))
    }

    /// The replica on which it has the least to expect, whether or not there is room.
    pub(super) fn anywhere(&self, parked: &Parked, now: Time) -> Option<Fit> {
        let fit = self.gently(now, |among| self.cheapest(&parked.ask, &parked.key, among, |_, _| true))?;
        Some(Fit { by: Placement::NoRoom, ..fit })
    }

    /// Chooses among the replicas that need no rest; among all, where none of those will do.
    fn gently<T>(&self, now: Time, choose: impl Fn(&[ReplicaId]) -> Option<T>) -> Option<T> {
        if self.returning.is_empty() {
            return choose(&self.candidates);
        }
        let peers = self.peers();
        let ready: Vec<ReplicaId> = self.candidates.iter().copied().filter(|id| !self.rests(*id, peers, now)).collect();
        choose(&ready).or_else(|| choose(&self.candidates))
    }

    fn has_room(&self, id: ReplicaId, own: u64) -> bool {
        let held = self.caches.held(id).saturating_add(own);
        self.caches.is_free(id) || held <= self.caches.admitted(id, self.settings.admission.kv_cache_tokens)
    }

    /// Of the replicas `among` which to choose that are `fit`, the one on which a newcomer has to expect the shortest time:
    /// until its own tokens and those queued before it are read, and for what else is there and will be back. Ties go to the
    /// fewest conversations. One that has lost its home goes where the fewest tokens are held, as by load.
    fn cheapest(&self, ask: &Ask, key: &Key, among: &[ReplicaId], fit: impl Fn(ReplicaId, u64) -> bool) -> Option<Fit> {
        let own = self.caches.own_tokens(self.conversations.size(key), ask.bytes);
        let cached_at = self.conversations.home(key).filter(|home| self.caches.standing(*home, key) != Standing::Gone);
        let cost_s = |id: ReplicaId| {
            let unread = if cached_at == Some(id) { 0 } else { own };
            let in_flight = f64::from(self.replicas[id.index()].in_flight);
            let there = IN_FLIGHT_S * in_flight + LINGERING_S * self.caches.lingering(id) as f64;
            (self.caches.reading_s(id, unread) + there) * self.caches.slowness(id)
                + RESIDENT_S * self.caches.resident(id) as f64
        };
        let fit = among.iter().copied().filter(|id| fit(*id, own));
        if self.newcomer(key).is_displaced() {
            let (replica, tokens) = self.least_held(fit)?;
            return Some(Fit { replica, by: Placement::LeastHeld { tokens } });
        }
        fit.map(|id| (cost_s(id), self.conversations.homed_on(id), id))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
            .map(|(expected_s, _, replica)| Fit { replica, by: Placement::Room { tokens: own, expected_s } })
    }
}
