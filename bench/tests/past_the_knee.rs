//! What admission is for, in virtual time: where the conversations' contexts together exceed the fleet's cache, the arm
//! `working-set` keeps the throughput that the arm `affinity` loses. Each relation compares the two arms in one run.

use homing_bench::engine::Profile;
use homing_bench::experiment::{ArmKind, Figure, Plan, Row, Span, Spread, ToldCapacity};
use homing_bench::load::Load;

const RULE: ArmKind = ArmKind::Affinity;
const ADMISSION: ArmKind = ArmKind::WorkingSet;

const OUTPUT: Figure = |row| Some(row.output_tokens_per_min);
const HITS: Figure = |row| row.prefix_hit_ratio;
const TTFB_P50_S: Figure = |row| row.ttfb_p50_s;
const TTFB_MEAN_S: Figure = |row| row.ttfb_mean_s;
const SESSION_MEAN_S: Figure = |row| row.session_mean_s;
const SESSION_P95_S: Figure = |row| row.session_p95_s;
const SESSION_WAIT_S: Figure = |row| row.session_wait_mean_s;
/// Of the sessions that ended alone: at 48, half of the rule's are cut off by the end, and count above with their time so far.
const COMPLETED_MEAN_S: Figure = |row| row.completed_mean_s;
const COMPLETED_P95_S: Figure = |row| row.completed_p95_s;
const COMPLETED_WAIT_S: Figure = |row| row.completed_wait_mean_s;

/// Quarters of an hour from cold caches, under three seeds.
fn plan(load: &str, tiers: &[u32]) -> Plan {
    let load = Load::read(load).unwrap();
    Plan {
        profile: Profile::load(&load.profile).unwrap(),
        replicas: load.replicas.into(),
        speeds: Vec::new(),
        told_capacity: ToldCapacity::default(),
        arms: vec![RULE, ADMISSION],
        tiers: tiers.to_vec(),
        seeds: 3,
        span: Span { warmup_s: 0.0, measured_s: 900.0 },
        load,
    }
}

/// The rows of one run.
struct Ran(Vec<Row>);

impl Ran {
    fn of(plan: &Plan) -> Ran {
        Ran(plan.run().unwrap())
    }

    /// With admission, the mean over the seeds.
    fn figure(&self, tier: u32, figure: Figure) -> f64 {
        Spread::of(&self.0, &ADMISSION.name(), tier, figure).unwrap().mean
    }

    /// That of admission over that of the rule.
    fn ratio(&self, tier: u32, figure: Figure) -> f64 {
        self.figure(tier, figure) / Spread::of(&self.0, &RULE.name(), tier, figure).unwrap().mean
    }

    fn assert_output(&self, tier: u32, times: f64) {
        let ratio = self.ratio(tier, OUTPUT);
        assert!(ratio >= times, "at {tier} sessions {ratio:.3} times the rule's output, not {times}");
    }
}

#[test]
fn the_published_load_past_the_knee_loses_nothing() {
    let ran = Ran::of(&plan("published", &[4, 8, 16, 24, 32, 48]));
    for tier in [24, 32] {
        ran.assert_output(tier, 1.4);
        let (mean, p95) = (ran.ratio(tier, SESSION_MEAN_S), ran.ratio(tier, SESSION_P95_S));
        assert!(mean <= 0.7 && p95 <= 0.8, "{tier}: sessions take {mean:.3} of the rule's time, p95 {p95:.3}");
    }
    for tier in [24, 32, 48] {
        let [mean, p95, wait] =
            [COMPLETED_MEAN_S, COMPLETED_P95_S, COMPLETED_WAIT_S].map(|figure| ran.ratio(tier, figure));
        assert!(
            mean <= 0.7 && p95 <= 0.8 && wait <= 0.7,
            "{tier}: sessions take {mean:.3}, p95 {p95:.3}, wait {wait:.3}"
        );
    }
    for tier in [16, 24, 32, 48] {
        let (hits, ttfb_s) = (ran.figure(tier, HITS), ran.figure(tier, TTFB_P50_S));
        assert!(hits >= 0.80 && ttfb_s <= 1.0, "{tier}: hits {hits:.3}, median time to first byte {ttfb_s:.2} s");
    }
    let outputs = [4, 8, 16, 24, 32, 48].map(|tier| ran.figure(tier, OUTPUT));
    let best = outputs.into_iter().fold(0.0, f64::max);
    assert!(outputs[2..].iter().all(|output| *output >= 0.95 * best), "not flat from 16 sessions up: {outputs:.0?}");
}

#[test]
fn below_the_knee_admission_is_no_worse_than_the_rule() {
    let ran = Ran::of(&plan("published", &[4, 8]));
    for tier in [4, 8] {
        ran.assert_output(tier, 1.0);
        for (name, figure) in [
            ("median time to first byte", TTFB_P50_S),
            ("mean time to first byte", TTFB_MEAN_S),
            ("mean session", SESSION_MEAN_S),
            ("95th percentile of sessions", SESSION_P95_S),
            ("wait of a session", SESSION_WAIT_S),
        ] {
            let ratio = ran.ratio(tier, figure);
            assert!(ratio <= 1.02, "{tier}: {name} is {ratio:.3} times the rule's");
        }
        let hits = ran.ratio(tier, HITS);
        assert!(hits >= 0.99, "{tier}: hits are {hits:.3} times the rule's");
    }
}

#[test]
fn sessions_that_think_lose_no_place_to_others() {
    let ran = Ran::of(&plan("think", &[4, 8, 16, 24, 32, 48]));
    [4, 8].into_iter().for_each(|tier| ran.assert_output(tier, 1.0));
    for tier in [16, 24, 32, 48] {
        ran.assert_output(tier, 1.1);
        let ttfb_s = ran.figure(tier, TTFB_P50_S);
        assert!(ttfb_s <= 1.0, "{tier}: median time to first byte {ttfb_s:.2} s");
    }
}

/// What the rule carries, more, and much more.
#[test]
fn long_contexts_in_an_open_loop_are_carried_further() {
    let ran = Ran::of(&plan("long", &[16, 24, 32]));
    for (tier, times) in [(16, 1.0), (24, 1.3), (32, 1.3)] {
        ran.assert_output(tier, times);
    }
    let ttfb = ran.ratio(16, TTFB_MEAN_S);
    assert!(ttfb <= 1.0, "at 16 sessions {ttfb:.3} times the rule's mean time to first byte");
}

#[test]
fn a_farm_of_large_caches_keeps_them() {
    let ran = Ran::of(&plan("farm", &[26, 40]));
    ran.assert_output(26, 1.1);
    ran.assert_output(40, 1.3);
}

#[test]
fn bursts_of_ten_agents_find_their_places() {
    Ran::of(&plan("burst", &[24])).assert_output(24, 1.15);
}

#[test]
fn a_replica_at_half_speed_does_not_hold_the_others_up() {
    let mut plan = plan("published", &[24]);
    plan.speeds = vec![0.5, 1.0, 1.0, 1.0];
    Ran::of(&plan).assert_output(24, 1.15);
}

#[test]
fn a_capacity_that_is_wrong_or_unknown_still_serves() {
    for (told, times) in
        [(ToldCapacity::Factor(0.85), 1.15), (ToldCapacity::Factor(1.15), 1.15), (ToldCapacity::Unknown, 1.4)]
    {
        let mut plan = plan("published", &[24]);
        plan.told_capacity = told;
        let ratio = Ran::of(&plan).ratio(24, OUTPUT);
        assert!(ratio >= times, "told {told:?}: {ratio:.3} times the rule's output, not {times}");
    }
}
