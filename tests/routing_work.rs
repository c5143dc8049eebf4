//! What an engine has to do: how long the longest prompt in flight there should take to read, and who else could do it.

use std::time::Duration;

use homing::routing::{
    Admission, Ask, Attempt, EngineSpec, Key, Pin, Reading, Recovery, Retry, Router, Settings, Suspicion, Time, Tokens,
    Turn, Verdict,
};

fn router(ranks: &[u32]) -> Router {
    let engines: Vec<EngineSpec> = ranks
        .iter()
        .enumerate()
        .map(|(index, ranks)| EngineSpec { name: format!("e{index}"), data_parallel_size: *ranks })
        .collect();
    let settings = Settings {
        affinity: true,
        spill_threshold: 8,
        idle_forget: Duration::from_secs(1800),
        conversations_max: 1000,
        admission: Admission::off(),
        recovery: Recovery::default(),
    };
    Router::new(settings, &engines)
}

fn of(key: u128, bytes: u64) -> Ask {
    Ask { bytes, ..Ask::of(Some(Key::new(key << 64))) }
}

fn goes(router: &mut Router, ask: &Ask, now: Time) -> Turn {
    match router.route(ask, now) {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("it goes on: {other:?}"),
    }
}

#[test]
fn the_longest_prompt_counts_until_it_is_read() {
    let mut router = router(&[1]);
    assert_eq!(router.reading_time(0), Duration::ZERO);
    let start = Time(0);
    // 0.3 tokens a byte and 5,000 tokens a second are assumed.
    let mut long = goes(&mut router, &of(1, 1_000_000), start);
    let alone = router.reading_time(0);
    assert!((55.0..65.0).contains(&alone.as_secs_f64()), "{alone:?}");
    // Those that wait beside it make it no longer.
    let shorter: Vec<Turn> = (2..50).map(|key| goes(&mut router, &of(key, 500_000), start)).collect();
    assert_eq!(router.reading_time(0), alone);
    router.began(&mut long, start + Duration::from_secs(1));
    let shortened = router.reading_time(0);
    assert!(shortened < alone * 6 / 10, "{shortened:?}");
    shorter.iter().for_each(|turn| _ = router.finish(turn, None, start));
    assert_eq!(router.reading_time(0), Duration::ZERO);
    router.finish(&long, None, start);
}

/// A model that reads slowly is given more time.
#[test]
fn the_rate_is_learned() {
    let mut router = router(&[1]);
    let time = |router: &mut Router, now: Time| {
        let turn = goes(router, &of(100, 1_000_000), now);
        let time = router.reading_time(0);
        router.finish(&turn, None, now);
        time
    };
    let before = time(&mut router, Time(0));
    for key in 1..20 {
        let sent = Time(1000 * key);
        let mut turn = goes(&mut router, &of(key.into(), 100_000), sent);
        router.began(&mut turn, sent + Duration::from_secs(300));
        let tokens = Tokens { prompt: 30_000, cached: Some(0), completion: 10 };
        router.finish(&turn, Some(tokens), sent + Duration::from_secs(301));
    }
    let after = time(&mut router, Time(400_000));
    assert!(after > before * 20, "100 tokens a second instead of 5,000: {before:?}, then {after:?}");
}

#[test]
fn elsewhere_is_another_engine_that_is_up() {
    let mut router = router(&[1, 1, 2]);
    let ask = of(1, 1000);
    let could = |router: &Router, ask: &Ask, tried: &[usize]| {
        let tried: Vec<Attempt> = tried.iter().map(|engine| router.attempt(*engine)).collect();
        router.could_go_elsewhere(ask, &tried)
    };
    assert!(could(&router, &ask, &[0]));
    assert!(!could(&router, &ask, &[0, 1, 2]));
    let silent = Suspicion::Silent { lasting: Duration::from_secs(30) };
    router.set_suspect(1, Some(silent));
    assert!(could(&router, &ask, &[0]));
    router.set_up(2, false);
    assert!(!could(&router, &ask, &[0]));
    router.set_up(2, true);
    router.set_suspect(1, None);
    // Only one engine has this rank.
    let pinned = Ask { pin: Pin::Rank(1), ..ask };
    assert!(could(&router, &pinned, &[0]));
    assert!(!could(&router, &pinned, &[2]));
    // What an engine keeps, nobody else has.
    let kept = Key::new(7);
    let turn = goes(&mut router, &ask, Time(0));
    router.keeps(&turn.target, kept);
    assert!(!could(&router, &Ask { stored: Some(kept), ..ask }, &[turn.target.engine]));
}

/// Each hangs in turn, and the first comes back while the last has the request.
#[test]
fn one_that_has_come_back_may_be_tried_again() {
    let mut router = router(&[1, 1]);
    let ask = of(1, 1000);
    let silent = Some(Suspicion::Silent { lasting: Duration::from_secs(30) });
    let first = goes(&mut router, &ask, Time(0));
    let mut tried = vec![router.attempt(first.target.engine)];
    router.set_suspect(first.target.engine, silent);
    let second = router.retry(&ask, &first, &tried, Retry::Unreachable, Time(0)).expect("the other is left");
    tried.push(router.attempt(second.target.engine));
    router.set_suspect(second.target.engine, silent);
    assert!(!router.could_go_elsewhere(&ask, &tried), "all hang");
    assert!(router.retry(&ask, &second, &tried, Retry::Unreachable, Time(0)).is_none());
    // Where it is comes back: it is served there.
    router.set_suspect(second.target.engine, None);
    assert!(!router.could_go_elsewhere(&ask, &tried));
    router.set_suspect(second.target.engine, silent);
    router.set_suspect(first.target.engine, None);
    assert!(router.could_go_elsewhere(&ask, &tried));
    let third = router.retry(&ask, &second, &tried, Retry::Unreachable, Time(0)).expect("the first has come back");
    assert_eq!(third.target, first.target);
    tried.push(router.attempt(third.target.engine));
    router.set_suspect(second.target.engine, None);
    router.set_suspect(third.target.engine, silent);
    assert!(router.could_go_elsewhere(&ask, &tried), "and so may the second");
    router.finish(&third, None, Time(0));
}

/// Its metrics alone say that it has restarted: whoever tried it before may try it once more.
#[test]
fn one_that_has_restarted_may_be_tried_again() {
    let mut router = router(&[1, 1]);
    let ask = of(1, 1000);
    let started = |second: f64| [Reading { process_start_s: Some(second), ..Reading::default() }];
    let first = goes(&mut router, &ask, Time(0));
    let mut tried = vec![router.attempt(first.target.engine)];
    router.read(first.target.engine, &started(1.0), Time(0));
    let second = router.retry(&ask, &first, &tried, Retry::Unreachable, Time(0)).expect("the other is left");
    tried.push(router.attempt(second.target.engine));
    assert!(!router.could_go_elsewhere(&ask, &tried));
    assert!(router.read(first.target.engine, &started(2.0), Time(0)));
    assert!(router.could_go_elsewhere(&ask, &tried));
    let third = router.retry(&ask, &second, &tried, Retry::Unreachable, Time(0)).expect("the first has restarted");
    assert_eq!(third.target, first.target);
    router.finish(&third, None, Time(0));
}

#[test]
fn an_engine_in_the_place_of_one_that_was_tried_is_another() {
    let mut router = router(&[1, 1]);
    let ask = of(1, 1000);
    let turn = goes(&mut router, &ask, Time(0));
    let mut tried = vec![router.attempt(turn.target.engine)];
    let next = router.retry(&ask, &turn, &tried, Retry::Refused, Time(0)).expect("the other is left");
    tried.push(router.attempt(next.target.engine));
    let named = |name: &str| EngineSpec { name: name.into(), data_parallel_size: 1 };
    let stays = named(router.engine_name(next.target.engine));
    let settings = router.snapshot(Time(0)).settings;
    router.configure(settings.clone(), std::slice::from_ref(&stays), Time(0));
    assert!(!router.could_go_elsewhere(&ask, &tried));
    router.configure(settings, &[stays, named("another")], Time(0));
    assert_eq!(router.engine("another"), Some(turn.target.engine), "it has the place of the first");
    assert!(router.could_go_elsewhere(&ask, &tried));
}
