//! How long after a client leaves in the middle of a stream the engine gets to know it.

#[allow(dead_code, unused_imports, reason = "the harness serves the tests; this uses a part of it")]
#[path = "../tests/blackbox/harness/mod.rs"]
mod harness;

use std::time::{Duration, Instant};

use harness::{Ask, Balancer, Engine, Gate, one_model};
use serde_json::json;

const CLIENTS: usize = 200;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut delays = runtime.block_on(measure());
    delays.sort();
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    println!("a client leaves its stream: the engine knows after (of {CLIENTS})");
    println!("  median {:?}, 95 % {:?}, longest {:?}", at(0.5), at(0.95), at(1.0));
}

async fn measure() -> Vec<Duration> {
    let engine = Engine::start().await;
    let balancer = Balancer::start(one_model([&engine], json!({}))).await;
    engine.holds(&Gate::shut());
    let mut delays = Vec::new();
    for left in 1..=CLIENTS {
        let mut client = balancer.client().await;
        client.send(&Ask::chat("m", "Hello.").streamed()).await;
        client.head().await;
        client.piece().await;
        let leaving = Instant::now();
        drop(client);
        engine.saw("an ended request", |seen| seen.left == left).await;
        delays.push(leaving.elapsed());
    }
    delays
}
