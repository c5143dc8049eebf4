use std::sync::Arc;

use super::{Engine, Model, now};
use crate::routing::{Ask, Decision, Retry, Target, Tokens, Turn, Verdict};

/// A request on its way to a replica: counted in there when made, counted out when dropped, whatever ends it.
pub struct InFlight {
    model: Arc<Model>,
    ask: Ask,
    way: Way,
    /// The name of the replica that it is sent to now.
    replica: String,
    /// Engines tried, the present one last.
    tried: Vec<usize>,
}

/// What a request is to the router.
enum Way {
    /// A turn, counted in; the tokens that the engine reported for it.
    Turn(Turn, Option<Tokens>),
    /// No turn of a conversation (counting tokens, rendering): counted nowhere.
    Follows(Target),
}

impl InFlight {
    /// Routes a request that generates. None: the model has no engine.
    pub fn route(model: Arc<Model>, ask: Ask) -> Option<InFlight> {
        let mut router = model.router.lock();
        let Verdict::Go(turn) = router.route(&ask, now())? else { return None };
        let (tried, replica) = (vec![turn.target.engine], router.replica_name(&turn.target));
        drop(router);
        Some(InFlight { model, ask, way: Way::Turn(turn, None), replica, tried })
    }

    /// Sends a request after its conversation that generates nothing: it is counted in no decision and not in flight.
    pub fn follow(model: Arc<Model>, ask: Ask) -> Option<InFlight> {
        let router = model.router.lock();
        let target = router.follow(&ask, &[], now())?;
        let replica = router.replica_name(&target);
        drop(router);
        Some(InFlight { model, ask, way: Way::Follows(target), replica, tried: vec![target.engine] })
    }

    /// Moves to an engine not yet tried. False: there is none, and the request stays where it is.
    pub fn fail_over(&mut self, why: Retry) -> bool {
        let mut router = self.model.router.lock();
        let moved = match &mut self.way {
            Way::Turn(turn, _) => {
                router.retry(&self.ask, turn, &self.tried, why, now()).map(|next| *turn = next).is_some()
            }
            Way::Follows(target) => router.follow(&self.ask, &self.tried, now()).map(|next| *target = next).is_some(),
        };
        if moved {
            self.replica = router.replica_name(self.target());
            self.tried.push(self.target().engine);
        }
        moved
    }

    fn target(&self) -> &Target {
        match &self.way {
            Way::Turn(turn, _) => &turn.target,
            Way::Follows(target) => target,
        }
    }

    /// Engines tried so far, the present one included.
    pub fn tries(&self) -> usize {
        self.tried.len()
    }

    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Why the request went where it went first; none if it was only sent after its conversation.
    pub fn decision(&self) -> Option<Decision> {
        match &self.way {
            Way::Turn(turn, _) => Some(turn.decision),
            Way::Follows(_) => None,
        }
    }

    /// The engine that it is sent to now.
    pub fn engine(&self) -> Arc<Engine> {
        self.model.engine(self.target())
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
        if let Way::Turn(turn, tokens) = &self.way {
            self.model.router.lock().finish(turn, *tokens, now());
        }
    }
}
