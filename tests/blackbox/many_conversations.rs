//! A hundred thousand conversations go home after a restart and after an upgrade.
//!
//! They come in through a state file, since as many turns would take minutes; a sample of them is then asked.

use std::path::Path;

use homing::config::Config;
use homing::fleet::{Fleet, now};
use homing::request::key::{Caller, KeyHasher, RoutingKey};
use homing::request::session::{Found, Session};
use homing::request::source::KeySource;
use homing::routing::{Ask as Turn, Verdict};
use homing::state::{STATE_MAX, State};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::*;

const CONVERSATIONS: usize = 100_000;

/// Every so many conversations one is asked.
const STEP: usize = 100;

const ROUTING_KEY: RoutingKey = [5; 16];

fn config(engines: &[Engine], folder: &Path) -> Value {
    let mut config = one_model(engines, json!({"conversations_max": 2 * CONVERSATIONS}));
    config["server"] = json!({"state_file": folder.join("state"), "upgrade_socket": folder.join("upgrade/socket")});
    config
}

fn session(conversation: usize) -> String {
    format!("conversation-{conversation:06}")
}

/// Writes a file as a balancer of this configuration would leave it. Returns where each conversation lives.
fn write(config: &Value, file: &Path) -> Vec<String> {
    let text = crate::harness::config::complete(config).to_string();
    let fleet = Fleet::new(&Config::parse(Path::new("homing.yaml"), &text).expect("it checks"));
    let keys = KeyHasher::new(ROUTING_KEY);
    let mut router = fleet.models()[0].router.lock();
    let homes = (0..CONVERSATIONS).map(|conversation| {
        let id = session(conversation);
        let session =
            Session { id: id.as_bytes().into(), agent: None, source: Found::Source(KeySource::SessionHeaders) };
        let ask = Turn { bytes: 1000, ..Turn::of(Some(keys.key(&session, Caller::NOBODY))) };
        let Some(Verdict::Go(turn)) = router.route(&ask, now()) else { panic!("nobody waits") };
        router.finish(&turn, None, now());
        router.replica_name(&turn.target)
    });
    let homes = homes.collect();
    drop(router);
    let bytes = State::of(&fleet, ROUTING_KEY).into_bytes(STATE_MAX).expect("there is room");
    std::fs::write(file, bytes).expect("it is written");
    homes
}

async fn all_are_at_home(balancer: &Balancer, homes: &[String]) {
    let mut client = balancer.client().await;
    for conversation in (0..CONVERSATIONS).step_by(STEP) {
        let answer = client.ask(&Ask::chat("m", "Hello.").session(&session(conversation))).await;
        assert_eq!((answer.decision(), answer.replica()), ("sticky", homes[conversation].as_str()), "{conversation}");
    }
    let routing = balancer.routing().await;
    assert_eq!(routing.column("conversations").iter().sum::<u64>(), CONVERSATIONS as u64);
}

#[tokio::test]
async fn they_go_home_after_restarts_and_upgrades() {
    let engines = engines::<4>().await;
    let folder = TempDir::new().unwrap();
    let config = config(&engines, folder.path());
    let homes = write(&config, &folder.path().join("state"));
    assert!(engines.iter().all(|engine| homes.contains(&engine.name())), "they are spread");
    let mut first = Balancer::start(config).await;
    all_are_at_home(&first, &homes).await;
    let mut second = first.successor();
    first.signal(Signal::SIGQUIT);
    second.output.line("address", |line| line.contains("admin on http://").then_some(())).await;
    all_are_at_home(&second, &homes).await;
    assert!(first.exit().await.success());
    second.signal(Signal::SIGTERM);
    assert!(second.exit().await.success());
    let third = first.again().await;
    all_are_at_home(&third, &homes).await;
}
