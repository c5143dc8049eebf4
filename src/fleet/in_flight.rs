use std::sync::Arc;
use std::time::Duration;

use super::revive::hang_limit;
use super::{Engine, Model, Routed, now};
use crate::panics::contained_now;
use crate::routing::{
    Ask, Attempt, CacheOutcome, ConversationHash, Decision, Key, Reason, Retry, Router, State, Target, Tokens, Turn,
};

/// Tries of one request at most: the first and two more.
pub const TRIES_MAX: usize = 3;

/// A request on its way to a replica: counted in there when made, counted out at its end, whatever ends it.
pub struct InFlight {
    model: Arc<Model>,
    ask: Ask,
    way: Way,
    /// The engine that it is sent to now: kept, since the index of one that is gone may be given to another.
    engine: Arc<Engine>,
    /// The name of the replica that it is sent to now.
    replica: String,
    /// Why it was sent where it went first; none if it is no turn.
    reason: Option<Reason>,
    /// Its tries, the present one last.
    tried: Vec<Attempt>,
    /// Whether it is counted in and not yet out.
    counted_in: bool,
}

/// Tells whether a request that waits somewhere could go somewhere else.
pub struct Elsewhere {
    model: Arc<Model>,
    ask: Ask,
    tried: Vec<Attempt>,
}

impl Elsewhere {
    /// Whether an engine that is up, and has not been tried since it came back, could take it now.
    pub fn is_open(&self) -> bool {
        self.tried.len() < TRIES_MAX && self.model.router.lock().could_go_elsewhere(&self.ask, &self.tried)
    }
}

/// What a request is to the router.
enum Way {
    /// A turn.
    Turn(Turn),
    /// No turn of a conversation (counting tokens, rendering): counted nowhere.
    Follows(Target),
}

impl InFlight {
    /// A turn that `router` has just counted in.
    pub(super) fn of_turn(model: &Arc<Model>, router: &Router, ask: Ask, turn: Turn) -> InFlight {
        InFlight {
            model: model.clone(),
            ask,
            engine: model.engine(&turn.target),
            replica: router.replica_name(&turn.target),
            reason: Some(router.reason(&turn)),
            tried: vec![router.attempt(turn.target.engine)],
            way: Way::Turn(turn),
            counted_in: true,
        }
    }

    /// Sends a request after its conversation that generates nothing: it is counted in no decision and not in flight.
    /// None: the model has no engine.
    pub fn follow(model: Arc<Model>, ask: Ask) -> Option<Routed> {
        let router = model.router.lock();
        if router.is_gone(&ask) {
            return Some(Routed::Gone);
        }
        let target = router.follow(&ask, &[], now())?;
        let (engine, replica) = (model.engine(&target), router.replica_name(&target));
        let (way, tried) = (Way::Follows(target), vec![router.attempt(target.engine)]);
        drop(router);
        Some(Routed::Sent(InFlight { model, ask, way, engine, replica, reason: None, tried, counted_in: false }))
    }

    /// After how long a silence the engine that it is sent to now would count as hung.
    pub fn hang_limit(&self) -> Duration {
        let reading = self.model.router.lock().reading_time(self.target().engine);
        hang_limit(&self.model, reading)
    }

    /// For asking later whether it could go to another engine.
    pub fn elsewhere(&self) -> Elsewhere {
        Elsewhere { model: self.model.clone(), ask: self.ask, tried: self.tried.clone() }
    }

    /// Moves to an engine not yet tried, or not since it came back. False: there is none, or there were enough tries, and the
    /// request stays where it is.
    pub fn fail_over(&mut self, why: Retry) -> bool {
        if self.tries() >= TRIES_MAX {
            return false;
        }
        let mut router = self.model.router.lock();
        let moved = match &mut self.way {
            Way::Turn(turn) => {
                router.retry(&self.ask, turn, &self.tried, why, now()).map(|next| *turn = next).is_some()
            }
            Way::Follows(target) => router.follow(&self.ask, &self.tried, now()).map(|next| *target = next).is_some(),
        };
        if moved {
            self.engine = self.model.engine(self.target());
            self.replica = router.replica_name(self.target());
            self.tried.push(router.attempt(self.target().engine));
            drop(router);
            self.model.wake();
        }
        moved
    }

    /// The try failed in a way that says nothing of the request.
    pub fn failed(&self) {
        self.learn(|router, attempt| router.failed(attempt, now()));
    }

    /// The engine has begun to answer.
    pub fn answered(&self) {
        self.learn(|router, attempt| router.answered(attempt));
    }

    /// Has the router learn something of the present try.
    fn learn(&self, learn: impl FnOnce(&mut Router, &Attempt) -> bool) {
        if let Some(attempt) = self.tried.last() {
            self.model.learn(attempt.engine, &self.engine, "", |router| learn(router, attempt));
        }
    }

    /// The engine keeps something that later requests name.
    pub fn keeps(&self, key: Key) {
        self.model.router.lock().keeps(self.target(), key);
    }

    /// Whether the engine alone has what the request names, and is out.
    pub fn is_lost(&self) -> bool {
        let router = self.model.router.lock();
        self.ask.stored.is_some_and(|key| router.knows(&key)) && !router.serves(self.target().engine)
    }

    /// Whether the engine fails its checks, as far as is known now.
    pub fn is_out(&self) -> bool {
        self.model.router.lock().state(self.target().engine) == State::Out
    }

    /// The first byte of a streamed answer has come.
    pub fn began(&mut self) {
        if let Way::Turn(turn) = &mut self.way {
            self.model.router.lock().began(turn, now());
        }
    }

    /// Counts the request out; `tokens` are those that the engine reported for it. Says what became of its
    /// conversation's cache, where that can be told.
    pub fn finish(&mut self, tokens: Option<Tokens>) -> Option<CacheOutcome> {
        if !self.counted_in {
            return None;
        }
        let outcome = self.count_out(tokens);
        self.model.wake();
        outcome
    }

    /// Counts the request out and wakes nobody: for who does that next anyway.
    pub(super) fn count_out_quietly(mut self) {
        self.count_out(None);
    }

    fn count_out(&mut self, tokens: Option<Tokens>) -> Option<CacheOutcome> {
        self.counted_in = false;
        match &self.way {
            Way::Turn(turn) => self.model.router.lock().finish(turn, tokens, now()),
            Way::Follows(_) => None,
        }
    }

    fn target(&self) -> &Target {
        match &self.way {
            Way::Turn(turn) => &turn.target,
            Way::Follows(target) => target,
        }
    }

    /// Tries so far, the present one included.
    pub fn tries(&self) -> usize {
        self.tried.len()
    }

    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Why the request went where it went first; none if it was only sent after its conversation.
    pub fn decision(&self) -> Option<Decision> {
        match &self.way {
            Way::Turn(turn) => Some(turn.decision),
            Way::Follows(_) => None,
        }
    }

    /// Its decision, and why; none if it was only sent after its conversation.
    pub fn decided(&self) -> Option<(Decision, Reason)> {
        let failed_over_to = (self.tries() > 1).then(|| self.replica.clone());
        Some((self.decision()?, Reason { failed_over_to, ..self.reason.clone()? }))
    }

    /// Its conversation, as it may be shown.
    pub fn conversation(&self) -> Option<ConversationHash> {
        self.ask.key.map(|key| key.shown())
    }

    /// The engine has generated something for it.
    pub fn shows_life(&self) {
        self.engine.life.sign();
    }

    /// Whether it is counted among those in flight at its engine.
    pub fn is_counted(&self) -> bool {
        self.counted_in
    }

    /// The engine that it is sent to now.
    pub fn engine(&self) -> Arc<Engine> {
        self.engine.clone()
    }

    /// The data-parallel rank to name to the engine; none: what the client sent stands.
    pub fn rank(&self) -> Option<u32> {
        self.target().rank
    }

    /// `host:port`, or `host:port#rank`.
    pub fn replica(&self) -> &str {
        &self.replica
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // It may be a panic that drops it, and a second one out of here would end the process.
        let _ = contained_now(|| self.finish(None));
    }
}
