//! The ways to choose a replica that the experiment compares.

mod hash;
mod homing_router;
mod in_flight;
mod least_in_flight;
mod off;
mod prefix;
mod random;
mod round_robin;

use clap::ValueEnum;
use homing::routing::{Admission, Decision};

use super::published::PublishedArm;
use crate::engine::{EngineConfig, Prompt, RequestId, Snapshot, Usage};
use crate::load::TurnId;

/// A turn that has reached the balancer.
pub struct Asked<'a> {
    pub now_s: f64,
    pub request: RequestId,
    /// What the client sent to tell its sessions apart.
    pub session_key: u64,
    pub turn: TurnId,
    pub prompt: &'a Prompt,
}

/// Where a turn goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub replica: usize,
    /// Why, for an arm that says so.
    pub decision: Option<Decision>,
}

impl From<usize> for Choice {
    fn from(replica: usize) -> Self {
        Self { replica, decision: None }
    }
}

/// What an arm says to a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Goes(Choice),
    /// It waits at the balancer: [`Arm::woken`] will say.
    Waits,
    /// It is refused and may come again after so many seconds.
    Refused {
        retry_after_s: f64,
    },
}

impl From<usize> for Answer {
    fn from(replica: usize) -> Self {
        Self::Goes(replica.into())
    }
}

/// A turn that is over.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    pub now_s: f64,
    pub request: RequestId,
    pub replica: usize,
    /// What the engine said of its tokens; none if it did not answer.
    pub usage: Option<Usage>,
}

/// Chooses replicas, from 0 on, with what a balancer can know.
pub trait Arm: Send {
    /// Where the turn goes.
    fn route(&mut self, asked: &Asked) -> Answer;

    /// The first byte of a turn's answer has passed the balancer.
    fn began(&mut self, now_s: f64, request: RequestId) {
        _ = (now_s, request);
    }

    /// A turn that was sent to a replica is over.
    fn finish(&mut self, finished: &Finished) {
        _ = finished;
    }

    /// The turns whose wait is over now.
    fn woken(&mut self, now_s: f64) -> Vec<(RequestId, Answer)> {
        _ = now_s;
        Vec::new()
    }

    /// Seconds between two looks at those who wait, besides one after every turn that ended; none if nothing ever waits.
    fn wakes_every_s(&self) -> Option<f64> {
        None
    }

    /// Seconds between two readings of the engines; none if it does without.
    fn reading_every_s(&self) -> Option<f64> {
        None
    }

    /// What each engine said of itself when its last step ended.
    fn read(&mut self, now_s: f64, replicas: &[Snapshot]) {
        _ = (now_s, replicas);
    }
}

/// The fleet that an arm stands before.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    pub replicas: usize,
    pub engine: &'a EngineConfig,
    /// Tokens of KV cache that each engine claims to have; none if it does not say.
    pub told_capacity: Option<u64>,
}

/// An arm by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum ArmKind {
    /// vLLM's own data-parallel balancer, as it was up to 0.26.
    Off,
    /// vLLM's own data-parallel balancer since 0.27.
    #[value(name = "off-0.27")]
    OffSince027,
    /// Any replica, whatever it does.
    Random,
    /// One after the other.
    RoundRobin,
    /// The replica with the fewest requests in flight.
    LeastInFlight,
    /// The session's key decides.
    Hash,
    /// Homing's rule: home, unless that is too busy.
    Affinity,
    /// Homing's rule past the knee: a new conversation waits until a cache has room for it.
    WorkingSet,
    /// The replica that was sent the longest beginning of the prompt, unless it is much busier than another.
    Prefix,
}

impl ArmKind {
    /// The arm before this fleet. `seed` is for arms that draw lots.
    pub fn make(self, fleet: &Before, seed: u64) -> Box<dyn Arm> {
        let Before { replicas, engine, .. } = *fleet;
        match self {
            Self::Off => Box::new(off::Off::until_0_26(replicas)),
            Self::OffSince027 => Box::new(off::Off::since_0_27(replicas)),
            Self::Random => Box::new(random::Random::new(replicas, seed)),
            Self::RoundRobin => Box::new(round_robin::RoundRobin::new(replicas)),
            Self::LeastInFlight => Box::new(least_in_flight::LeastInFlight::new(replicas)),
            Self::Hash => Box::new(hash::Hash::new(replicas)),
            Self::Affinity => Box::new(homing_router::HomingRouter::new(fleet, Admission::off())),
            Self::WorkingSet => Box::new(homing_router::HomingRouter::new(fleet, Admission::default())),
            Self::Prefix => Box::new(prefix::Prefix::new(replicas, engine)),
        }
    }

    /// The arm of the published table that it stands for: load-blind placement for off, sessions kept together for on.
    pub fn published(self) -> Option<PublishedArm> {
        match self {
            Self::Off | Self::OffSince027 | Self::Random => Some(PublishedArm::Off),
            Self::Hash | Self::Affinity => Some(PublishedArm::On),
            Self::RoundRobin | Self::LeastInFlight | Self::WorkingSet | Self::Prefix => None,
        }
    }

    /// The name on the command line, in tables and in JSON.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
