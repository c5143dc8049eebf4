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
        let deciding = Mutex::new(Deciding { arm, choices: Vec::new() });
        Self::Arm(Arc::new(Chooser { engines, block_size, deciding }))
    }

    /// Finds a place for the turn of this index.
    pub fn place<'a>(&'a self, turn: usize, call: &Call, conversation: &Conversation, clock: &'a Clock) -> Placed<'a> {
        match self {
            Self::Address(target) => Placed { target, chosen: None },
            Self::Arm(chooser) => {
                let prompt = conversation.prompt(chooser.block_size);
                let replica = chooser.choose(turn, call, &prompt, clock);
                let chosen = Chosen { chooser, clock, request: turn as RequestId, replica };
                Placed { target: &chooser.engines[replica], chosen: Some(chosen) }
            }
        }
    }

    /// What was chosen here so far, by the index of the turn.
    pub fn choices(&self) -> Vec<(usize, Choice)> {
        match self {
            Self::Address(_) => Vec::new(),
            Self::Arm(chooser) => chooser.deciding.lock().choices.clone(),
        }
    }
}

/// An arm before engines of a port each.
pub struct Chooser {
    pub engines: Vec<Target>,
    block_size: u32,
    deciding: Mutex<Deciding>,
}

struct Deciding {
    arm: Box<dyn Arm>,
    choices: Vec<(usize, Choice)>,
}

impl Chooser {
    fn choose(&self, turn: usize, call: &Call, prompt: &Prompt, clock: &Clock) -> usize {
        let mut deciding = self.deciding.lock();
        let (now_s, request) = (clock.now_s(), turn as RequestId);
        let asked = Asked { now_s, request, session_key: call.session_key, turn: call.id, prompt };
        let Answer::Goes(choice) = deciding.arm.route(&asked) else {
            panic!("an arm that lets turns wait runs through the balancer, not in the client")
        };
        deciding.choices.push((turn, choice));
        choice.replica
    }

    /// Seconds, by the load's clock, between two readings of the engines; none if the arm does without.
    pub fn reading_every_s(&self) -> Option<f64> {
        self.deciding.lock().arm.reading_every_s()
    }

    /// Tells the arm what the engines say.
    pub fn read(&self, now_s: f64, said: &[Snapshot]) {
        self.deciding.lock().arm.read(now_s, said);
    }
}

/// A turn's place. An arm that chose it learns that the turn is over when this is dropped, whatever ended it.
pub struct Placed<'a> {
    pub target: &'a Target,
    chosen: Option<Chosen<'a>>,
}

#[derive(Clone, Copy)]
struct Chosen<'a> {
    chooser: &'a Chooser,
    clock: &'a Clock,
    request: RequestId,
    replica: usize,
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        if let Some(Chosen { chooser, clock, request, replica }) = self.chosen {
            let finished = Finished { now_s: clock.now_s(), request, replica, usage: None };
            chooser.deciding.lock().arm.finish(&finished);
        }
    }
}
