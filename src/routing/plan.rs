//! What is to become of a request, before anything of it is counted: the same for one that comes and for one that is only
//! asked about.

use super::admission::Fit;
use super::router::Chosen;
use super::stored::Kept;
use super::{Ask, Decision, Key, Pin, Reason, Refusal, ReplicaId, Router, Time, Why};

/// What is to become of a request now.
pub(super) enum Plan {
    /// It says itself where it goes, or goes by load.
    Apart(Chosen),
    /// Its conversation goes home, or elsewhere for this once.
    Home(Key, ReplicaId),
    /// Its conversation gets a home, whatever room there is.
    Place(Key, Fit),
    /// The same, where there is room.
    Admit(Key, Fit),
    /// Its conversation waits for room.
    Park(Key),
    /// Too many wait.
    Full(Refusal),
    /// What it names was kept by an engine that is gone.
    Gone,
}

/// What would become of a request, if it came now.
#[derive(Clone, Debug, PartialEq)]
pub enum Foreseen {
    /// It would go to a replica.
    Goes { decision: Decision, reason: Reason },
    /// It would go after its conversation, and not be counted, since it is no turn of it.
    Follows { replica: String },
    /// It would wait for room, with so many others.
    Waits { parked: u64 },
    /// It would be refused.
    Refused(Refusal),
    /// What it names was kept by an engine that is gone, or has restarted since.
    Gone,
}

impl Router {
    /// What is to become of a request. Ends the places that are due to end, and changes nothing else. None: the model has no
    /// engine.
    pub(super) fn plan(&mut self, ask: &Ask, now: Time) -> Option<Plan> {
        let chosen = match (self.kept(ask), ask.pin, ask.key) {
            (Kept::Gone, ..) => return Some(Plan::Gone),
            (Kept::At(target), ..) => Some(Chosen { target, decision: Decision::ClientPinned, why: Why::StoredThere }),
            (_, Pin::None, _) if !self.settings.affinity => self.unrouted(&[], now),
            (_, Pin::None, Some(key)) => return self.plan_of_conversation(ask, key, now),
            (_, Pin::None, None) => self.balanced(now),
            (_, Pin::Rank(rank), key) if self.has_rank(rank) => self.pinned(key, rank, &[], now),
            (_, Pin::Rank(_) | Pin::Invalid, key) => self.mispinned(key, now),
        };
        chosen.map(Plan::Apart)
    }

    /// Home while the conversation has its place or its cache there (with admission off: while it has a home); else where
    /// a new one goes.
    fn plan_of_conversation(&mut self, ask: &Ask, key: Key, now: Time) -> Option<Plan> {
        if let Some(home) = self.home_to_go_to(&key) {
            return Some(Plan::Home(key, home));
        }
        if self.admits() {
            return self.plan_admission(ask, key, now);
        }
        self.by_load(&key, &[], now).map(|fit| Plan::Place(key, fit))
    }

    /// What would become of a request that came now. Asking counts nothing and takes nothing; what is due to end ends, as with
    /// any look. None: the model has no engine.
    ///
    /// The pause since its conversation's last turn would be noted only if it came: where that moves the automatic linger,
    /// room that is just about to be free may be foreseen a moment too late or too early.
    pub fn foresee(&mut self, ask: &Ask, now: Time) -> Option<Foreseen> {
        let goes = |router: &Router, chosen: Chosen| Foreseen::Goes {
            decision: chosen.decision,
            reason: router.reason_of(&chosen.target, chosen.why),
        };
        self.let_time_pass(now);
        Some(match self.plan(ask, now)? {
            Plan::Apart(chosen) => goes(self, chosen),
            Plan::Home(key, home) => goes(self, self.home_or_spill(home, &key)),
            Plan::Place(key, fit) | Plan::Admit(key, fit) => goes(self, self.placed(&key, fit)),
            Plan::Park(_) => Foreseen::Waits { parked: self.line.parked() as u64 },
            Plan::Full(refusal) => Foreseen::Refused(refusal),
            Plan::Gone => Foreseen::Gone,
        })
    }

    /// The same of a request that follows its conversation and is no turn of it, as in [`Router::follow`].
    pub fn foresee_follower(&self, ask: &Ask, now: Time) -> Option<Foreseen> {
        if self.is_gone(ask) {
            return Some(Foreseen::Gone);
        }
        self.follow(ask, &[], now).map(|target| Foreseen::Follows { replica: self.replica_name(&target) })
    }
}
