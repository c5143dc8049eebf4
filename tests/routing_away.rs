//! Engines that are not configured for a moment, as where discovery does not find one that is there.

use std::time::Duration;

use homing::routing::{
    Admission, Ask, EngineSpec, Key, Reading, Recovery, Router, Settings, State, Time, Tokens, Verdict,
};

const S: Duration = Duration::from_secs(1);

fn settings() -> Settings {
    Settings {
        affinity: true,
        spill_threshold: 64,
        idle_forget: 1800 * S,
        conversations_max: 1000,
        admission: Admission { linger: Some(60 * S), ..Admission::default() },
        recovery: Recovery::default(),
    }
}

fn engines<const N: usize>(ranks: u32, names: [&str; N]) -> Vec<EngineSpec> {
    names.map(|name| EngineSpec { name: name.into(), data_parallel_size: ranks }).into()
}

fn router() -> Router {
    Router::new(settings(), &engines(1, ["a", "b"]))
}

/// `a` goes at a minute and comes back after `seconds`, with so many ranks; `meanwhile` stands in its place.
fn away(router: &mut Router, meanwhile: Option<&str>, ranks: u32, seconds: u32) -> Time {
    let (left, back) = (Time(0) + 60 * S, Time(0) + (60 + seconds) * S);
    router.configure(settings(), &engines(1, ["b"]), left);
    let others = meanwhile.map_or(engines(1, ["b"]), |name| engines(1, ["b", name]));
    router.configure(settings(), &others, left);
    let others = [others, engines(ranks, ["a"])].concat();
    router.configure(settings(), &others, back);
    back
}

fn state(router: &Router) -> State {
    router.state(router.engine("a").expect("it is configured"))
}

#[test]
fn it_drains_as_before() {
    for meanwhile in [None, Some("c")] {
        for ranks in [1, 2] {
            let mut router = router();
            router.set_draining(0, true);
            away(&mut router, meanwhile, ranks, 5);
            assert_eq!(state(&router), State::Draining, "{meanwhile:?}, {ranks}");
            if meanwhile.is_some() {
                let other = router.engine("c").expect("it is configured");
                assert_eq!(router.state(other), State::Up, "who has its place is another");
            }
        }
    }
}

#[test]
fn one_that_did_not_drain_or_was_away_for_long_is_up() {
    for (drains, seconds) in [(false, 5), (true, 601)] {
        let mut router = router();
        router.set_draining(0, drains);
        away(&mut router, None, 1, seconds);
        assert_eq!(state(&router), State::Up);
    }
}

/// What was said last stands until the configuration changes in this.
#[test]
fn the_word_of_the_configuration_is_as_old_as_before() {
    for (said, configured, drains) in [(false, true, false), (true, true, true), (false, false, false)] {
        let mut router = router();
        router.configure_draining(0, true);
        router.set_draining(0, said);
        away(&mut router, None, 1, 5);
        let engine = router.engine("a").expect("it is configured");
        router.configure_draining(engine, configured);
        assert_eq!(router.state(engine) == State::Draining, drains, "{said}, {configured}");
    }
}

/// A turn of a conversation; the name of the engine that it goes to.
fn serves(router: &mut Router, key: u128, now: Time) -> String {
    match router.route(&Ask { bytes: 1000, ..Ask::of(Some(Key::new(key << 64))) }, now) {
        Some(Verdict::Go(turn)) => {
            router.finish(&turn, Some(Tokens { prompt: 5_000, cached: Some(0), completion: 100 }), now);
            router.engine_name(turn.target.engine).to_owned()
        }
        other => panic!("there is room: {other:?}"),
    }
}

#[test]
fn it_is_filled_gently() {
    for meanwhile in [None, Some("c")] {
        let mut router = router();
        let others = meanwhile.map_or(engines(1, ["b"]), |name| engines(1, ["b", name]));
        router.configure(settings(), &others, Time(0) + 60 * S);
        (0..60).for_each(|key| _ = serves(&mut router, key, Time(0) + 61 * S));
        let back = Time(0) + 65 * S;
        router.configure(settings(), &[others, engines(1, ["a"])].concat(), back);
        let there = (100..120).filter(|key| serves(&mut router, *key, back) == "a").count();
        assert_eq!(there, 1, "one of twenty that come at once");
    }
}

/// It had restarted just before it left. Once it has been away for long, it is as new as any, and not filled gently.
#[test]
fn one_that_left_while_it_was_filled_gently_is_new_after_long() {
    let mut router = router();
    let started = |second: f64| [Reading { process_start_s: Some(second), ..Reading::default() }];
    router.read(0, &started(1.0), Time(0));
    assert!(router.read(0, &started(2.0), Time(0)));
    let left = Time(0) + 60 * S;
    router.configure(settings(), &engines(1, ["b"]), left);
    let back = left + 601 * S;
    (0..60).for_each(|key| _ = serves(&mut router, key, back));
    router.configure(settings(), &engines(1, ["b", "a"]), back);
    let there = (100..120).filter(|key| serves(&mut router, *key, back) == "a").count();
    assert_eq!(there, 20, "all that come go where the least is");
}

/// What becomes of a try from before it left says nothing of it, however long it was away, and whoever has its place.
#[test]
fn a_try_from_before_says_nothing_of_it() {
    for seconds in [5, 601] {
        for (stays, again) in [(["a", "b"], "a"), (["b", "c"], "c")] {
            let mut router = router();
            let before = router.attempt(0);
            router.configure(settings(), &engines(1, ["b"]), Time(0) + 60 * S);
            let back = Time(0) + (60 + seconds) * S;
            router.configure(settings(), &engines(1, stays), back);
            let engine = router.engine(again).expect("it is configured");
            assert_eq!(engine, before.engine, "it has the place");
            (0..5).for_each(|_| _ = router.failed(&before, back));
            assert_eq!(router.state(engine), State::Up, "{seconds}, {again}");
            // Nor does a late answer, once it is left alone for what has failed since.
            (0..5).for_each(|_| _ = router.failed(&router.attempt(engine), back));
            assert!(!router.answered(&before));
            assert_eq!(router.state(engine), State::Suspect, "{seconds}, {again}");
        }
    }
}

/// Those that left first are forgotten, and counted unless they have been away for long.
#[test]
fn the_limit_on_those_away_is_counted() {
    let name = |index: usize| EngineSpec { name: format!("e{index}"), data_parallel_size: 1 };
    let many: Vec<EngineSpec> = (0..4097).map(name).collect();
    let mut router = Router::new(settings(), &many);
    let forgotten = |router: &mut Router, now: Time| router.snapshot(now).away_forgotten;
    router.configure(settings(), &many[4096..], Time(0));
    assert_eq!(forgotten(&mut router, Time(0)), 0);
    router.configure(settings(), &engines(1, ["a"]), Time(0) + S);
    assert_eq!(forgotten(&mut router, Time(0) + S), 1);
    router.configure(settings(), &engines(1, ["b"]), Time(0) + 700 * S);
    assert_eq!(forgotten(&mut router, Time(0) + 700 * S), 1, "all the others are due to be forgotten");
}
