//! The command line of `homing-bench`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use homing_bench::engine::Profile;
use homing_bench::experiment::RampArgs;
use homing_bench::fleet::{Fleet, FleetConfig};
use homing_bench::live::SessionsArgs;
use homing_bench::{chaos, demo};

/// Simulated vLLM replicas, session load and the routing experiment for Homing.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves simulated vLLM replicas over HTTP until it is interrupted.
    ///
    /// One line of JSON on standard output says where, once they listen.
    Fleet(FleetArgs),
    /// Shows the balancer before four simulated replicas with a few conversations, and serves on until it is interrupted.
    Demo {
        /// The balancer's binary.
        #[arg(long, default_value = "target/release/homing")]
        homing: PathBuf,
    },
    /// Holds the balancer against faults at random and checks every answer.
    Chaos(ChaosArgs),
    /// Runs the experiment in virtual time: what each way to choose a replica does to caches and waiting times.
    Ramp(RampArgs),
    /// Sends a load over HTTP to a balancer or an engine.
    Sessions(SessionsArgs),
}

#[derive(Args)]
struct FleetArgs {
    /// Number of engines.
    #[arg(long, default_value_t = 4)]
    replicas: u16,
    /// Hardware and model of each: the name of a built-in profile or a YAML file.
    #[arg(long, default_value = "a4000-qwen3-4b")]
    profile: String,
    /// Put the engines behind one port, as ranks that X-data-parallel-rank chooses from.
    #[arg(long)]
    data_parallel: bool,
    /// How many times as fast as in reality.
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// Port of the first replica, the next ones following; 0 takes free ones.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Tokens after which the model ends an answer of its own accord [default: when the request's limit is reached].
    #[arg(long)]
    answer_tokens: Option<u32>,
}

#[derive(Args)]
struct ChaosArgs {
    /// The balancer's binary.
    #[arg(long, default_value = "target/release/homing")]
    homing: PathBuf,
    /// How long, in seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The seed of everything random [default: a new one, which is printed].
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Fleet(args) => fleet(args),
        Command::Sessions(args) => block_on(args.run()),
        Command::Chaos(args) => block_on(chaos(args)),
        Command::Ramp(args) => args.run(),
        Command::Demo { homing } => block_on(async { demo::run(&homing).await.map_err(|error| error.to_string()) }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("homing-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(work)
}

fn fleet(args: FleetArgs) -> Result<(), String> {
    let config = FleetConfig {
        profile: Profile::load(&args.profile)?,
        replicas: args.replicas,
        data_parallel: args.data_parallel,
        speed: args.speed,
        port: args.port,
        answer_tokens: args.answer_tokens,
    };
    block_on(async {
        let fleet = Fleet::start(config).await.map_err(|error| format!("the fleet did not start: {error}"))?;
        println!("{}", fleet.describe());
        tokio::select! {
            ended = fleet.run() => ended.map_err(|error| format!("a replica failed: {error}")),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}

async fn chaos(args: ChaosArgs) -> Result<(), String> {
    let seed = args.seed.unwrap_or_else(chaos::any_seed);
    println!("seed {seed}");
    let plan = chaos::Plan { homing: args.homing, duration: Duration::from_secs(args.seconds), seed };
    let verdict = chaos::run(&plan).await?;
    println!("{verdict}");
    if verdict.holds() { Ok(()) } else { Err(format!("run it again with --seed {seed}")) }
}
