//! Requests that wait for room: who is told when a wait is over, and how a wait ends before that.
//!
//! The router keeps the line; each model keeps, beside its router, the other end of every wait. The two change together
//! under the router's lock. A guard is never sent or dropped under it, since dropping one takes it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::sync::oneshot;

use super::{InFlight, Model, now};
use crate::live::Current;
use crate::panics::{contained_now, rehearse};
use crate::routing::{Ask, Refusal, RefusedWhy, Ticket, Verdict};

/// How often those are looked for whose wait ends by time alone.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What became of a request that was to be routed.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and most are the large one")]
pub enum Routed {
    Sent(InFlight),
    Parked(Wait),
    Refused(Refusal),
    /// What it names was kept by an engine that is gone.
    Gone,
}

/// How a wait ends.
pub type Waited = Result<InFlight, Refusal>;

/// The model's ends of all waits.
#[derive(Default)]
pub struct Waits(Mutex<HashMap<Ticket, Waiting>>);

struct Waiting {
    ask: Ask,
    tell: oneshot::Sender<Waited>,
}

/// A request that waits for room. Dropped before its wait is over, it leaves the line.
pub struct Wait {
    model: Arc<Model>,
    ticket: Ticket,
    told: oneshot::Receiver<Waited>,
    over: bool,
}

impl Model {
    /// Routes a request that generates. None: the model has no engine.
    pub fn route(self: &Arc<Model>, ask: Ask) -> Option<Routed> {
        let mut router = self.router.lock();
        rehearse("routing");
        Some(match router.route(&ask, now())? {
            Verdict::Go(turn) => Routed::Sent(InFlight::of_turn(self, &router, ask, turn)),
            Verdict::Parked(ticket) => {
                let (tell, told) = oneshot::channel();
                self.waits.0.lock().insert(ticket, Waiting { ask, tell });
                Routed::Parked(Wait { model: self.clone(), ticket, told, over: false })
            }
            Verdict::Refused(refusal) => Routed::Refused(refusal),
            Verdict::Gone => Routed::Gone,
        })
    }

    /// Lets those go whose wait is over. To be called whenever the router may have room that it had not before.
    pub fn wake(self: &Arc<Model>) {
        while self.has_parked() {
            let woken = self.woken();
            // One whose client has left meanwhile makes room for another.
            let unheard: Vec<InFlight> =
                woken.into_iter().filter_map(|(waiting, end)| waiting.tell.send(end).err()?.ok()).collect();
            if unheard.is_empty() {
                return;
            }
            unheard.into_iter().for_each(InFlight::count_out_quietly);
        }
    }

    fn woken(self: &Arc<Model>) -> Vec<(Waiting, Waited)> {
        // Made before the locks are taken: in a panic it is dropped after they are released, as guards have to be.
        let mut ended = Vec::new();
        let mut router = self.router.lock();
        let mut waits = self.waits.0.lock();
        for woken in router.woken(now()) {
            let Some(waiting) = waits.remove(&woken.ticket) else { continue };
            let end = match woken.verdict {
                Verdict::Go(turn) => Ok(InFlight::of_turn(self, &router, waiting.ask, turn)),
                Verdict::Refused(refusal) => Err(refusal),
                Verdict::Parked(_) | Verdict::Gone => continue,
            };
            ended.push((waiting, end));
        }
        ended
    }

    /// Whether anyone waits.
    fn has_parked(&self) -> bool {
        !self.waits.0.lock().is_empty()
    }
}

impl Wait {
    /// Ends when there is room, or there was none for too long.
    pub async fn end(&mut self) -> Waited {
        let told = (&mut self.told).await;
        self.over = true;
        // The model keeps its end until it has told: this never comes of itself.
        told.unwrap_or(Err(Refusal { why: RefusedWhy::Overdue, retry_after_s: 1 }))
    }

    /// Leaves the line. Some: its wait was over at that very moment.
    pub async fn leave(mut self) -> Option<Waited> {
        if self.step_out() {
            return None;
        }
        Some(self.end().await)
    }

    /// Returns whether it still stood in line.
    fn step_out(&mut self) -> bool {
        let mut router = self.model.router.lock();
        router.leave(self.ticket, now());
        let stood = self.model.waits.0.lock().remove(&self.ticket).is_some();
        drop(router);
        if stood {
            self.over = true;
            // Those behind it may need less room.
            self.model.wake();
        }
        stood
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if !self.over {
            // It may be a panic that drops it, and a second one out of here would end the process.
            let _ = contained_now(|| self.step_out());
        }
    }
}

/// Wakes those whose wait ends by time alone: one who has waited for too long, or for whom another lingered long enough.
/// A shutdown does not end it: who waits then is in flight like anyone else.
pub struct WakeService(pub Current);

#[async_trait]
impl BackgroundService for WakeService {
    async fn start(&self, _shutdown: ShutdownWatch) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            rehearse("wake");
            let fleet = self.0.load().fleet.clone();
            fleet.models().iter().filter(|model| model.has_parked()).for_each(|model| model.wake());
        }
    }
}
