//! What an engine has to do: how long the longest prompt in flight there should take to read, and who else could do it.

use std::time::Duration;

use homing::routing::{
    Admission, Ask, EngineSpec, Key, Pin, Recovery, Router, Settings, Suspicion, Time, Tokens, Turn, Verdict,
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
    assert_eq!(router.reading_time(0), None);
    let start = Time(0);
    // 0.3 tokens a byte and 5,000 tokens a second are assumed.
    let mut long = goes(&mut router, &of(1, 1_000_000), start);
    let alone = router.reading_time(0).expect("something is in flight");
    assert!((55.0..65.0).contains(&alone.as_secs_f64()), "{alone:?}");
    // Those that wait beside it make it no longer.
    let shorter: Vec<Turn> = (2..50).map(|key| goes(&mut router, &of(key, 500_000), start)).collect();
    assert_eq!(router.reading_time(0), Some(alone));
    router.began(&mut long, start + Duration::from_secs(1));
    let shortened = router.reading_time(0).expect("others are in flight");
    assert!(shortened < alone * 6 / 10, "{shortened:?}");
    shorter.iter().for_each(|turn| _ = router.finish(turn, None, start));
    assert_eq!(router.reading_time(0), Some(Duration::ZERO));
    router.finish(&long, None, start);
    assert_eq!(router.reading_time(0), None);
}

/// A model that reads slowly is given more time.
#[test]
fn the_rate_is_learned() {
    let mut router = router(&[1]);
    let time = |router: &mut Router, now: Time| {
        let turn = goes(router, &of(100, 1_000_000), now);
        let time = router.reading_time(0).expect("something is in flight");
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
    assert!(router.could_go_elsewhere(&ask, &[0]));
    assert!(!router.could_go_elsewhere(&ask, &[0, 1, 2]));
    let silent = Suspicion::Silent { lasting: Duration::from_secs(30) };
    router.set_suspect(1, Some(silent));
    assert!(router.could_go_elsewhere(&ask, &[0]));
    router.set_up(2, false);
    assert!(!router.could_go_elsewhere(&ask, &[0]));
    router.set_up(2, true);
    router.set_suspect(1, None);
    // Only one engine has this rank.
    let pinned = Ask { pin: Pin::Rank(1), ..ask };
    assert!(router.could_go_elsewhere(&pinned, &[0]));
    assert!(!router.could_go_elsewhere(&pinned, &[2]));
    // What an engine keeps, nobody else has.
    let kept = Key::new(7);
    let turn = goes(&mut router, &ask, Time(0));
    router.keeps(&turn.target, kept);
    assert!(!router.could_go_elsewhere(&Ask { stored: Some(kept), ..ask }, &[turn.target.engine]));
}
