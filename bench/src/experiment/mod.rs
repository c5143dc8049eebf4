//! The experiment: arms on the same load, in virtual time.
//!
//! A [`Plan`] is a list of cells, each one arm with so many sessions under one seed. [`Plan::run`] simulates each and
//! returns a [`Row`] for it. The same plan gives the same rows, to the digit.

mod arms;
mod command;
mod plot;
mod published;
mod replica;
mod report;
mod row;
mod simulation;
mod spread;
mod told_capacity;
mod trace;
mod transcript;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::engine::Profile;
use crate::load::{Load, Sessions};
pub use arms::{Answer, Arm, ArmKind, Asked, Before, Choice, Finished};
pub use command::{RampArgs, write_json};
pub use plot::pictures;
pub use published::{Published, PublishedArm, published};
pub use report::tables;
pub use row::Row;
pub use simulation::{Simulation, Span, TO_BALANCER_S, TO_ENGINE_S};
pub use spread::{Figure, Spread};
pub use told_capacity::ToldCapacity;
pub use trace::{SessionEnd, Trace, TurnRecord};

/// What is to be run: every arm with every number of sessions under every seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub profile: Profile,
    pub replicas: usize,
    /// How fast each replica is, as a share of the profile's speed, 0.01 to 100. Empty: all are as fast as the profile says.
    pub speeds: Vec<f64>,
    /// What arms are told of the KV capacity of each engine.
    pub told_capacity: ToldCapacity,
    pub load: Load,
    pub arms: Vec<ArmKind>,
    pub tiers: Vec<u32>,
    /// Seeds 1 to this.
    pub seeds: u64,
    pub span: Span,
}

impl Plan {
    /// Runs all cells, several at a time. The rows are in the order of arms, tiers and seeds.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn run(&self) -> Result<Vec<Row>, String> {
        self.check()?;
        let row =
            |(arm, tier, seed): (ArmKind, u32, u64)| Row::of(&self.trace(arm, tier, seed), arm.name(), tier, seed);
        Ok(self.cells().into_par_iter().map(row).collect())
    }

    /// Every arm with every number of sessions under every seed, in this order.
    pub fn cells(&self) -> Vec<(ArmKind, u32, u64)> {
        self.arms
            .iter()
            .flat_map(|arm| self.tiers.iter().map(move |tier| (*arm, *tier)))
            .flat_map(|(arm, tier)| (1..=self.seeds).map(move |seed| (arm, tier, seed)))
            .collect()
    }

    /// # Errors
    /// When the load's contexts do not fit the profile, or the speeds not the replicas.
    pub fn check(&self) -> Result<(), String> {
        let (context, limit) = (self.load.context_max, self.profile.engine.max_model_len);
        if context > limit {
            return Err(format!(
                "the load's context_max is {context}, the profile's engine.max_model_len {limit}: choose another"
            ));
        }
        let (speeds, replicas) = (self.speeds.len(), self.replicas);
        if speeds != 0 && speeds != replicas {
            return Err(format!("speeds has {speeds} figures for {replicas} replicas: give one a replica"));
        }
        match self.speeds.iter().find(|speed| !(0.01..=100.0).contains(*speed)) {
            Some(speed) => Err(format!("speeds has {speed}: give numbers from 0.01 to 100")),
            None => Ok(()),
        }
    }

    /// The fleet as an arm sees it.
    pub fn before(&self) -> Before<'_> {
        let engine = &self.profile.engine;
        Before { replicas: self.replicas, engine, told_capacity: self.told_capacity.tokens(engine.kv_cache_tokens) }
    }

    /// Runs one cell.
    ///
    /// # Panics
    /// When [`check`](Self::check) fails.
    pub fn trace(&self, arm: ArmKind, tier: u32, seed: u64) -> Trace {
        let sessions = Sessions::new(self.load.clone(), tier, seed);
        let arm = arm.make(&self.before(), seed);
        let speeds = if self.speeds.is_empty() { vec![1.0; self.replicas] } else { self.speeds.clone() };
        Simulation::new(&self.profile, &speeds, sessions, arm).run(self.span)
    }
}
