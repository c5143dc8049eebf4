//! Where a turn is sent.

use std::sync::Arc;

use parking_lot::Mutex;

use super::conversation::Conversation;
use super::pace::Clock;
use super::request::Target;
use crate::engine::{Prompt, Snapshot};
use crate::experiment::{Arm, Asked, Choice};
use crate::load::Call;

/// How turns reach an engine.
#[derive(Clone)]
pub enum Via {
    /// All at one address: an engine, or a balancer that chooses one.
    Address(Target),
    /// Straight: the client plays the balancer.
    Arm(Arc<Chooser>),
}

impl From<Target> for Via {
    fn from(target: Target) -> Self {
        Self::Address(target)
    }
}

impl Via {
    /// Each turn to the engine that `arm` chooses from these. The blocks of the prompts that it sees have `block_size` tokens.
    pub fn arm(arm: Box<dyn Arm>, engines: Vec<Target>, block_size: u32) -> Self {
        Self::Arm(Arc::new(Chooser { engines, block_size, arm: Mutex::new(arm) }))
    }

    /// Finds a place for a turn.
    pub fn place(&self, call: &Call, conversation: &Conversation, clock: &Clock) -> Placed<'_> {
        match self {
            Self::Address(target) => Placed { target, chosen: None },
            Self::Arm(chooser) => {
                let prompt = conversation.prompt(chooser.block_size);
                let choice = chooser.choose(call, &prompt, clock);
                Placed { target: &chooser.engines[choice.replica], chosen: Some((chooser, choice)) }
            }
        }
    }
}

/// An arm before engines of a port each.
pub struct Chooser {
    pub engines: Vec<Target>,
    block_size: u32,
    arm: Mutex<Box<dyn Arm>>,
}

impl Chooser {
    fn choose(&self, call: &Call, prompt: &Prompt, clock: &Clock) -> Choice {
        let mut arm = self.arm.lock();
        arm.route(&Asked { now_s: clock.now_s(), session_key: call.session_key, turn: call.id, prompt })
    }

    /// Seconds, by the load's clock, between two readings of the engines; none if the arm does without.
    pub fn reading_every_s(&self) -> Option<f64> {
        self.arm.lock().reading_every_s()
    }

    /// Tells the arm what the engines say.
    pub fn read(&self, now_s: f64, said: &[Snapshot]) {
        self.arm.lock().read(now_s, said);
    }
}

/// A turn's place. An arm that chose it learns that the turn is over when this is dropped, whatever ended it.
pub struct Placed<'a> {
    pub target: &'a Target,
    chosen: Option<(&'a Chooser, Choice)>,
}

impl Placed<'_> {
    /// What was chosen; none where that is not done here.
    pub fn choice(&self) -> Option<Choice> {
        self.chosen.map(|(_, choice)| choice)
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        if let Some((chooser, choice)) = self.chosen {
            chooser.arm.lock().finish(choice.replica);
        }
    }
}
