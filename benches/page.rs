//! What the page costs the balancer with many replicas: the time to serve a part, and the share of a core that an open page
//! takes.

#[allow(dead_code, unused_imports, reason = "the harness serves the tests; this uses a part of it")]
#[path = "../tests/blackbox/harness/mod.rs"]
mod harness;

use std::time::{Duration, Instant};

use harness::{Ask, Balancer, Client, Engine, model};
use serde_json::{Value, json};

const MODELS: usize = 20;
const ENGINES: usize = 64;
const POLLS: usize = 100;

/// A part of the page, and how often its script asks for it, in seconds.
const PARTS: [(&str, f64); 3] =
    [("/panel/models", 2.0), ("/panel/decisions", 2.0), ("/panel/history?width=1200", 10.0)];

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut engines = Vec::new();
        for _ in 0..ENGINES {
            engines.push(Engine::start().await);
        }
        let spread = |index: usize| engines.iter().skip(index).step_by(MODELS).collect();
        measure(&format!("{MODELS} models, {ENGINES} replicas in all"), spread).await;
        measure(&format!("{MODELS} models of {ENGINES} replicas each"), |_| engines.iter().collect()).await;
    });
}

async fn measure<'a>(what: &str, engines_of: impl Fn(usize) -> Vec<&'a Engine>) {
    let models: Vec<Value> =
        (0..MODELS).map(|index| model(&format!("model-{index}"), engines_of(index), json!({}))).collect();
    // Readings would be counted too.
    let balancer = Balancer::start(json!({"models": models, "scrape": {"interval": "5 min"}})).await;
    let mut client = balancer.client().await;
    for turn in 0..400 {
        let ask = Ask::chat(&format!("model-{}", turn % MODELS), "Hello.").session(&format!("conversation-{turn}"));
        assert_eq!(client.ask(&ask).await.status, 200);
    }
    println!("{what}:");
    let mut share = 0.0;
    let mut admin = Client::connect(balancer.admin).await;
    for (path, every_s) in PARTS {
        let (mut took, before) = (Vec::new(), cpu(&balancer));
        let mut bytes = 0;
        for _ in 0..POLLS {
            let asked = Instant::now();
            bytes = admin.ask(&Ask::get(path)).await.body.len();
            took.push(asked.elapsed());
        }
        let each = (cpu(&balancer) - before) / POLLS as u32;
        share += each.as_secs_f64() / every_s;
        took.sort();
        println!(
            "  {path}: median {:?}, longest {:?}, {each:?} of a core, {} KiB",
            took[POLLS / 2],
            took[POLLS - 1],
            bytes >> 10
        );
    }
    println!("  an open page takes {:.2} % of a core", 100.0 * share);
}

/// The processor time that the balancer has taken; Linux counts it in hundredths of a second.
fn cpu(balancer: &Balancer) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", balancer.pid())).expect("the process's figures");
    let fields: Vec<i64> =
        stat.rsplit(") ").next().unwrap_or_default().split(' ').filter_map(|field| field.parse().ok()).collect();
    // utime and stime are fields 14 and 15 of all; the first after the name (the state) is no number.
    Duration::from_millis(10 * (fields[10] + fields[11]).unsigned_abs())
}
