//! Replicas that have come back: each takes new conversations one by one until it holds as much as the others do.

use std::time::Duration;

use super::{ReplicaId, Router, Time};

/// How long a replica that stays behind takes new conversations at one rate, before that doubles: else it would stay behind
/// for ever where many come.
const DOUBLES_AFTER: Duration = Duration::from_secs(30);

/// Those that have come back.
#[derive(Default)]
pub(super) struct Returning(Vec<Back>);

/// One that has come back.
struct Back {
    replica: ReplicaId,
    /// When it took its first new conversation.
    first: Option<Time>,
    /// From when on it may take its next one.
    next: Time,
}

impl Returning {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its caches are empty, or nearly so.
    pub fn begin(&mut self, replica: ReplicaId) {
        self.end(replica);
        self.0.push(Back { replica, first: None, next: Time::default() });
    }

    /// It holds as much as the others, or is another by now.
    pub fn end(&mut self, replica: ReplicaId) {
        self.0.retain(|back| back.replica != replica);
    }

    fn next(&self, replica: ReplicaId) -> Option<Time> {
        self.0.iter().find(|back| back.replica == replica).map(|back| back.next)
    }

    fn took(&mut self, replica: ReplicaId, gap: Duration, now: Time) {
        if let Some(back) = self.0.iter_mut().find(|back| back.replica == replica) {
            let behind = now.since(*back.first.get_or_insert(now));
            let doubled = (behind.as_secs() / DOUBLES_AFTER.as_secs()).min(31) as u32;
            back.next = now + gap / 2u32.saturating_pow(doubled);
        }
    }
}

impl Router {
    /// Whether a replica has come back and holds less than the others, as yet.
    pub(super) fn is_returning(&self, replica: ReplicaId) -> bool {
        self.returning.next(replica).is_some() && !self.is_filled(replica)
    }

    /// Whether a replica is to take no new conversation at this moment, since it has just come back.
    pub(super) fn rests(&self, replica: ReplicaId, now: Time) -> bool {
        self.returning.next(replica).is_some_and(|next| now < next) && !self.is_filled(replica)
    }

    /// A new conversation has got its home on a replica.
    pub(super) fn takes_one(&mut self, replica: ReplicaId, now: Time) {
        if self.returning.is_empty() {
            return;
        }
        match self.is_filled(replica) {
            true => self.returning.end(replica),
            false => self.returning.took(replica, self.settings.recovery.gap(), now),
        }
    }

    /// Whether a replica holds as much as those do on average that have not just come back. What it holds is known here at
    /// once; its own figure of its cache in use would be seconds old.
    fn is_filled(&self, replica: ReplicaId) -> bool {
        let peers = self.candidates.iter().filter(|id| self.returning.next(**id).is_none());
        let (held, count) =
            peers.fold((0u128, 0u128), |(held, count), id| (held + u128::from(self.caches.held(*id)), count + 1));
        u128::from(self.caches.held(replica)) * count >= held
    }
}
