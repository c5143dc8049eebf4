//! Where those go who are admitted, and what a cache is believed to hold.

use std::time::Duration;

use homing::routing::{Admission, Ask, Decision, Retry, Tokens};

use crate::world::{BYTES, CAPACITY, LINGER_S, OWN, SIZE, World, admission, ask, tokens};

#[test]
fn newcomers_spread_over_the_replicas_with_room() {
    let mut world = World::new(3, admission());
    let mut placed = [0; 3];
    (0..6).for_each(|conversation| placed[world.goes(conversation).target.engine] += 1);
    assert_eq!(placed, [2; 3]);
    world.parks(6);
}

/// Each comes after the last has gone, so that nothing is in flight and nothing lingers: only what is cached tells them apart.
#[test]
fn newcomers_one_at_a_time_spread_too() {
    let mut world = World::new(4, admission());
    let mut placed = [0; 4];
    for conversation in 0..12 {
        let turn = world.goes(conversation);
        placed[turn.target.engine] += 1;
        world.ends(&turn);
        world.passes(LINGER_S + 0.001);
    }
    assert_eq!(placed, [3; 4]);
}

#[test]
fn a_replica_that_holds_nothing_takes_anyone() {
    let huge = |conversation| Ask { bytes: 100 * BYTES, ..ask(conversation) };
    let mut world = World::new(2, admission());
    world.goes(1);
    let turn = world.asks(&huge(2));
    assert_eq!(turn.target.engine, 1);
    world.goes(3);
    let ticket = world.parks(4);
    world.ends(&turn);
    world.passes(LINGER_S + 0.001);
    assert_eq!(world.wakes_one().0, ticket);
}

/// Who stands first waits for an empty replica, and nobody takes it from under it.
#[test]
fn one_that_is_too_large_for_any_room_is_not_overtaken_for_ever() {
    let mut world = World::new(1, Admission { linger: Some(Duration::ZERO), ..admission() });
    let running = [world.goes(1), world.goes(2)];
    let huge = match world.comes(&Ask { bytes: 100 * BYTES, ..ask(3) }) {
        homing::routing::Verdict::Parked(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    let small = world.parks(4);
    world.ends(&running[0]);
    world.passes(0.001);
    assert!(world.wakes().is_empty(), "there is room for the second in line, but it is not its turn");
    world.ends(&running[1]);
    world.passes(0.001);
    let (ticket, turn) = world.wakes_one();
    assert_eq!(ticket, huge);
    world.ends(&turn);
    world.passes(0.001);
    assert_eq!(world.wakes_one().0, small);
}

#[test]
fn one_whose_place_is_gone_but_not_its_cache_goes_home() {
    // Room for the caches of three, but not quite for admitting a third.
    let mut world = World::new(1, Admission { kv_cache_tokens: Some(3 * OWN + 200), ..admission() });
    world.serves(1, 0);
    world.passes(LINGER_S + 0.001);
    assert_eq!(world.held(), [0]);
    world.goes(2);
    world.goes(3);
    world.parks(4);
    let home = world.goes(1);
    assert_eq!((home.decision, world.held()), (Decision::Sticky, vec![3 * OWN]));
}

#[test]
fn growth_takes_the_places_of_the_longest_idle() {
    let mut world = World::new(1, Admission { kv_cache_tokens: Some(20_000), ..admission() });
    for conversation in 1..=5 {
        world.serves(conversation, 0);
        world.passes(0.1);
    }
    assert_eq!(world.held(), [5 * OWN]);
    let grows = world.goes(5);
    world.router.finish(&grows, Some(Tokens { prompt: 5_500, ..tokens(SIZE) }), world.now);
    // It has grown by 2,500, and all are now expected to.
    assert_eq!(world.held(), [3 * OWN + 5_500 + 2_500]);
    assert_eq!(world.goes(2).decision, Decision::Sticky);
    world.parks(1);
}

#[test]
fn a_prefix_that_all_share_counts_once() {
    let mut world = World::new(1, admission());
    world.serves(1, 0);
    let shared = 1_000;
    world.serves(2, shared);
    world.serves(1, SIZE);
    world.serves(2, SIZE);
    assert_eq!(world.held(), [shared + 2 * (OWN - shared)]);
    world.goes(3);
    assert_eq!(world.held(), [shared + 3 * (OWN - shared)], "so there is room for a third");
}

#[test]
fn before_its_first_report_a_conversation_has_the_tokens_of_its_bytes() {
    let mut world = World::new(1, Admission { kv_cache_tokens: Some(1_000_000), ..admission() });
    let first = world.asks(&Ask { bytes: 20_000, ..ask(1) });
    assert_eq!(world.held(), [6_000 + 500], "at 0.3 tokens a byte");
    world.router.finish(&first, Some(Tokens { prompt: 8_000, ..tokens(0) }), world.now);
    assert_eq!(world.held(), [8_000 + 500]);
    world.asks(&Ask { bytes: 10_000, ..ask(2) });
    assert_eq!(world.held(), [8_000 + 500 + 4_000 + 500], "and now at 0.4");
}

#[test]
fn a_slow_replica_gets_fewer() {
    let linger = Some(Duration::from_secs(1));
    let mut world = World::new(2, Admission { kv_cache_tokens: Some(100 * CAPACITY), linger, ..admission() });
    for round in 0..30 {
        let mut turns = [world.goes(2 * round), world.goes(2 * round + 1)];
        turns.sort_by_key(|turn| turn.target.engine);
        world.passes(1.0);
        world.router.began(&mut turns[1], world.now);
        world.passes(2.0);
        world.router.began(&mut turns[0], world.now);
        turns.iter().for_each(|turn| {
            world.router.finish(turn, Some(tokens(0)), world.now);
        });
        world.passes(2.0);
    }
    let mut placed = [0; 2];
    (1_000..1_012).for_each(|conversation| placed[world.goes(conversation).target.engine] += 1);
    assert!(placed[0] < placed[1] && placed[0] > 0, "{placed:?}");
}

#[test]
fn a_conversation_that_moves_has_its_place_at_its_new_home_only() {
    let mut world = World::new(2, admission());
    let first = world.goes(1);
    let second = world
        .router
        .retry(&ask(1), &first, &[world.router.attempt(0)], Retry::Unreachable, world.now)
        .expect("another is left");
    assert_eq!((second.target.engine, world.held()), (1, vec![0, OWN]));
    world.ends(&second);
    let back = world.goes(1);
    assert_eq!((back.decision, back.target.engine), (Decision::Sticky, 1));
    world.ends(&back);
    world.router.set_up(1, false);
    let moved = world.goes(1);
    assert_eq!((moved.decision, moved.target.engine, world.held()), (Decision::Placed, 0, vec![OWN, 0]));
}

#[test]
fn one_whose_home_refused_a_turn_keeps_its_place_there() {
    let mut world = World::new(2, admission());
    world.serves(1, 0);
    let turn = world.goes(1);
    let elsewhere = world
        .router
        .retry(&ask(1), &turn, &[world.router.attempt(0)], Retry::Refused, world.now)
        .expect("another is left");
    assert_eq!(world.held(), [OWN, OWN], "and takes room where the turn runs");
    world.ends(&elsewhere);
    assert_eq!(world.held(), [OWN, 0], "for as long as it runs");
}

#[test]
fn a_turn_that_names_its_rank_costs_its_conversation_no_place() {
    let mut world = World::new(1, admission());
    world.serves(1, 0);
    let pinned = world.asks(&Ask { pin: homing::routing::Pin::Rank(0), ..ask(1) });
    world.ends(&pinned);
    assert_eq!(world.held(), [OWN]);
}

#[test]
fn the_pauses_seen_say_how_long_a_place_is_kept() {
    let automatic = |pause_s: f64| {
        let mut world = World::new(1, Admission { linger: None, ..admission() });
        for _ in 0..50 {
            world.serves(1, SIZE);
            world.passes(pause_s);
        }
        world.snapshot().linger.as_secs_f64()
    };
    assert_eq!([0.0, 5.0, 1_000.0].map(automatic), [0.5, 5.0, 60.0], "from half a second to a minute");
}

#[test]
fn what_is_idle_past_its_place_weighs_nothing() {
    let mut world = World::new(2, admission());
    for conversation in 0..20 {
        world.serves(conversation, 0);
        world.passes(LINGER_S + 0.001);
    }
    assert!(world.is_at_rest());
    assert_eq!(world.goes(100).target.engine, 0, "a tie, though every one of them is live for five minutes");
}
