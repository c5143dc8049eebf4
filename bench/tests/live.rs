//! The load over real HTTP, against simulated engines.

use homing_bench::engine::Profile;
use homing_bench::experiment::{Row, Span, Trace};
use homing_bench::fleet::{Fleet, FleetConfig};
use homing_bench::live::{Dialect, Driver, Pace, Target, Way};
use homing_bench::load::{Load, Sessions};

/// As fast as a debug build keeps up with on any machine; nothing here depends on it.
const SPEED: f64 = 20.0;

async fn run(dialect: Dialect, load: &str, sessions: u32, measured_s: f64) -> Trace {
    let load = Load::read(load).expect("the load is built in");
    let profile = Profile::load(&load.profile).expect("the profile is built in");
    let model = profile.model.name.clone();
    let fleet = Fleet::start(FleetConfig { speed: SPEED, ..FleetConfig::new(profile, 1) }).await.expect("a fleet");
    let target = Target { url: format!("http://{}", fleet.replicas()[0]), model, dialect };
    let driver = Driver::new(target, Pace { speed: SPEED, way: Way::default() }, Sessions::new(load, sessions, 1));
    driver.run(Span { warmup_s: 0.0, measured_s }).await.expect("turns that are answered")
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_have_the_tokens_that_the_load_plans() {
    for dialect in [Dialect::Messages, Dialect::Chat] {
        let trace = run(dialect, "published", 1, 60.0).await;
        let ended: Vec<_> = trace.turns.iter().filter_map(|turn| Some((turn.id, turn.ended?.1))).collect();
        assert!(ended.len() > 2, "{dialect:?}: {} turns ended", ended.len());
        let (first, second) = (ended[0].1, ended[1].1);
        // A system prompt of 3,500 tokens and a first message of 7,200 to 7,500; the model's turn is opened with one more.
        assert!((10_700..=11_001).contains(&first.prompt_tokens), "{dialect:?}: {first:?}");
        assert_eq!(first.output_tokens, 256, "{dialect:?}");
        let grown = second.prompt_tokens - first.prompt_tokens - first.output_tokens;
        assert!((350..=460).contains(&grown), "{dialect:?}: the second turn has {grown} new tokens");
        // Everything of the first turn is found again, but for a last block that was not full.
        let least = first.prompt_tokens + first.output_tokens - 32;
        assert!(second.cached_tokens >= least, "{dialect:?}: {second:?} of {least}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_summed_up_as_one_in_virtual_time() {
    let trace = run(Dialect::Messages, "published", 2, 90.0).await;
    let row = Row::of(&trace, "live".to_owned(), 2, 1);
    assert!(row.output_tokens_per_min > 0.0 && row.ttfb_p50_s.is_some_and(|wait| wait > 0.0), "{row:?}");
    assert!(row.prefix_hit_ratio.is_some_and(|ratio| ratio > 0.5), "{row:?}");
    assert!(row.replicas_busy <= 1.0 && row.stayed_ratio.is_none(), "nothing stands before the engine: {row:?}");
}

#[tokio::test]
async fn a_target_that_does_not_answer_is_told_at_once() {
    let target = Target { url: "http://127.0.0.1:1".to_owned(), model: "m".to_owned(), dialect: Dialect::Chat };
    let load = Load::read("published").expect("the load is built in");
    let driver = Driver::new(target, Pace { speed: 1.0, way: Way::default() }, Sessions::new(load, 1, 1));
    let outcome = driver.run(Span { warmup_s: 0.0, measured_s: 60.0 }).await;
    assert!(outcome.is_err_and(|error| error.contains("the first answer failed")));
}
