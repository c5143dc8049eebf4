//! Whether new requests go to an engine: facts that are kept apart, and the one state that follows from them.

use super::circuit::Circuit;
use super::{Attempt, Router, Suspicion, Time};

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

/// Whether an engine is told to drain, and what the configuration says of that.
pub(super) type Drains = (bool, bool);

/// What is known of an engine, each fact from its own source, so that none undoes another.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// It is among the engines configured.
    pub configured: bool,
    told_to_drain: bool,
    /// What the configuration says of that.
    configured_to_drain: bool,
    asleep: bool,
    answers: bool,
    suspicion: Option<Suspicion>,
    pub circuit: Circuit,
}

impl Health {
    /// Of an engine that is not configured yet.
    pub fn new() -> Health {
        Health { configured: false, ..Health::configured(Drains::default()) }
    }

    /// Of one that is, and of which nothing bad is known, but that it may be to drain.
    pub fn configured((told_to_drain, configured_to_drain): Drains) -> Health {
        Health {
            configured: true,
            told_to_drain,
            configured_to_drain,
            asleep: false,
            answers: true,
            suspicion: None,
            circuit: Circuit::default(),
        }
    }

    /// The state that follows.
    pub fn state(&self) -> State {
        self.trouble().map_or(State::Up, Trouble::state)
    }

    /// Whether the next request may go there, where `best` is the best state that any engine is in. One that is to be tried
    /// again takes a request from those that are up; where none is, it is no better than the others that are suspect.
    pub fn may_take(&self, best: State) -> bool {
        self.state() == best || best == State::Up && self.is_to_be_tried()
    }

    fn is_to_be_tried(&self) -> bool {
        self.state() == State::Suspect && self.suspicion.is_none() && self.circuit.trial_is_due()
    }

    /// The worst that is known of it.
    pub fn trouble(&self) -> Option<Trouble> {
        let fails = self.circuit.pause().map(|pause| Suspicion::Fails { pause });
        match *self {
            Health { configured: false, .. } => Some(Trouble::NotConfigured),
            Health { told_to_drain: true, .. } => Some(Trouble::ToldToDrain),
            Health { asleep: true, .. } => Some(Trouble::Sleeps),
            Health { answers: false, .. } => Some(Trouble::FailsChecks),
            Health { suspicion, .. } => suspicion.or(fails).map(Trouble::Suspect),
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
        self.learn(engine, |health| {
            if answers && !health.answers {
                health.circuit.try_soon();
            }
            health.answers = answers;
        })
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

    /// What the configuration says of draining. It counts where it says otherwise than before: so what [`Router::set_draining`]
    /// said last stands until the configuration changes in this.
    pub fn configure_draining(&mut self, engine: usize, draining: bool) -> bool {
        self.learn(engine, |health| {
            if health.configured_to_drain != draining {
                (health.configured_to_drain, health.told_to_drain) = (draining, draining);
            }
        })
    }

    pub(super) fn drains(&self, engine: usize) -> Drains {
        let health = &self.engines[engine].health;
        (health.told_to_drain, health.configured_to_drain)
    }

    /// What was so in a process before this one. It stands unless the configuration has come to say otherwise since.
    pub(super) fn restore_drains(&mut self, engine: usize, (told, configured): Drains) {
        self.learn(engine, |health| {
            if health.configured_to_drain == configured {
                health.told_to_drain = told;
            }
        });
    }

    /// A try failed in a way that says nothing of the request: no connection, closed without an answer, 502, 503. It counts
    /// where the engine has not come back since, nor its circuit opened.
    pub fn failed(&mut self, attempt: &Attempt, now: Time) -> bool {
        if !self.is_news(attempt) {
            return false;
        }
        let recovery = self.settings.recovery.clone();
        let changed = self.learn(attempt.engine, |health| health.circuit.failed(attempt.openings, &recovery, now));
        let due = self.engines[attempt.engine].health.circuit.next_trial();
        self.next_trial = [self.next_trial, due].into_iter().flatten().min();
        changed
    }

    /// The engine has begun to answer a try. It counts where the engine has not come back since, nor its circuit opened.
    pub fn answered(&mut self, attempt: &Attempt) -> bool {
        self.is_news(attempt) && self.learn(attempt.engine, |health| health.circuit.succeeded(attempt.openings))
    }

    /// Whether what becomes of a try says anything of the engine as it is now.
    fn is_news(&self, attempt: &Attempt) -> bool {
        attempt.returns == self.engines[attempt.engine].returns
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

    pub(super) fn learn(&mut self, engine: usize, note: impl FnOnce(&mut Health)) -> bool {
        let health = &mut self.engines[engine].health;
        let before = (health.state(), health.is_to_be_tried());
        note(health);
        let after = (health.state(), health.is_to_be_tried());
        if after != before {
            self.set_candidates();
        }
        if before.0 != State::Up && after.0 == State::Up {
            self.comes_back(engine);
        }
        after.0 != before.0
    }

    /// It is in use again. It is filled gently, and whoever tried it before may try it once more.
    pub(super) fn comes_back(&mut self, engine: usize) {
        self.engines[engine].returns += 1;
        self.engines[engine].ids().for_each(|id| self.returning.begin(id));
    }

    /// Lets single requests try those engines again that were left alone for long enough.
    pub(super) fn let_trials_come(&mut self, now: Time) {
        if self.next_trial.is_none_or(|due| now < due) {
            return;
        }
        for index in self.order.clone() {
            self.learn(index, |health| health.circuit.pass_time(now));
        }
        self.next_trial = self.order.iter().filter_map(|index| self.engines[*index].health.circuit.next_trial()).min();
    }
}
