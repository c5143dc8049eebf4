//! `homing-bench ramp`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{ArmKind, Plan, Row, Span, ToldCapacity, pictures, tables};
use crate::engine::Profile;
use crate::live::LiveCells;
use crate::load::Load;

/// What `homing-bench ramp` is told.
#[derive(Args)]
pub struct RampArgs {
    /// Ways to choose a replica.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "off,hash,affinity")]
    arms: Vec<ArmKind>,
    /// Numbers of sessions [default: the load's].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    tiers: Vec<u32>,
    /// Runs of each cell, under seeds 1, 2, ….
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Seconds measured, of virtual time.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Seconds before that, not measured. With 0, the caches are cold at the beginning.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    warmup: u32,
    /// Hardware and model of a replica: the name of a built-in profile or a YAML file [default: the load's].
    #[arg(long)]
    profile: Option<String>,
    /// Number of replicas [default: the load's].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    replicas: Option<u16>,
    /// How fast each replica is, as a share of the profile's speed, such as 0.5,1,1,1 [default: all 1].
    #[arg(long, value_delimiter = ',', conflicts_with = "live")]
    speeds: Vec<f64>,
    /// What arms are told of the KV capacity of each engine: a factor of the truth, or `unknown` [default: the truth].
    #[arg(long, conflicts_with = "live")]
    told_capacity: Option<ToldCapacity>,
    /// What the sessions do: the name of a built-in load or a YAML file.
    #[arg(long, default_value = "published")]
    load: String,
    /// With real processes and real HTTP instead of virtual time; one cell after the other.
    #[arg(long)]
    live: bool,
    /// Live: seconds of the load in a real second.
    #[arg(long, default_value_t = 5.0)]
    speed: f64,
    /// Live: the balancer's binary.
    #[arg(long, default_value = "target/release/homing")]
    homing: PathBuf,
    /// Write the results here.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Draw the results into this folder, as SVG.
    #[arg(long)]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Results<'a> {
    profile: &'a str,
    load: &'a str,
    rows: &'a [Row],
}

/// Writes results as other programs read them.
///
/// # Errors
/// A message that names the file, if it could not be written.
pub fn write_json(file: &Path, profile: &str, load: &str, rows: &[Row]) -> Result<(), String> {
    let json = serde_json::to_string_pretty(&Results { profile, load, rows }).map_err(|error| error.to_string())?;
    std::fs::write(file, json + "\n").map_err(|error| format!("{}: {error}", file.display()))
}

impl RampArgs {
    /// Runs the experiment and prints its table.
    ///
    /// # Errors
    /// A message that says what is wrong with an argument, or which file could not be written.
    pub fn run(self) -> Result<(), String> {
        let load = Load::read(&self.load)?;
        let profile_name = self.profile.unwrap_or_else(|| load.profile.clone());
        let plan = Plan {
            profile: Profile::load(&profile_name)?,
            replicas: self.replicas.unwrap_or(load.replicas).into(),
            speeds: self.speeds,
            told_capacity: self.told_capacity.unwrap_or_default(),
            arms: self.arms,
            tiers: if self.tiers.is_empty() { load.tiers.clone() } else { self.tiers },
            seeds: self.seeds,
            span: Span { warmup_s: self.warmup.into(), measured_s: self.seconds.into() },
            load,
        };
        let rows = if self.live {
            plan.check()?;
            let cells = LiveCells { homing: self.homing, speed: self.speed };
            let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("no runtime: {error}"))?;
            runtime.block_on(cells.run(&plan))?
        } else {
            plan.run()?
        };
        if let Some(file) = &self.json {
            write_json(file, &profile_name, &self.load, &rows)?;
        }
        // The published figures are of this load, on this hardware.
        let with_published = self.load == "published"
            && profile_name == plan.load.profile
            && plan.replicas == 4
            && plan.speeds.is_empty();
        if let Some(folder) = &self.plot {
            pictures(folder, &rows, &plan.arms, &plan.tiers, with_published)?;
        }
        print!("{}", tables(&rows, &plan.arms, &plan.tiers, with_published));
        Ok(())
    }
}
