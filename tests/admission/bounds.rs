//! What is kept of those who wait, idle or have left is bounded, and what is given up is counted.

use std::time::Duration;

use homing::routing::{Admission, AdmissionMode, Ask, Key, RefusedWhy, Settings};

use crate::world::{World, admission, engines, settings};

#[test]
fn whoever_comes_back_to_its_place_is_let_into_a_full_line() {
    let linger = Some(Duration::ZERO);
    let mut world = World::new(1, Admission { parked_max: 2, linger, ..admission() });
    let running = [world.goes(101), world.goes(102)];
    let first = world.parks(1);
    world.parks(2);
    world.router.leave(first, world.now);
    world.parks(3);
    assert_eq!(world.refused(4).why, RefusedWhy::Full);
    let again = world.parks(1);
    world.ends(&running[0]);
    world.passes(0.001);
    assert_eq!(world.wakes_one().0, again, "it stands where it stood");
}

#[test]
fn as_many_places_are_kept_as_may_wait_and_4096_at_least() {
    for (parked_max, kept) in [(10, 4096), (6000, 6000)] {
        let mut world = World::new(1, Admission { parked_max, ..admission() });
        let _running = [world.goes(1_000_001), world.goes(1_000_002)];
        for conversation in 0..kept + 5 {
            let ticket = world.parks(conversation);
            world.router.leave(ticket, world.now);
        }
        assert_eq!(world.counts().places_dropped, 5, "of {parked_max}");
    }
}

/// An attacker changes its session id with every request.
#[test]
fn a_million_session_ids_take_no_more_than_the_table() {
    let mut world = World::new(2, Admission { kv_cache_tokens: None, mode: AdmissionMode::Observe, ..admission() });
    let most = settings(admission()).conversations_max as u64;
    for conversation in 0..1_000_000 {
        let turn = world.asks(&Ask { bytes: 100, ..Ask::of(Some(Key::new(conversation << 64))) });
        world.router.finish(&turn, None, world.now);
    }
    let snapshot = world.snapshot();
    assert_eq!(snapshot.conversations, most);
    assert_eq!(snapshot.conversations_evicted, 1_000_000 - most);
    assert!(snapshot.caches.untracked > 0, "idle caches are followed up to a limit too");
}

#[test]
fn why_a_home_was_lost_is_remembered_of_as_many_as_the_table_holds() {
    let few = || Settings { conversations_max: 10, ..settings(Admission::off()) };
    let mut world = World::new(1, Admission::off());
    world.router.configure(few(), &engines(1), world.now);
    for round in 0..2 {
        for conversation in 0..10 {
            world.serves(100 * round + conversation, 0);
        }
        let forgotten = world.snapshot().lost_forgotten;
        assert_eq!(forgotten, 0, "round {round}");
        // The replica goes, with all that is at home there, and another comes.
        world.router.configure(few(), &engines(2)[1..], world.now);
        world.router.configure(few(), &engines(1), world.now);
    }
    assert_eq!(world.snapshot().lost_forgotten, 10);
}
