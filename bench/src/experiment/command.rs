//! `homing-bench ramp`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{ArmKind, Plan, Row, Span, pictures, tables};
use crate::engine::Profile;
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
    /// What the sessions do: the name of a built-in load or a YAML file.
    #[arg(long, default_value = "published")]
    load: String,
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
            arms: self.arms,
            tiers: if self.tiers.is_empty() { load.tiers.clone() } else { self.tiers },
            seeds: self.seeds,
            span: Span { warmup_s: self.warmup.into(), measured_s: self.seconds.into() },
            load,
        };
        let rows = plan.run()?;
        if let Some(file) = &self.json {
            let results = Results { profile: &profile_name, load: &self.load, rows: &rows };
            let json = serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?;
            std::fs::write(file, json + "\n").map_err(|error| format!("{}: {error}", file.display()))?;
        }
        // The published figures are of this load, on this hardware.
        let with_published = self.load == "published" && profile_name == plan.load.profile && plan.replicas == 4;
        if let Some(folder) = &self.plot {
            pictures(folder, &rows, &plan.arms, &plan.tiers, with_published)?;
        }
        print!("{}", tables(&rows, &plan.arms, &plan.tiers, with_published));
        Ok(())
    }
}
