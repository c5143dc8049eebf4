//! Whether new requests go to an engine: facts that are kept apart, and the one state that follows from them.

use super::{Router, Suspicion};

/// Whether new requests go to an engine, the best first. Those of the best state that there is are chosen from: so one that
/// is not up is used only where no better one is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// In use; also before its first reading.
    #[default]
    Up,
    /// It answers its checks, and does not serve as it should.
    Suspect,
    /// Failed its checks.
    Out,
    /// Sleeps: a request would hang.
    Asleep,
    /// Told to drain, or no longer configured: what it has in flight ends there.
    Draining,
}

impl State {
    /// All states, in the order in which they are reported.
    pub const ALL: [State; 5] = [State::Up, State::Suspect, State::Out, State::Asleep, State::Draining];

    /// The name in metrics, JSON and logs.
    pub fn name(self) -> &'static str {
        match self {
            State::Up => "up",
            State::Suspect => "suspect",
            State::Out => "out",
            State::Asleep => "asleep",
            State::Draining => "draining",
        }
    }
}

/// Why an engine is not up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    Suspect(Suspicion),
    FailsChecks,
    Sleeps,
    ToldToDrain,
    NotConfigured,
}

impl Trouble {
    /// The state that it puts an engine in.
    pub fn state(self) -> State {
        match self {
            Trouble::Suspect(_) => State::Suspect,
            Trouble::FailsChecks => State::Out,
            Trouble::Sleeps => State::Asleep,
            Trouble::ToldToDrain | Trouble::NotConfigured => State::Draining,
        }
    }

    /// In a few words.
    pub fn sentence(self) -> String {
        match self {
            Trouble::Suspect(suspicion) => suspicion.sentence(),
            Trouble::FailsChecks => "failed its checks".into(),
            Trouble::Sleeps => "sleeps".into(),
            Trouble::ToldToDrain => "told to drain".into(),
            Trouble::NotConfigured => "no longer configured".into(),
        }
    }
}

/// What is known of an engine, each fact from its own source, so that none undoes another.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// It is among the engines configured.
    pub configured: bool,
    told_to_drain: bool,
    asleep: bool,
    answers: bool,
    suspicion: Option<Suspicion>,
}

impl Health {
    /// An engine that is configured and of which nothing bad is known.
    pub fn new() -> Health {
        Health { configured: true, told_to_drain: false, asleep: false, answers: true, suspicion: None }
    }

    /// The state that follows.
    pub fn state(&self) -> State {
        self.trouble().map_or(State::Up, Trouble::state)
    }

    /// The worst that is known of it.
    pub fn trouble(&self) -> Option<Trouble> {
        match *self {
            Health { configured: false, .. } => Some(Trouble::NotConfigured),
            Health { told_to_drain: true, .. } => Some(Trouble::ToldToDrain),
            Health { asleep: true, .. } => Some(Trouble::Sleeps),
            Health { answers: false, .. } => Some(Trouble::FailsChecks),
            Health { suspicion, .. } => suspicion.map(Trouble::Suspect),
        }
    }

    /// Whether an answer can be expected of it, wanted or not.
    fn serves(&self) -> bool {
        self.configured && self.answers && !self.asleep
    }
}

/// What becomes known of an engine. Each says whether the engine's state is another from now on.
impl Router {
    /// It has answered its checks, or failed them.
    pub fn set_up(&mut self, engine: usize, answers: bool) -> bool {
        self.learn(engine, |health| health.answers = answers)
    }

    /// It answers its checks and yet does not serve as it should, for this reason; none: it does.
    pub fn set_suspect(&mut self, engine: usize, suspicion: Option<Suspicion>) -> bool {
        self.learn(engine, |health| health.suspicion = suspicion)
    }

    /// It has gone to sleep, which empties its cache, or has woken.
    pub fn set_asleep(&mut self, engine: usize, asleep: bool) -> bool {
        if asleep && !self.engines[engine].health.asleep {
            self.engines[engine].ids().for_each(|id| self.caches.clear(id));
        }
        self.learn(engine, |health| health.asleep = asleep)
    }

    /// It is to take no new conversation and to lose those that it has at their next turn, or no longer so.
    pub fn set_draining(&mut self, engine: usize, draining: bool) -> bool {
        self.learn(engine, |health| health.told_to_drain = draining)
    }

    /// Its state.
    pub fn state(&self, engine: usize) -> State {
        self.engines[engine].health.state()
    }

    /// Why it is not up; none: it is.
    pub fn trouble(&self, engine: usize) -> Option<Trouble> {
        self.engines[engine].health.trouble()
    }

    /// Whether an answer can be expected of it, though it may be draining or suspect.
    pub fn serves(&self, engine: usize) -> bool {
        self.engines[engine].health.serves()
    }

    fn learn(&mut self, engine: usize, note: impl FnOnce(&mut Health)) -> bool {
        let health = &mut self.engines[engine].health;
        let before = health.state();
        note(health);
        let changed = health.state() != before;
        if changed {
            self.set_candidates();
        }
        changed
    }
}
