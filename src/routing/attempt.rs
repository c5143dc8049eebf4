use super::Router;

/// A try of a request at an engine, by which its outcome is told from those of requests sent before and since.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The engine's place in the router's list.
    pub engine: usize,
    /// How often the engine's circuit had opened when the request was sent.
    pub(super) openings: u64,
    /// How often the engine had come back.
    returns: u64,
}

impl Attempt {
    /// Whether it is at the engine of `earlier`, which has not come back between the two.
    pub fn repeats(&self, earlier: &Attempt) -> bool {
        (self.engine, self.returns) == (earlier.engine, earlier.returns)
    }
}

impl Router {
    /// The try of a request that is sent to an engine now.
    pub fn attempt(&self, engine: usize) -> Attempt {
        let at = &self.engines[engine];
        Attempt { engine, openings: at.health.circuit.opened(), returns: at.returns }
    }

    /// Whether an engine is the last one tried, or has been tried before and not come back since.
    pub(super) fn has_tried(&self, tried: &[Attempt], engine: usize) -> bool {
        let next = self.attempt(engine);
        tried.last().is_some_and(|last| last.engine == engine) || tried.iter().any(|earlier| next.repeats(earlier))
    }
}
