//! What a request costs Homing, beside nginx, HAProxy and a Pingora proxy that does nothing: processor time and requests a
//! second, one worker each, in turn.
//!
//! `make bench-edge` runs it. In its environment, `HOMING` is another binary than the one built here, `EDGE_ROUNDS` how often
//! all is repeated. An argument leaves out the loads whose name does not contain it.

mod balancers;
mod bare;
mod http;
mod load;
mod upstream;

#[path = "../report/mod.rs"]
mod report;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use balancers::{BALANCERS, Balancer, Programs};
use load::Load;
use report::Row;
use upstream::Paces;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ENGINES: usize = 4;

/// Each measured for half a second or more: the system counts processor time in hundredths.
const LOADS: [Load; 5] = [
    Load {
        name: "small POST, 1 connection",
        each: "request",
        connections: 1,
        body: 100,
        turns: 30_000,
        streamed: false,
    },
    Load {
        name: "small POST, 32 connections",
        each: "request",
        connections: 32,
        body: 100,
        turns: 1_500,
        streamed: false,
    },
    Load {
        name: "100 KB POST, 1 connection",
        each: "request",
        connections: 1,
        body: 100_000,
        turns: 12_000,
        streamed: false,
    },
    Load {
        name: "100 KB POST, 32 connections",
        each: "request",
        connections: 32,
        body: 100_000,
        turns: 500,
        streamed: false,
    },
    Load { name: "32 streams", each: "event", connections: 32, body: 100, turns: 2_000, streamed: true },
];

/// The most that Homing is to cost, as a multiple of nginx.
fn reach(load: &Load) -> f64 {
    match (load.streamed, load.body) {
        (true, _) => 1.3,
        (false, 100_000) => 1.6,
        (false, _) => 2.0,
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("bare", addresses)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        let mut addresses = addresses.iter().map(|address| address.parse::<SocketAddr>().expect("an address"));
        let address = addresses.next().expect("an address to listen at");
        bare::serve(address, addresses.collect());
    }
    let wanted = arguments.into_iter().find(|argument| !argument.starts_with("--")).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let measured = runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        tokio::task::spawn_local(stay_awake());
        measure(&wanted).await
    }));
    report::print("Beside nginx", &measured.expect("a benchmark"));
}

/// Keeps clients and engines from sleeping while they wait. The system bills the waking of one that sleeps to whoever sends to it,
/// so a balancer would pay for how long it lets the others wait. Where they are on other machines it does not.
async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// What one balancer took for one load, round by round.
#[derive(Default)]
struct Taken {
    cpu_us: Vec<f64>,
    per_second: Vec<f64>,
}

/// The loads whose name contains `wanted`.
async fn measure(wanted: &str) -> io::Result<Vec<Row>> {
    let in_target = |path: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(path);
    let homing = std::env::var_os("HOMING").map_or_else(|| in_target("release/homing"), PathBuf::from);
    let programs = Programs { debian: in_target("edge"), homing };
    let rounds: usize = std::env::var("EDGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let folder = tempfile::tempdir()?;
    let paces = Paces::default();
    let engines = upstream::start(ENGINES, &paces).await?;
    let mut rows = Vec::new();
    for load in LOADS.iter().filter(|load| load.name.contains(wanted)) {
        let mut taken: [Taken; BALANCERS.len()] = Default::default();
        for _ in 0..rounds {
            // New processes each time: how one happens to lie in memory makes up to a fifth.
            let balancers = balancers::start_all(&programs, folder.path(), &engines).await?;
            for (balancer, taken) in balancers.iter().zip(&mut taken) {
                one(load, balancer, &paces).await?;
                let (cpu_us, per_second) = one(load, balancer, &paces).await?;
                taken.cpu_us.push(cpu_us);
                taken.per_second.push(per_second);
            }
        }
        rows.extend(rows_of(load, &taken));
    }
    Ok(rows)
}

/// Processor time for each, in microseconds, and how many there were a second.
async fn one(load: &Load, balancer: &Balancer, paces: &Paces) -> io::Result<(f64, f64)> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("{}, {}: {error}", balancer.name, load.name));
    let before = balancer.cpu_s()?;
    let took = load.run(balancer.address, paces).await.map_err(explain)?;
    let count = load.count() as f64;
    Ok(((balancer.cpu_s()? - before) * 1e6 / count, count / took.as_secs_f64()))
}

fn rows_of(load: &Load, taken: &[Taken]) -> Vec<Row> {
    let nginx = &taken[0];
    let rows = BALANCERS.iter().zip(taken).flat_map(|(balancer, taken)| {
        let what = format!("{}: {balancer}", load.name);
        // Each round against nginx in that round.
        let ratio = |of: &[f64], to: &[f64]| median(of.iter().zip(to).map(|(of, to)| of / to));
        let cpu = Row::new(&what, median(taken.cpu_us.iter().copied()), format!("CPU µs/{}", load.each))
            .ratio(ratio(&taken.cpu_us, &nginx.cpu_us));
        let per_second = Row::new(&what, median(taken.per_second.iter().copied()), format!("{}s/s", load.each))
            .ratio(ratio(&taken.per_second, &nginx.per_second));
        [if *balancer == "Homing" { cpu.at_most(reach(load)) } else { cpu }, per_second]
    });
    rows.collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
