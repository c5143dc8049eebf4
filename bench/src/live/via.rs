//! Where a turn is sent.

use std::sync::Arc;

use parking_lot::Mutex;

use super::conversation::Conversation;
use super::pace::Clock;
use super::request::Target;
use crate::engine::{Prompt, RequestId, Snapshot};
use crate::experiment::{Answer, Arm, Asked, Choice, Finished};
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

    /// Finds a place for the turn of this index.
    pub fn place<'a>(&'a self, turn: usize, call: &Call, conversation: &Conversation, clock: &'a Clock) -> Placed<'a> {
        match self {
            Self::Address(target) => Placed { target, chosen: None },
            Self::Arm(chooser) => {
                let prompt = conversation.prompt(chooser.block_size);
                let request = turn as RequestId;
                let choice = chooser.choose(request, call, &prompt, clock);
                let chosen = Chosen { chooser, clock, request, choice };
                Placed { target: &chooser.engines[choice.replica], chosen: Some(chosen) }
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
    fn choose(&self, request: RequestId, call: &Call, prompt: &Prompt, clock: &Clock) -> Choice {
        let mut arm = self.arm.lock();
        let asked = Asked { now_s: clock.now_s(), request, session_key: call.session_key, turn: call.id, prompt };
        match arm.route(&asked) {
            Answer::Goes(choice) => choice,
            _ => panic!("an arm that lets turns wait runs through the balancer, not in the client"),
        }
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
    chosen: Option<Chosen<'a>>,
}

struct Chosen<'a> {
    chooser: &'a Chooser,
    clock: &'a Clock,
    request: RequestId,
    choice: Choice,
}

impl Placed<'_> {
    /// What was chosen; none where that is not done here.
    pub fn choice(&self) -> Option<Choice> {
        self.chosen.as_ref().map(|chosen| chosen.choice)
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        if let Some(Chosen { chooser, clock, request, choice }) = &self.chosen {
            let (now_s, replica) = (clock.now_s(), choice.replica);
            chooser.arm.lock().finish(&Finished { now_s, request: *request, replica, usage: None });
        }
    }
}
