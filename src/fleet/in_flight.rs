use std::sync::Arc;

use super::{Engine, Model, now};
use crate::routing::{Ask, Decision, Retry, Target};

/// A request on its way to a replica: counted in there when made, counted out when dropped, whatever ends it.
pub struct InFlight {
    model: Arc<Model>,
    ask: Ask,
    target: Target,
    /// The name of the replica that it is sent to now.
    replica: String,
    /// None: no turn of a conversation (counting tokens, rendering); counted nowhere.
    decision: Option<Decision>,
    /// Engines tried, the present one last.
    tried: Vec<usize>,
}

impl InFlight {
    /// Routes a request that generates. None: the model has no engine.
    pub fn route(model: Arc<Model>, ask: Ask) -> Option<InFlight> {
        let mut router = model.router.lock();
        let route = router.route(&ask, now())?;
        let (target, replica) = (route.target, router.replica_name(&route.target));
        drop(router);
        Some(InFlight { model, ask, target, replica, decision: Some(route.decision), tried: vec![target.engine] })
    }

    /// Sends a request after its conversation that generates nothing: it is counted in no decision and not in flight.
    pub fn follow(model: Arc<Model>, ask: Ask) -> Option<InFlight> {
        let router = model.router.lock();
        let target = router.follow(&ask, &[], now())?;
        let replica = router.replica_name(&target);
        drop(router);
        Some(InFlight { model, ask, target, replica, decision: None, tried: vec![target.engine] })
    }

    /// Moves to an engine not yet tried. False: there is none, and the request stays where it is.
    pub fn fail_over(&mut self, why: Retry) -> bool {
        let mut router = self.model.router.lock();
        let next = match self.decision {
            Some(_) => router.retry(&self.ask, &self.tried, why, now()),
            None => router.follow(&self.ask, &self.tried, now()),
        };
        let Some(target) = next else { return false };
        if self.decision.is_some() {
            router.finish(&self.target);
        }
        self.replica = router.replica_name(&target);
        self.target = target;
        self.tried.push(target.engine);
        true
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
        self.decision
    }

    /// The engine that it is sent to now.
    pub fn engine(&self) -> Arc<Engine> {
        self.model.engine(&self.target)
    }

    /// The data-parallel rank to name to the engine; none: what the client sent stands.
    pub fn rank(&self) -> Option<u32> {
        self.target.rank
    }

    /// `host:port`, or `host:port#rank`.
    pub fn replica(&self) -> &str {
        &self.replica
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.decision.is_some() {
            self.model.router.lock().finish(&self.target);
        }
    }
}
