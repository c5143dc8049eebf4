//! Conversations keep their homes over a restart.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::*;

const CONVERSATIONS: usize = 120;

fn config(engines: &[Engine], state: &Path) -> Value {
    let mut config = one_model(engines, json!({"admission": "off"}));
    config["server"] = json!({"state_file": state});
    config
}

fn turn(conversation: usize) -> Ask {
    Ask::chat("m", "Hello.").session(&format!("conversation-{conversation}"))
}

/// A turn of each conversation: the replicas that answered them.
async fn turns(balancer: &Balancer, decision: &str) -> Vec<String> {
    let mut client = balancer.client().await;
    let mut replicas = Vec::new();
    for conversation in 0..CONVERSATIONS {
        let answer = client.ask(&turn(conversation)).await;
        replicas.push(answer.is(decision).replica().to_owned());
    }
    replicas
}

#[tokio::test]
async fn every_conversation_goes_home_after_a_restart() {
    let engines = engines::<3>().await;
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    let mut homes = Vec::new();
    for stop in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGTERM] {
        let mut balancer = Balancer::start(config(&engines, &state)).await;
        let mode = std::fs::metadata(&state).expect("the file is there from the start").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        if homes.is_empty() {
            homes = turns(&balancer, "placed").await;
            assert!(engines.iter().all(|engine| homes.contains(&engine.name())), "they are spread");
        } else {
            assert_eq!(turns(&balancer, "sticky").await, homes);
        }
        balancer.signal(stop);
        assert!(balancer.exit().await.success());
    }
    // Of an engine that is listed no more, the conversations are placed anew; the others stay.
    let balancer = Balancer::start(config(&engines[1..], &state)).await;
    let mut client = balancer.client().await;
    for (conversation, home) in homes.iter().enumerate() {
        let answer = client.ask(&turn(conversation)).await;
        match *home == engines[0].name() {
            true => assert_eq!(answer.decision(), "placed"),
            false => assert_eq!((answer.decision(), answer.replica()), ("sticky", home.as_str())),
        }
    }
}

/// Replicas that are looked for may be found long after the file was read. Until then it is kept as it was.
#[tokio::test]
async fn replicas_that_are_found_later_get_their_conversations_back() {
    let engines = engines::<2>().await;
    let folder = TempDir::new().unwrap();
    let list = folder.path().join("replicas.yaml");
    let listed: Vec<Value> = engines.iter().map(|engine| json!({"url": engine.url()})).collect();
    let config = |replicas: Value| {
        json!({
            "server": {"state_file": folder.path().join("state")},
            "models": [{"name": "m", "admission": "off", "replicas": replicas}],
        })
    };
    let found = || config(json!({"file": list, "every": "100 ms"}));
    std::fs::write(&list, json!(listed).to_string()).unwrap();
    let mut balancer = Balancer::start(found()).await;
    let homes = turns(&balancer, "placed").await;
    balancer.signal(Signal::SIGTERM);
    assert!(balancer.exit().await.success());
    std::fs::remove_file(&list).unwrap();
    for stop in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut balancer = Balancer::start(found()).await;
        assert_eq!(balancer.ask(&turn(0)).await.header("x-homing-error"), Some("no_replica"));
        balancer.signal(stop);
        balancer.exit().await;
    }
    let mut balancer = Balancer::start(found()).await;
    std::fs::write(&list, json!(listed).to_string()).unwrap();
    balancer.routing_when("the replicas", |routing| routing.replicas().len() == 2).await;
    assert_eq!(turns(&balancer, "sticky").await, homes);
    balancer.signal(Signal::SIGTERM);
    assert!(balancer.exit().await.success());
    // They may also be listed in the end.
    std::fs::remove_file(&list).unwrap();
    let balancer = Balancer::start(found()).await;
    assert_eq!(balancer.reload(&config(json!(listed))).await.status, 200);
    assert_eq!(turns(&balancer, "sticky").await, homes);
}

/// A process that is killed loses at most a minute.
#[tokio::test]
async fn the_file_of_the_last_minute_serves_after_a_sudden_end() {
    let engines = engines::<2>().await;
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    let mut balancer = Balancer::start(config(&engines, &state)).await;
    let homes = turns(&balancer, "placed").await;
    let from = Instant::now();
    while balancer.metrics().await.sum("homing_state_writes_total", &[("outcome", "ok")]) == 0.0 {
        assert!(from.elapsed() < Duration::from_secs(120), "nothing was written in two minutes");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    balancer.signal(Signal::SIGKILL);
    balancer.exit().await;
    let balancer = Balancer::start(config(&engines, &state)).await;
    assert_eq!(turns(&balancer, "sticky").await, homes);
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_with_a_warning() {
    let engines = engines::<1>().await;
    let folder = TempDir::new().unwrap();
    let (state, aside) = (folder.path().join("state"), folder.path().join("state.unread"));
    let mut balancer = Balancer::start(config(&engines, &state)).await;
    turns(&balancer, "placed").await;
    balancer.signal(Signal::SIGTERM);
    balancer.exit().await;
    let good = std::fs::read(&state).unwrap();
    let changed = |place: usize| {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        bytes
    };
    let cases = [
        (good[..good.len() - 1].to_vec(), "it is damaged"),
        (changed(8), "another version of Homing wrote it"),
        (changed(good.len() / 2), "it is damaged"),
        (good[..20].to_vec(), "it is cut off"),
        (good[..3].to_vec(), "it is cut off"),
        (Vec::new(), "it is cut off"),
    ];
    for (bytes, why) in cases {
        std::fs::write(&state, &bytes).unwrap();
        let mut balancer = Balancer::start(config(&engines, &state)).await;
        balancer.output.line("the warning", |line| (line.contains("WARN") && line.contains(why)).then_some(())).await;
        assert_eq!(std::fs::read(&aside).unwrap(), bytes);
        balancer.ask(&turn(0)).await.is("placed");
        balancer.signal(Signal::SIGTERM);
        balancer.exit().await;
        std::fs::remove_file(&aside).unwrap();
    }
    // Too large, without the room that it says it takes.
    std::fs::write(&state, &good).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&state).unwrap();
    file.set_len(homing::state::STATE_MAX + 1).unwrap();
    let balancer = Balancer::start(config(&engines, &state)).await;
    balancer.output.line("the warning", |line| line.contains("it is larger than").then_some(())).await;
    assert!(aside.exists());
    balancer.ask(&turn(0)).await.is("placed");
}

/// Nor is someone else's file, which is not written over either, not even by a process that takes over.
#[tokio::test]
async fn a_file_of_someone_else_is_left_alone() {
    let engines = engines::<1>().await;
    let folder = TempDir::new().unwrap();
    let (other, file) = (folder.path().join("other"), folder.path().join("homing.yaml"));
    std::fs::write(&file, crate::harness::config::complete(&config(&engines, &other)).to_string()).unwrap();
    for bytes in [&b"something else"[..], b"{", &[b'x'; 4096], b"homing: yes", b"homing\0u\x01\0\0\0", &[0; 64]] {
        std::fs::write(&other, bytes).unwrap();
        for upgrade in [&[][..], &["--upgrade"]] {
            let serve = [&["serve", "--config", file.to_str().unwrap()][..], upgrade].concat();
            let run = terminal::run(&serve, &[]).await;
            assert!(!run.ok && run.stderr.contains("expected a state file of Homing"), "{run:?}");
            assert!(run.stderr.contains(other.to_str().unwrap()), "{run:?}");
        }
        assert_eq!(std::fs::read(&other).unwrap(), bytes);
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing was made or moved");
}

/// A folder or a socket named by mistake is not moved away.
#[tokio::test]
async fn what_is_no_file_is_left_alone() {
    let engines = engines::<1>().await;
    let folder = TempDir::new().unwrap();
    let (directory, socket) = (folder.path().join("directory"), folder.path().join("socket"));
    std::fs::create_dir(&directory).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let file = folder.path().join("homing.yaml");
    for place in [&directory, &socket] {
        std::fs::write(&file, crate::harness::config::complete(&config(&engines, place)).to_string()).unwrap();
        for upgrade in [&[][..], &["--upgrade"]] {
            let serve = [&["serve", "--config", file.to_str().unwrap()][..], upgrade].concat();
            let run = terminal::run(&serve, &[]).await;
            assert!(!run.ok && run.stderr.contains("expected a file, or nothing so far"), "{run:?}");
        }
    }
    let left = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!((left, directory.is_dir()), (3, true), "nothing was made or moved");
}
