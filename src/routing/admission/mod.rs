//! Past the knee: a new conversation waits at the balancer until some replica's cache has room for it.
//!
//! A replica has room for as many conversations as its cache can keep at once. Those that have their place there go on
//! undisturbed; the others wait in line, and every turn that ends may make room for the next.
//!
//! `line.rs` is the line and what became of those in it, `queue.rs` who stands where, `room.rs` where there is room.

mod line;
mod queue;
mod room;

use std::time::Duration;

pub use line::AdmissionCounts;
pub(super) use line::Line;
pub(super) use queue::Place;
pub use queue::Ticket;
use queue::{PLACE_KEPT, Parked};

use super::cache::Standing;
use super::plan::Plan;
use super::router::Chosen;
use super::settings::{AdmissionMode, Overdue};
use super::turn::{Refusal, RefusedWhy};
use super::{Ask, Key, Placement, ReplicaId, Router, Time, Turn, Verdict};

/// Where a conversation gets its home, and by what that was chosen.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    pub replica: ReplicaId,
    pub by: Placement,
}

/// Where a parked request goes on to.
enum Goes {
    Home(ReplicaId),
    To(Fit),
    /// Affinity has been turned off: it needs no home.
    Apart(Chosen),
}

/// A parked request whose wait is over.
#[derive(Debug)]
pub struct Woken {
    pub ticket: Ticket,
    pub verdict: Verdict,
}

impl Router {
    /// Whether new conversations wait for room.
    pub(super) fn admits(&self) -> bool {
        self.settings.affinity && self.settings.admission.mode == AdmissionMode::Auto
    }

    /// Whether a conversation has its place at home, or at least its cache there, so that it goes home without waiting.
    pub(super) fn is_settled(&self, home: ReplicaId, key: &Key) -> bool {
        match self.caches.standing(home, key) {
            Standing::Placed | Standing::Resident => true,
            Standing::Rotated => self.line.queue.is_empty(),
            Standing::Gone => false,
        }
    }

    /// Whether a conversation that has neither place nor cache goes to a replica with room for it, or waits.
    pub(super) fn plan_admission(&mut self, ask: &Ask, key: Key, now: Time) -> Option<Plan> {
        if self.candidates.is_empty() {
            return None;
        }
        if self.line.queue.is_empty()
            && let Some(fit) = self.with_room(ask, &key, now)
        {
            return Some(Plan::Admit(key, fit));
        }
        // Whoever comes back to a place that is kept for it is in the line already.
        if self.line.queue.len() >= self.settings.admission.parked_max && !self.line.queue.keeps_place(&key, now) {
            let retry_after_s = self.line.retry_after_s(self.settings.admission.max_wait);
            return Some(Plan::Full(Refusal { why: RefusedWhy::Full, retry_after_s }));
        }
        Some(Plan::Park(key))
    }

    /// Admits a conversation that need not wait.
    pub(super) fn admit_at_once(&mut self, ask: &Ask, key: Key, fit: Fit, now: Time) -> Turn {
        let place = self.line.queue.number();
        self.admit(ask, key, fit, place, now)
    }

    pub(super) fn park(&mut self, ask: &Ask, key: Key, now: Time) -> Ticket {
        self.line.counts.parked += 1;
        let had = self.place_had(&key, now);
        self.line.queue.park(*ask, key, had, now)
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) -> Refusal {
        self.line.counts.full += 1;
        refusal
    }

    /// Whose wait is over now. To be asked whenever a turn has ended, and every 100 ms besides.
    pub fn woken(&mut self, now: Time) -> Vec<Woken> {
        self.let_trials_come(now);
        let mut woken = Vec::new();
        while let Some(one) = self.wake_one(now) {
            woken.push(one);
        }
        woken
    }

    /// Takes a parked request out of the line whose client left. Its conversation's place in it is kept for a while.
    pub fn leave(&mut self, ticket: Ticket, now: Time) {
        if self.line.queue.leave(ticket, self.settings.admission.parked_max, now).is_some() {
            self.line.counts.left += 1;
        }
    }

    fn wake_one(&mut self, now: Time) -> Option<Woken> {
        let (ticket, parked) = self.line.queue.first()?;
        // The settings may be others meanwhile, or another request of its conversation may have found a place.
        if !self.settings.affinity
            && let Some(chosen) = self.unrouted(&[], now)
        {
            return self.let_go(ticket, Goes::Apart(chosen), now);
        }
        if let Some(home) = self.home_to_go_to(&parked.key) {
            return self.let_go(ticket, Goes::Home(home), now);
        }
        let fit = match self.admits() {
            true => self.with_room(&parked.ask, &parked.key, now),
            false => self.by_load(&parked.key, &[], now).map(|fit| Fit { by: Placement::WaitsNoMore, ..fit }),
        };
        if let Some(fit) = fit {
            return self.let_go(ticket, Goes::To(fit), now);
        }
        let (ticket, parked) = self.line.queue.overdue(self.settings.admission.max_wait, now)?;
        if self.settings.admission.overdue == Overdue::Admit
            && let Some(fit) = self.anywhere(&parked, now)
        {
            self.line.counts.forced += 1;
            return self.let_go(ticket, Goes::To(fit), now);
        }
        self.line.queue.leave(ticket, self.settings.admission.parked_max, now)?;
        self.line.counts.overdue += 1;
        let refusal = Refusal { why: RefusedWhy::Overdue, retry_after_s: 1 };
        Some(Woken { ticket, verdict: Verdict::Refused(refusal) })
    }

    fn let_go(&mut self, ticket: Ticket, goes: Goes, now: Time) -> Option<Woken> {
        let Parked { ask, key, place, .. } = self.line.queue.admit(ticket)?;
        self.line.counts.admitted += 1;
        let turn = match goes {
            Goes::Home(home) => self.send_home(&ask, key, home, now),
            Goes::To(fit) => self.admit(&ask, key, fit, place, now),
            Goes::Apart(chosen) => self.send_apart(&ask, chosen, now),
        };
        Some(Woken { ticket, verdict: Verdict::Go(turn) })
    }

    /// Gives a conversation its home, and notes its place in the line: it comes before those who came later.
    fn admit(&mut self, ask: &Ask, key: Key, fit: Fit, place: Place, now: Time) -> Turn {
        self.line.note_admission(now);
        let turn = self.place(ask, key, fit, now);
        self.conversations.set_place(&key, Some(place));
        turn
    }

    /// Counts what would have waited, were admission in force.
    pub(super) fn observe(&mut self, ask: &Ask, key: &Key, now: Time) {
        let waits = self.settings.admission.mode == AdmissionMode::Observe
            && !self.usable_home(key).is_some_and(|home| self.is_settled(home, key))
            && self.with_room(ask, key, now).is_none();
        self.line.counts.would_park += u64::from(waits);
    }

    /// The place in the line that a conversation had which lost its cache in the middle of its work: it came before those
    /// who wait for their first turn.
    fn place_had(&self, key: &Key, now: Time) -> Option<Place> {
        let last_ended = self.conversations.last_ended(key)?;
        self.conversations.place(key).filter(|_| now.since(last_ended) <= PLACE_KEPT)
    }

    /// Notes how long a conversation paused before the turn that has just come.
    pub(super) fn note_pause(&mut self, key: &Key, now: Time) {
        let Some(home) = self.conversations.home(key) else { return };
        if !self.caches.is_running(home, key)
            && let Some(pause) = self.conversations.take_pause(key, now)
        {
            self.caches.note_pause(pause);
        }
    }

    /// How long an idle conversation keeps its place.
    pub(super) fn linger(&self) -> Duration {
        self.settings.admission.linger.unwrap_or_else(|| self.caches.linger())
    }
}
