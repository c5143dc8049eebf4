//! Faults at random: sessions go through the balancer while its replicas refuse, hang, stall, die, restart and slow down.
//!
//! Every answer is checked against the one that the simulated model gives to that very prompt, so an answer that is cut, doubled
//! or another turn's shows. Everything random comes from one seed.

mod client;
mod faults;
mod ledger;
mod trouble;
mod turn;
mod verdict;
mod watch;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch as signal;
use tokio::task::JoinSet;

use crate::balancer::{Balancer, Log};
use crate::engine::Profile;
use crate::fleet::{Fleet, FleetConfig};
use client::Client;
use faults::FaultLog;
use ledger::Ledger;
pub use verdict::Verdict;
use watch::Watch;

/// Replicas behind the balancer.
const REPLICAS: u16 = 6;
/// Sessions at once.
const SESSIONS: u64 = 32;
/// How many times as fast as the hardware of the profile: turns of a fraction of a second, on few cores.
const SPEED: f64 = 5.0;
/// Time for what is in flight at the end to be answered, once all is well again.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The balancer's binary.
    pub homing: PathBuf,
    pub duration: Duration,
    pub seed: u64,
}

/// A seed that nobody chose.
pub fn any_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Runs the plan. The verdict says what went wrong, if anything did.
///
/// # Errors
/// When a part does not start, or ends on its own.
pub async fn run(plan: &Plan) -> Result<Verdict, String> {
    let profile = Profile::load("a4000-qwen3-4b")?;
    let config = FleetConfig { speed: SPEED, ..FleetConfig::new(profile.clone(), REPLICAS) };
    let fleet = Arc::new(Fleet::start(config).await.map_err(|error| format!("the fleet did not start: {error}"))?);
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let log = Log::keep();
    let configuration = configuration(&profile, &fleet);
    let mut balancer = Balancer::launch(&plan.homing, folder.path(), &configuration, log.clone())
        .await
        .map_err(|error| format!("the balancer did not start: {error}"))?;

    let faults = Arc::new(FaultLog::new(fleet.replicas()));
    let ledger = Arc::new(Ledger::new(faults.clone(), log));
    let (stop, stopped) = signal::channel(false);
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        let client = Client::new(number, plan.seed, balancer.address, &profile, ledger.clone());
        sessions.spawn(client.run(stopped.clone()));
    }
    let playing = tokio::spawn(faults::play(fleet.clone(), faults, plan.seed, stopped));

    let mut watch = Watch::new(plan.duration);
    let began = Instant::now();
    let done = trouble::make(&mut balancer, &mut watch, plan.duration).await;
    // Nobody listens any more only if all have ended.
    _ = stop.send(true);
    let played = playing.await.map_err(|error| error.to_string())?;
    done?;
    let settled = tokio::time::timeout(SETTLE_MAX, async { while sessions.join_next().await.is_some() {} }).await;
    let idle = balancer.becomes_idle(SETTLE_MAX).await;
    let old = balancer.old_ends(SETTLE_MAX).await;
    Ok(Verdict {
        seed: plan.seed,
        took: began.elapsed(),
        played,
        turns: ledger.counts(),
        wrong: ledger.wrong(),
        sessions_stuck: settled.is_err().then_some(sessions.len()),
        left_over: [idle.err(), old.err()].into_iter().flatten().collect(),
        watch,
    })
}

/// It remembers few conversations, so that their table is full soon: what grows after that should not.
fn configuration(profile: &Profile, fleet: &Fleet) -> String {
    let urls: String = fleet.replicas().iter().map(|address| format!("      - url: http://{address}\n")).collect();
    let (name, max_num_seqs) = (&profile.model.name, profile.engine.max_num_seqs);
    format!(
        "listen:\n  - address: 127.0.0.1:0\nadmin:\n  address: 127.0.0.1:0\nserver:\n  access_log: off\n  upgrade_socket: upgrade/socket\nscrape:\n  interval: 1 s\n\
         models:\n  - name: {name}\n    max_num_seqs: {max_num_seqs}\n    conversations_max: 256\n    replicas:\n{urls}"
    )
}
