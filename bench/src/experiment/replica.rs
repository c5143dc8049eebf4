use crate::engine::{Engine, Profile, Request, Snapshot, Step};

/// An engine with the step that it is doing.
pub struct Replica {
    pub engine: Engine,
    step: Option<Step>,
    /// What the engine will say of itself when the step has ended.
    after_step: Snapshot,
    /// What it said when the last step ended.
    said: Snapshot,
    /// Requests sent to it by the balancer and not over.
    pub in_flight: u32,
}

impl Replica {
    /// A replica with `speed` times the profile's speed.
    pub fn new(profile: Profile, speed: f64) -> Self {
        let mut engine = Engine::new(profile);
        engine.set_slowdown(1.0 / speed);
        Self { engine, step: None, after_step: Snapshot::default(), said: Snapshot::default(), in_flight: 0 }
    }

    /// Takes a request. Returns when the step ends that this made it begin, if it was idle.
    pub fn submit(&mut self, now_s: f64, request: Request) -> Option<f64> {
        self.engine.submit(now_s, request).expect("a load's contexts fit the engine");
        if self.step.is_some() { None } else { self.begin_step(now_s) }
    }

    /// Ends the step. Returns it and when the next one ends, if there is anything to do.
    pub fn end_step(&mut self, now_s: f64) -> (Step, Option<f64>) {
        let step = self.step.take().expect("a step ends that has begun");
        self.said = self.after_step;
        (step, self.begin_step(now_s))
    }

    /// What the engine last said of itself: what was sent to it during a step is not in it before the next one ends.
    pub fn said(&self) -> Snapshot {
        self.said
    }

    fn begin_step(&mut self, now_s: f64) -> Option<f64> {
        self.step = self.engine.next_step(now_s);
        self.after_step = self.engine.snapshot();
        self.step.as_ref().map(|step| step.end_s)
    }
}
