//! The experiment with real processes and real HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use homing::routing::Admission;

use super::{Dialect, Driver, Pace, Target, Via, Way};
use crate::balancer::{Balancer, Served};
use crate::experiment::{ArmKind, Plan, Row, Trace};
use crate::fleet::{Fleet, FleetConfig};
use crate::load::Sessions;

/// How often the balancer reads the engines, by the load's clock: its default.
const SCRAPE_EVERY_S: f64 = 5.0;

/// What live cells need besides their plan.
#[derive(Clone, Debug)]
pub struct LiveCells {
    /// The balancer's binary.
    pub homing: PathBuf,
    /// Seconds of the load in a real second.
    pub speed: f64,
}

impl LiveCells {
    /// Runs the cells of a plan one after the other, each with a fleet, and where one is needed a balancer, of its own.
    ///
    /// # Errors
    /// When the speed is out of range, a part does not start, or nothing answers.
    pub async fn run(&self, plan: &Plan) -> Result<Vec<Row>, String> {
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return Err("--speed: give a number above 0".to_owned());
        }
        let mut rows = Vec::new();
        for (arm, tier, seed) in plan.cells() {
            let trace = self.trace(plan, arm, tier, seed).await?;
            rows.push(Row::of(&trace, arm.name(), tier, seed));
        }
        Ok(rows)
    }

    /// Runs one cell.
    ///
    /// # Errors
    /// When a part does not start, or nothing answers.
    pub async fn trace(&self, plan: &Plan, arm: ArmKind, tier: u32, seed: u64) -> Result<Trace, String> {
        let chosen_by = ChosenBy::of(arm);
        let replicas = u16::try_from(plan.replicas).map_err(|error| error.to_string())?;
        let data_parallel = chosen_by == ChosenBy::Vllm;
        let config =
            FleetConfig { speed: self.speed, data_parallel, ..FleetConfig::new(plan.profile.clone(), replicas) };
        let fleet = Fleet::start(config).await.map_err(|error| format!("the fleet did not start: {error}"))?;
        let target = |address: &SocketAddr| Target {
            url: format!("http://{address}"),
            model: plan.profile.model.name.clone(),
            dialect: Dialect::Messages,
        };
        // It runs until the cell ends.
        let balancer;
        let (via, way) = match chosen_by {
            ChosenBy::Homing => {
                balancer = self.balancer(plan, arm, fleet.replicas()).await?;
                (target(&balancer.address).into(), Way::AROUND_A_BALANCER)
            }
            ChosenBy::Vllm => (target(&fleet.replicas()[0]).into(), Way::AROUND_A_BALANCER),
            ChosenBy::Client => {
                let engine = &plan.profile.engine;
                let engines = fleet.replicas().iter().map(target).collect();
                (Via::arm(arm.make(&plan.before(), seed), engines, engine.block_size), Way::AS_SIMULATED)
            }
        };
        let sessions = Sessions::new(plan.load.clone(), tier, seed);
        Driver::new(via, Pace { speed: self.speed, way }, sessions).run(plan.span).await
    }

    async fn balancer(&self, plan: &Plan, arm: ArmKind, engines: &[SocketAddr]) -> Result<Balancer, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let served = Served {
            name: &plan.profile.model.name,
            max_num_seqs: plan.profile.engine.max_num_seqs,
            scrape: Duration::from_secs_f64(SCRAPE_EVERY_S / self.speed),
            max_wait: (arm == ArmKind::WorkingSet).then(|| Admission::default().max_wait.div_f64(self.speed)),
        };
        Balancer::start(&self.homing, folder.path(), &served, engines)
            .await
            .map_err(|error| format!("the balancer did not start: {error}"))
    }
}

/// Who chooses the replica of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChosenBy {
    /// `homing`, a process between the client and the engines.
    Homing,
    /// vLLM itself, among the ranks behind its port.
    Vllm,
    /// The client, in the balancer's place, by the arm that virtual time runs.
    Client,
}

impl ChosenBy {
    fn of(arm: ArmKind) -> Self {
        match arm {
            ArmKind::Affinity | ArmKind::WorkingSet => Self::Homing,
            ArmKind::OffSince027 => Self::Vllm,
            ArmKind::Off
            | ArmKind::Random
            | ArmKind::RoundRobin
            | ArmKind::LeastInFlight
            | ArmKind::Hash
            | ArmKind::Prefix => Self::Client,
        }
    }
}
