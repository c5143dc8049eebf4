//! The command line.

use clap::{Parser, Subcommand};
use homing::config::{Config, KeyHash};
use homing::terminal::{self, Whereabouts};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Without `RUST_LOG`: what an operator wants to know.
const LOG_FILTER: &str = "info";

/// What `RUST_LOG` changes only where it names it: Pingora's account of its own start, and what it calls errors, a pooled
/// connection that was busy for a moment, a client that left. What matters of that Homing logs itself. At trace these write
/// headers and bodies, keys included.
const QUIET: &str = "pingora_core=warn,pingora_core::connectors=off,pingora_proxy=off,h2=warn,rustls=warn";

/// An edge load balancer for vLLM: every turn of a conversation goes to the replica that holds its prefix cache.
#[derive(Parser)]
#[command(
    version,
    after_help = "RUST_LOG filters what is logged to standard error, as in RUST_LOG=warn or RUST_LOG=homing=debug; info and above if unset.\n"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until a signal to stop; SIGHUP reads the configuration again, SIGQUIT hands over to a new process
    Serve {
        /// The configuration, as docs/configuring.md describes it
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Take the sockets and the conversations over from the running process, which then ends: send it SIGQUIT
        #[arg(long)]
        upgrade: bool,
    },
    /// Check a configuration, and the key files and variables it names, without serving
    ///
    /// Exit status 0: nothing is wrong. 1: each fault stands on a line of standard error, as
    /// FILE: line N, column M: what was expected
    Check {
        /// The configuration to check
        file: PathBuf,
    },
    /// Show how a running balancer stands: a table a model, a row a replica
    Status {
        #[command(flatten)]
        whereabouts: Whereabouts,
        /// Show it anew every two seconds, until Ctrl-C
        #[arg(long, conflicts_with = "json")]
        watch: bool,
        /// As JSON, with everything that `GET /routing` says
        #[arg(long)]
        json: bool,
    },
    /// Say where a request would go now, and why, without sending it
    ///
    /// Asks a running balancer, which counts nothing and keeps nothing of it
    Explain {
        /// The request as it stands in HTTP/1: its first line, its headers, an empty line, its body
        file: PathBuf,
        #[command(flatten)]
        whereabouts: Whereabouts,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a new API key for a caller, and its hash for the configuration
    ///
    /// The key is shown this once and kept nowhere: what is configured is its hash
    Key,
    /// Print a JSON schema of the configuration, for editors
    Schema,
}

fn main() -> ExitCode {
    let env = env_logger::Env::default().default_filter_or(LOG_FILTER);
    env_logger::Builder::new().parse_filters(QUIET).parse_env(env).init();
    let done = match Arguments::parse().command {
        Command::Serve { config, upgrade } => {
            homing::serve(&config, upgrade).map_err(|error| format!("homing: {error}"))
        }
        Command::Check { file } => check(&file),
        Command::Status { whereabouts, watch: true, .. } => {
            whereabouts.admin().and_then(|admin| terminal::watch(&admin))
        }
        Command::Status { whereabouts, json, .. } => whereabouts.admin().and_then(|admin| terminal::show(&admin, json)),
        Command::Explain { file, whereabouts, json } => {
            whereabouts.admin().and_then(|admin| terminal::explain(&admin, &file, json))
        }
        Command::Key => key(),
        Command::Schema => {
            println!("{:#}", homing::config::schema());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn check(path: &Path) -> Result<(), String> {
    let config = Config::load(path).map_err(|faults| faults.to_string())?;
    let models = counted(config.models.len(), "model");
    let replicas = match (config.replicas(), config.discovers()) {
        (listed, false) => counted(listed, "replica"),
        (0, true) => "replicas discovered".into(),
        (listed, true) => format!("{} and those discovered", counted(listed, "replica")),
    };
    println!("{}: ok ({models}, {replicas})", path.display());
    Ok(())
}

fn key() -> Result<(), String> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| format!("homing: the system gives no random numbers: {error}"))?;
    let key = format!("homing-{}", hex::encode(random));
    println!("key:  {key}\nhash: {}", KeyHash::of(key.as_bytes()));
    Ok(())
}

fn counted(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}
