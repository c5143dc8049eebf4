//! `homing-bench sessions`.

use std::path::PathBuf;

use clap::Args;

use super::{Dialect, Driver, Pace, Target, Way};
use crate::experiment::{Row, Span, write_json};
use crate::load::{Load, Sessions};

/// What `homing-bench sessions` is told.
#[derive(Args)]
pub struct SessionsArgs {
    /// The balancer or the engine, such as http://127.0.0.1:8080.
    #[arg(long)]
    url: String,
    /// How many sessions: at all times, or on average where they come when they come.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    sessions: u32,
    /// What the sessions do: the name of a built-in load or a YAML file.
    #[arg(long, default_value = "published")]
    load: String,
    /// The model to name.
    #[arg(long, default_value = "qwen3-4b")]
    model: String,
    /// The API to speak.
    #[arg(long, value_enum, default_value = "messages")]
    dialect: Dialect,
    /// Seconds measured, by the load's clock.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Seconds before that, not measured.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    warmup: u32,
    /// Under the same seed the sessions are the same.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of the load in a real second: that of the simulated fleet, if that runs faster than in reality.
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// Write the results here.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl SessionsArgs {
    /// Runs the sessions and prints what they saw.
    ///
    /// # Errors
    /// A message that says what is wrong with an argument, which file could not be written, or that nothing answers.
    pub async fn run(self) -> Result<(), String> {
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return Err("--speed: give a number above 0".to_owned());
        }
        let load = Load::read(&self.load)?;
        let url = self.url.trim_end_matches('/').to_owned();
        let target = Target { url, model: self.model, dialect: self.dialect };
        let sessions = Sessions::new(load, self.sessions, self.seed);
        let driver = Driver::new(target, Pace { speed: self.speed, way: Way::default() }, sessions);
        let span = Span { warmup_s: self.warmup.into(), measured_s: self.seconds.into() };
        let trace = driver.run(span).await?;
        let row = Row::of(&trace, "live".to_owned(), self.sessions, self.seed);
        let json = serde_json::to_string_pretty(&row).map_err(|error| error.to_string())?;
        println!("{json}");
        match &self.json {
            Some(file) => write_json(file, "live", &self.load, &[row]),
            None => Ok(()),
        }
    }
}
