//! How a replica is filled that has come back, and where the conversations of one go that has restarted.

use std::time::Duration;

use homing::routing::{
    Admission, AdmissionMode, Ask, EngineSpec, Key, Reading, Recovery, Retry, Router, Settings, Time, Tokens, Turn,
    Verdict,
};

const CAPACITY: u64 = 20_000_000;

fn router(engines: usize, mode: AdmissionMode) -> Router {
    let specs: Vec<EngineSpec> =
        (0..engines).map(|index| EngineSpec { name: format!("e{index}"), data_parallel_size: 1 }).collect();
    let admission = Admission {
        mode,
        kv_cache_tokens: Some(CAPACITY),
        linger: Some(Duration::from_secs(60)),
        ..Admission::default()
    };
    let settings = Settings {
        affinity: true,
        spill_threshold: 64,
        idle_forget: Duration::from_secs(1800),
        conversations_max: 10_000,
        admission,
        recovery: Recovery::default(),
    };
    Router::new(settings, &specs)
}

/// Tokens of a conversation: mostly few, and every third time many, which is hard on whoever takes turns.
fn size(key: u128) -> u64 {
    if key.is_multiple_of(3) { 120_000 + key as u64 % 7 * 1000 } else { 2_000 + key as u64 % 5 * 1000 }
}

fn ask(key: u128) -> Ask {
    Ask { bytes: size(key) * 4, ..Ask::of(Some(Key::new(key << 64))) }
}

fn goes(router: &mut Router, key: u128, now: Time) -> Turn {
    match router.route(&ask(key), now) {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("there is room: {other:?}"),
    }
}

fn ends(router: &mut Router, turn: &Turn, key: u128, now: Time) {
    let tokens = Tokens { prompt: size(key) - 200, cached: Some(0), completion: 200 };
    router.finish(turn, Some(tokens), now);
}

fn serves(router: &mut Router, keys: std::ops::Range<u128>, now: Time) {
    for key in keys {
        let turn = goes(router, key, now);
        ends(router, &turn, key, now);
    }
}

fn restarts(router: &mut Router, engine: usize, now: Time) {
    let with = |start| Reading { process_start_s: Some(start), ..Reading::default() };
    router.read(engine, &[with(1.0)], now);
    assert!(router.read(engine, &[with(2.0)], now));
}

/// Two hundred of them come at once, and end at once or only later; those of the others stay.
#[test]
fn the_conversations_of_one_that_restarted_spread_by_size() {
    for mode in [AdmissionMode::Auto, AdmissionMode::Off] {
        for end_at_once in [true, false] {
            let mut router = router(4, mode);
            serves(&mut router, 0..800, Time(0));
            let homes: Vec<usize> =
                (0..800).map(|key| router.follow(&ask(key), &[], Time(0)).expect("an engine").engine).collect();
            let lost: Vec<u128> = (0..800u128).filter(|key| homes[*key as usize] == 0).collect();
            assert!(lost.len().abs_diff(200) <= 40, "{} lived there", lost.len());
            restarts(&mut router, 0, Time(1000));
            let mut tokens = [0u64; 4];
            for key in lost {
                let turn = goes(&mut router, key, Time(1000));
                tokens[turn.target.engine] += size(key);
                if end_at_once {
                    ends(&mut router, &turn, key, Time(1000));
                }
            }
            let (most, least) = (tokens[1..].iter().max(), tokens[1..].iter().min());
            assert!(most < least.map(|least| least * 12 / 10).as_ref(), "{mode:?}: {tokens:?}");
            assert!(tokens[0] < tokens[1] / 2, "the one that restarted is filled gently: {tokens:?}");
        }
    }
}

/// At most two a second while the others hold more, whatever comes.
#[test]
fn one_that_comes_back_takes_new_conversations_one_by_one_until_it_holds_as_much() {
    let out = |router: &mut Router| {
        router.set_up(0, false);
        router.set_up(0, true);
    };
    let asleep = |router: &mut Router| {
        router.set_asleep(0, true);
        router.set_asleep(0, false);
    };
    let restarted = |router: &mut Router| restarts(router, 0, Time(0));
    for comes_back in [out as fn(&mut Router), asleep, restarted] {
        for mode in [AdmissionMode::Auto, AdmissionMode::Off] {
            let mut router = router(3, mode);
            // The first is not in use and has nothing yet.
            router.set_draining(0, true);
            serves(&mut router, 0..60, Time(0));
            router.set_draining(0, false);
            comes_back(&mut router);
            assert!(router.snapshot(Time(0)).replicas[0].returning);
            let mut next = 1000;
            for second in 0..5 {
                let mut there = 0;
                for tenth in 0..10 {
                    let now = Time(second * 1000 + tenth * 100);
                    let turn = goes(&mut router, next, now);
                    there += u32::from(turn.target.engine == 0);
                    ends(&mut router, &turn, next, now);
                    next += 1;
                }
                assert_eq!(there, 2, "{mode:?}, second {second}");
            }
            // By and by it holds as much, and takes its share without a limit.
            let mut second = 5;
            while router.snapshot(Time(second * 1000)).replicas[0].returning {
                for twentieth in 0..20 {
                    serves(&mut router, next..next + 1, Time(second * 1000 + twentieth * 50));
                    next += 1;
                }
                second += 1;
                assert!(second < 240, "it is filled at some time");
            }
        }
    }
}

/// Thirty conversations whose home cannot be reached any more move at once.
#[test]
fn those_that_move_to_one_that_has_come_back_count_too() {
    for mode in [AdmissionMode::Auto, AdmissionMode::Off] {
        let mut router = router(3, mode);
        router.set_draining(0, true);
        serves(&mut router, 0..60, Time(0));
        router.set_draining(0, false);
        let at_home = |key: &u128| router.follow(&ask(*key), &[], Time(0)).is_some_and(|target| target.engine == 1);
        let moving: Vec<u128> = (0..60).filter(at_home).collect();
        assert!(moving.len() >= 20, "{}", moving.len());
        let turns: Vec<(u128, Turn)> = moving.iter().map(|key| (*key, goes(&mut router, *key, Time(0)))).collect();
        let mut there = 0;
        for (key, turn) in turns {
            let tried = [router.attempt(1)];
            let next = router.retry(&ask(key), &turn, &tried, Retry::Unreachable, Time(0)).expect("two are left");
            there += u32::from(next.target.engine == 0);
            ends(&mut router, &next, key, Time(0));
        }
        assert_eq!(there, 1, "{mode:?}");
        // And the next new one comes there only half a second later.
        assert_ne!(goes(&mut router, 1000, Time(400)).target.engine, 0);
        assert_eq!(goes(&mut router, 1001, Time(500)).target.engine, 0);
    }
}

#[test]
fn where_the_others_hold_nothing_or_are_full_it_takes_all_that_come() {
    // Nothing is held anywhere.
    let mut idle = router(2, AdmissionMode::Off);
    restarts(&mut idle, 0, Time(0));
    assert!(!idle.snapshot(Time(0)).replicas[0].returning);
    // The other has no room.
    let mut full = router(2, AdmissionMode::Auto);
    full.set_draining(0, true);
    let mut key = 0;
    while let Some(Verdict::Go(turn)) = full.route(&ask(key), Time(0)) {
        ends(&mut full, &turn, key, Time(0));
        key += 1;
    }
    full.set_draining(0, false);
    full.woken(Time(0));
    // Of the largest size.
    for key in (0..5).map(|n| 21_006 + 21 * n) {
        assert_eq!(goes(&mut full, key, Time(0)).target.engine, 0, "the other has no room");
    }
    // The other is too busy.
    let mut busy = router(2, AdmissionMode::Off);
    busy.set_draining(0, true);
    (0..64).for_each(|key| _ = goes(&mut busy, key, Time(0)));
    busy.set_draining(0, false);
    for key in 100..110 {
        assert_eq!(goes(&mut busy, key, Time(0)).target.engine, 0, "the other is too busy");
    }
    // The other is not up.
    busy.set_up(1, false);
    assert_eq!(goes(&mut busy, 200, Time(0)).target.engine, 0);
}
