//! Whatever an engine, a client or a clock says, nothing breaks and nothing is left behind.

use std::time::Duration;

use homing::routing::{Admission, Ask, Overdue, Time, Tokens, Verdict, Woken};

use crate::world::{BYTES, LINGER_S, OWN, World, admission, ask};

/// Eight conversations come at once, three times each, and all are answered with `tokens`. Everyone has gone on after as
/// many rounds as there are requests, and then nothing is left.
fn everyone_goes_on(world: &mut World, bytes: u64, tokens: Tokens) {
    let mut waiting = 0;
    let mut running = Vec::new();
    for _ in 0..3 {
        for conversation in 1..=8 {
            match world.comes(&Ask { bytes, ..ask(conversation) }) {
                Verdict::Go(turn) => running.push(turn),
                Verdict::Parked(_) => waiting += 1,
                other => panic!("neither goes nor waits: {other:?}"),
            }
        }
    }
    for _ in 0..24 {
        running.drain(..).for_each(|turn| {
            world.router.finish(&turn, Some(tokens), world.now);
        });
        world.passes(LINGER_S + 0.001);
        for (_, turn) in world.wakes() {
            running.push(turn);
            waiting -= 1;
        }
    }
    assert_eq!(waiting, 0);
    running.iter().for_each(|turn| {
        world.router.finish(turn, Some(tokens), world.now);
    });
    world.passes(LINGER_S + 0.001);
    assert!(world.is_at_rest());
}

#[test]
fn of_tokens() {
    for prompt in [0, 1, 3_000, u64::MAX / 2, u64::MAX] {
        for cached in [None, Some(0), Some(3_001), Some(u64::MAX)] {
            for completion in [0, u64::MAX] {
                let tokens = Tokens { prompt, cached, completion };
                for kv_cache_tokens in [None, Some(10_000)] {
                    let mut world = World::new(2, Admission { kv_cache_tokens, ..admission() });
                    everyone_goes_on(&mut world, BYTES, tokens);
                    everyone_goes_on(&mut world, BYTES, tokens);
                }
            }
        }
    }
}

#[test]
fn of_bytes() {
    for bytes in [0, 1, BYTES, u64::MAX] {
        let mut world = World::new(2, admission());
        everyone_goes_on(&mut world, bytes, Tokens { prompt: 3_000, cached: Some(0), completion: 100 });
        everyone_goes_on(&mut world, bytes, Tokens { prompt: 3_000, cached: Some(3_000), completion: 100 });
    }
}

#[test]
fn of_settings() {
    let tokens = Tokens { prompt: 3_000, cached: Some(0), completion: 100 };
    for kv_cache_tokens in [0, 1, OWN, u64::MAX] {
        for linger in [None, Some(Duration::ZERO), Some(Duration::from_secs(1))] {
            for rotate in [None, Some(1)] {
                let mut world =
                    World::new(2, Admission { kv_cache_tokens: Some(kv_cache_tokens), linger, rotate, ..admission() });
                everyone_goes_on(&mut world, BYTES, tokens);
            }
        }
    }
}

/// One report that cannot be true is no reason to take every conversation for a giant.
#[test]
fn tokens_that_cannot_be_true_teach_nothing() {
    let mut world = World::new(1, admission());
    let turn = world.goes(1);
    world.router.finish(&turn, Some(Tokens { prompt: u64::MAX, cached: None, completion: 1 }), world.now);
    assert_eq!(world.held(), [OWN]);
    world.goes(2);
    assert_eq!(world.held(), [2 * OWN]);
}

#[test]
fn a_clock_that_goes_back_ends_no_wait_and_no_place() {
    let mut world = World::new(1, admission());
    world.passes(1_000.0);
    let first = world.goes(1);
    world.goes(2);
    world.parks(3);
    world.ends(&first);
    world.now = Time(0);
    assert!(world.woken().is_empty());
    assert_eq!(world.held(), [2 * OWN]);
    world.goes(1);
    world.parks(4);
    assert_eq!(world.snapshot().longest_wait, Duration::ZERO);
}

#[test]
fn no_wait_at_all() {
    for overdue in [Overdue::Refuse, Overdue::Admit] {
        let mut world = World::new(1, Admission { max_wait: Duration::ZERO, overdue, ..admission() });
        (1..=2).for_each(|conversation| {
            world.goes(conversation);
        });
        world.parks(3);
        let woken = world.woken();
        let [Woken { verdict, .. }] = &woken[..] else { panic!("{woken:?}") };
        assert_eq!(matches!(verdict, Verdict::Refused(_)), overdue == Overdue::Refuse);
    }
}

#[test]
fn no_line_at_all() {
    let mut world = World::new(1, Admission { parked_max: 0, ..admission() });
    world.serves(1, 0);
    world.goes(2);
    assert_eq!(world.refused(3).retry_after_s, 1);
    world.goes(1);
    assert!(world.woken().is_empty());
}
