//! The demonstration: simulated replicas, the balancer in front of them, and a few agent conversations through it.

mod conversation;
mod table;

use std::io;
use std::path::Path;
use std::time::Duration;

use homing::routing::Admission;

use crate::balancer::{Balancer, Served};
use crate::engine::Profile;
use crate::fleet::{Fleet, FleetConfig};
use conversation::{Dialect, Player, Turn};

const REPLICAS: u16 = 4;
const CONVERSATIONS: usize = 6;
const TURNS: usize = 5;

/// As many times faster than the hardware of the profile, so that nobody waits.
const SPEED: f64 = 10.0;

const SCRAPE: Duration = Duration::from_secs(1);

/// Plays the conversations, prints where each turn went, and serves on until Ctrl-C.
///
/// # Errors
/// When a part does not start or a turn is not answered.
pub async fn run(homing: &Path) -> io::Result<()> {
    let profile = Profile::load("a4000-qwen3-4b").map_err(io::Error::other)?;
    let (model, max_num_seqs) = (profile.model.name.clone(), profile.engine.max_num_seqs);
    let fleet = Fleet::start(FleetConfig { speed: SPEED, ..FleetConfig::new(profile, REPLICAS) }).await?;
    let replicas = fleet.replicas().to_vec();
    let folder = tempfile::tempdir()?;
    let max_wait = Some(Admission::default().max_wait);
    let served = Served { name: &model, max_num_seqs, scrape: SCRAPE, max_wait };
    let mut balancer = Balancer::start(homing, folder.path(), &served, &replicas).await?;
    println!("{REPLICAS} simulated replicas (RTX A4000, Qwen3-4B, {SPEED} times as fast):");
    replicas.iter().enumerate().for_each(|(index, address)| println!("  {}  http://{address}", index + 1));
    println!("\n{CONVERSATIONS} conversations of {TURNS} turns, all at once:\n");

    let player = Player { client: reqwest::Client::new(), balancer: balancer.address, model: model.clone() };
    let dialect = |index: usize| if index.is_multiple_of(2) { Dialect::Anthropic } else { Dialect::OpenAi };
    let conversations = (0..CONVERSATIONS).map(|index| player.play(index, dialect(index), TURNS));
    let played: Vec<Vec<Turn>> = futures::future::try_join_all(conversations).await?;
    let rows: Vec<_> = played.iter().enumerate().map(|(index, turns)| (dialect(index), turns.as_slice())).collect();
    print!("{}", table::conversations(&rows, &replicas));

    println!("\nThe balancer and the replicas go on until Ctrl-C:");
    println!("  clients  http://{}   (model {model})", balancer.address);
    println!("  page     http://{}/", balancer.admin);
    println!("  routing  http://{}/routing", balancer.admin);
    println!("  metrics  http://{}/metrics", balancer.admin);
    tokio::select! {
        ended = fleet.run() => ended,
        ended = balancer.ended() => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}
