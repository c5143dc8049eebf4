//! Connections to engines that have nothing to do are kept, up to a limit.

use serde_json::json;

use crate::harness::*;

/// As docs/operating.md says.
const KEPT_MAX: usize = 1_024;

/// Requests at once, each of which leaves a connection behind.
const REQUESTS: usize = 1_300;

/// Those of the admin address and of the readings of metrics.
const OTHERS_MAX: usize = 32;

fn open_files(balancer: &Balancer) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", balancer.pid())).expect("it runs").count()
}

/// However many threads there are.
#[tokio::test]
async fn idle_connections_to_engines_are_limited() {
    rlimit::increase_nofile_limit(8 * REQUESTS as u64).expect("a client and an engine for each request");
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({"spill_threshold": 65_536}));
    config["server"] = json!({"threads": 4});
    let balancer = Balancer::start(config).await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let before = open_files(&balancer);
    let answers = ask_all(balancer.listen, (0..REQUESTS).map(|_| Ask::chat("m", "Hello.")));
    engine.saw_turns(REQUESTS).await;
    gate.open();
    for answer in answers {
        assert_eq!(answer.await.expect("no panic").status, 200);
    }
    balancer.metric_becomes("homing_connections", &[], 0.0).await;
    let kept = open_files(&balancer).saturating_sub(before);
    assert!(kept > 0, "none is kept");
    assert!(kept < KEPT_MAX + OTHERS_MAX, "{kept} are kept");
}
