//! The experiment with real processes and real HTTP.

use std::path::PathBuf;
use std::time::Duration;

use super::{Dialect, Driver, Pace, Target};
use crate::balancer::Balancer;
use crate::experiment::{ArmKind, Plan, Row, TO_BALANCER_S, TO_ENGINE_S, Trace};
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
    /// Runs the cells of a plan one after the other, each with a fleet and a balancer of its own.
    ///
    /// # Errors
    /// When a part does not start, nothing answers, or an arm exists in virtual time only.
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

    async fn trace(&self, plan: &Plan, arm: ArmKind, tier: u32, seed: u64) -> Result<Trace, String> {
        let data_parallel = match arm {
            ArmKind::Affinity => false,
            ArmKind::OffSince027 => true,
            _ => return Err(format!("the arm {} runs in virtual time only; live: affinity, off-0.27", arm.name())),
        };
        let replicas = u16::try_from(plan.replicas).map_err(|error| error.to_string())?;
        let config =
            FleetConfig { speed: self.speed, data_parallel, ..FleetConfig::new(plan.profile.clone(), replicas) };
        let fleet = Fleet::start(config).await.map_err(|error| format!("the fleet did not start: {error}"))?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let scrape = Duration::from_secs_f64(SCRAPE_EVERY_S / self.speed);
        let model = plan.profile.model.name.clone();
        let max_num_seqs = plan.profile.engine.max_num_seqs;
        // vLLM's own balancer is asked directly.
        let balancer = match data_parallel {
            true => None,
            false => {
                Some(Balancer::start(&self.homing, folder.path(), &model, max_num_seqs, scrape, fleet.replicas()).await)
            }
        };
        let balancer = balancer.transpose().map_err(|error| format!("the balancer did not start: {error}"))?;
        let address = balancer.as_ref().map_or(fleet.replicas()[0], |balancer| balancer.address);
        let target = Target { url: format!("http://{address}"), model, dialect: Dialect::Messages };
        let pace = Pace { speed: self.speed, network_s: TO_ENGINE_S + 2.0 * TO_BALANCER_S };
        Driver::new(target, pace, Sessions::new(plan.load.clone(), tier, seed)).run(plan.span).await
    }
}
