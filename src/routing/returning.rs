//! Replicas that have come back: each takes new conversations one by one until it holds as much as the others do.

use std::time::Duration;

use super::{ReplicaId, Router, Time};

/// How long a replica that stays behind takes new conversations at one rate, before that doubles: else it would stay behind
/// for ever where many come.
const DOUBLES_AFTER: Duration = Duration::from_secs(30);

/// Those that have come back.
#[derive(Default)]
pub(super) struct Returning {
    /// By the router's list of replicas, as far as any of them has come back: each choice asks for all of them.
    backs: Vec<Option<Back>>,
    count: usize,
}

/// One that has come back.
#[derive(Default)]
struct Back {
    /// When it took its first new conversation.
    first: Option<Time>,
    /// From when on it may take its next one.
    next: Time,
}

impl Returning {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its caches are empty, or nearly so.
    pub fn begin(&mut self, replica: ReplicaId) {
        if self.backs.len() <= replica.index() {
            self.backs.resize_with(replica.index() + 1, || None);
        }
        self.count += usize::from(self.backs[replica.index()].replace(Back::default()).is_none());
    }

    /// It holds as much as the others, or is another by now.
    pub fn end(&mut self, replica: ReplicaId) {
        let back = self.backs.get_mut(replica.index()).and_then(Option::take);
        self.count -= usize::from(back.is_some());
    }

    fn get(&self, replica: ReplicaId) -> Option<&Back> {
        self.backs.get(replica.index())?.as_ref()
    }

    fn took(&mut self, replica: ReplicaId, gap: Duration, now: Time) {
        if let Some(Some(back)) = self.backs.get_mut(replica.index()) {
            let behind = now.since(*back.first.get_or_insert(now));
            let doubled = (behind.as_secs() / DOUBLES_AFTER.as_secs()).min(31) as u32;
            back.next = now + gap / 2u32.saturating_pow(doubled);
        }
    }
}

/// Tokens that the replicas hold which have not just come back, and how many these are.
#[derive(Clone, Copy)]
pub(super) struct Peers {
    held: u128,
    count: u128,
}

impl Router {
    /// What those hold that a replica which has come back is to hold as much as. To be asked once for all that have.
    pub(super) fn peers(&self) -> Peers {
        let mut peers = Peers { held: 0, count: 0 };
        if !self.returning.is_empty() {
            for id in self.candidates.iter().filter(|id| self.returning.get(**id).is_none()) {
                peers.held += u128::from(self.caches.held(*id));
                peers.count += 1;
            }
        }
        peers
    }

    /// Whether a replica has come back and holds less than the others, as yet.
    pub(super) fn is_returning(&self, replica: ReplicaId, peers: Peers) -> bool {
        self.returning.get(replica).is_some() && !self.is_filled(replica, peers)
    }

    /// Whether a replica is to take no new conversation at this moment, since it has just come back.
    pub(super) fn rests(&self, replica: ReplicaId, peers: Peers, now: Time) -> bool {
        self.returning.get(replica).is_some_and(|back| now < back.next) && !self.is_filled(replica, peers)
    }

    /// A new conversation has got its home on a replica.
    pub(super) fn takes_one(&mut self, replica: ReplicaId, now: Time) {
        if self.returning.get(replica).is_none() {
            return;
        }
        match self.is_filled(replica, self.peers()) {
            true => self.returning.end(replica),
            false => self.returning.took(replica, self.settings.recovery.gap(), now),
        }
    }

    /// Whether a replica holds as much as its peers do on average. What it holds is known here at once; its own figure of its
    /// cache in use would be seconds old.
    fn is_filled(&self, replica: ReplicaId, peers: Peers) -> bool {
        u128::from(self.caches.held(replica)) * peers.count >= peers.held
    }
}
