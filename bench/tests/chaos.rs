//! A minute of faults at random, of the ten that `make chaos` takes.

use std::path::Path;
use std::time::Duration;

use homing_bench::chaos::{Plan, any_seed, run};

#[tokio::test(flavor = "multi_thread")]
async fn every_turn_is_answered_whatever_happens_to_the_replicas() {
    // The balancer is built beside: `cargo test --workspace` does that.
    let homing = Path::new(env!("CARGO_BIN_EXE_homing-bench")).with_file_name("homing");
    assert!(homing.exists(), "{} is missing: run `cargo build` first", homing.display());
    let plan = Plan { homing, duration: Duration::from_secs(60), seed: any_seed() };
    println!("seed {}", plan.seed);
    let verdict = run(&plan).await.expect("all parts start, and none ends");
    assert!(verdict.holds(), "{verdict}");
    println!("{verdict}");
}
