//! The demonstration: simulated replicas, the balancer in front of them, and through it a few agent conversations and a load.

mod conversation;
mod phases;
mod table;

use std::io;
use std::net::SocketAddr;
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

/// Says where the page is, plays a few conversations and prints where each turn went, then a load that crosses the knee and
/// back, over and over until Ctrl-C.
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
    println!("Open the page and watch:  http://{}/", balancer.admin);
    println!("Everything runs until Ctrl-C:");
    println!("  clients  http://{}   (model {model})", balancer.address);
    println!("  metrics  http://{}/metrics", balancer.admin);
    println!("  status   {} status --watch --admin http://{}", homing.display(), balancer.admin);
    println!("{REPLICAS} simulated replicas (RTX A4000, Qwen3-4B, {SPEED} times as fast):");
    replicas.iter().enumerate().for_each(|(index, address)| println!("  {}  http://{address}", index + 1));

    conversations(&balancer, &model, &replicas).await?;
    let (clients, admin) = (balancer.address, balancer.admin);
    tokio::select! {
        ended = fleet.run() => ended,
        ended = balancer.ended() => ended,
        played = phases::play(clients, admin, &model, SPEED) => played.map_err(io::Error::other),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

/// A few conversations, turn by turn.
async fn conversations(balancer: &Balancer, model: &str, replicas: &[SocketAddr]) -> io::Result<()> {
    println!("\n{CONVERSATIONS} conversations of {TURNS} turns, all at once:\n");
    let player = Player { client: reqwest::Client::new(), balancer: balancer.address, model: model.to_owned() };
    let dialect = |index: usize| if index.is_multiple_of(2) { Dialect::Anthropic } else { Dialect::OpenAi };
    let conversations = (0..CONVERSATIONS).map(|index| player.play(index, dialect(index), TURNS));
    let played: Vec<Vec<Turn>> = futures::future::try_join_all(conversations).await?;
    let rows: Vec<_> = played.iter().enumerate().map(|(index, turns)| (dialect(index), turns.as_slice())).collect();
    print!("{}", table::conversations(&rows, replicas));
    Ok(())
}
