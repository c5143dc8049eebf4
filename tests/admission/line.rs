//! The line of those who wait.

use std::collections::HashMap;
use std::time::Duration;

use homing::routing::{
    Admission, AdmissionMode, Ask, Decision, Overdue, Pin, Refusal, RefusedWhy, Settings, Ticket, Tokens, Turn, Verdict,
};

use crate::world::{LINGER_S, OWN, SIZE, World, admission, ask, engines, settings, tokens};

/// One replica, whose two places are taken by turns in flight. Nothing lingers.
fn full() -> (World, Vec<Turn>) {
    let mut world = World::new(1, Admission { linger: Some(Duration::ZERO), ..admission() });
    let turns = vec![world.goes(1001), world.goes(1002)];
    (world, turns)
}

/// Lets turns end, one after the other, until all who wait have gone on; returns the order in which they did.
fn drain(world: &mut World, mut running: Vec<Turn>) -> Vec<Ticket> {
    let mut order = Vec::new();
    while world.snapshot().parked > 0 {
        world.ends(&running.remove(0));
        world.passes(0.001);
        let (ticket, turn) = world.wakes_one();
        order.push(ticket);
        running.push(turn);
    }
    order
}

#[test]
fn a_newcomer_waits_until_a_place_is_free() {
    let mut world = World::new(1, admission());
    let (first, _) = (world.goes(1), world.goes(2));
    assert_eq!(world.held(), [2 * OWN]);
    let ticket = world.parks(3);
    assert!(world.wakes().is_empty());
    world.ends(&first);
    world.passes(LINGER_S);
    assert!(world.wakes().is_empty(), "the place of an idle conversation is kept");
    world.passes(0.001);
    assert_eq!(world.snapshot().longest_wait, Duration::from_millis(10_001));
    assert_eq!(world.wakes_one().0, ticket);
    assert_eq!(world.held(), [2 * OWN]);
    let counts = world.counts();
    assert_eq!((counts.parked, counts.admitted, counts.left, counts.overdue), (1, 1, 0, 0));
}

#[test]
fn a_turn_that_ends_smaller_than_was_thought_makes_room_at_once() {
    let mut world = World::new(1, admission());
    let (first, _) = (world.goes(1), world.goes(2));
    let ticket = world.parks(3);
    let small = Tokens { prompt: 1_000, ..tokens(0) };
    world.router.finish(&first, Some(small), world.now);
    assert_eq!(world.wakes_one().0, ticket);
}

#[test]
fn who_came_first_goes_first() {
    let (mut world, running) = full();
    let tickets: Vec<Ticket> = (0..8).map(|conversation| world.parks(conversation)).collect();
    assert_eq!(drain(&mut world, running), tickets);
}

#[test]
fn one_who_comes_while_others_wait_does_not_overtake_them() {
    let (mut world, mut running) = full();
    let waits = world.parks(1);
    world.ends(&running.remove(0));
    world.passes(0.001);
    let comes = world.parks(2);
    assert_eq!(world.wakes_one().0, waits);
    assert!(world.wakes().is_empty(), "{comes:?} waits on");
}

#[test]
fn callers_take_turns() {
    let (mut world, running) = full();
    let names = ["1a", "1b", "1c", "1d", "2a", "3a", "3b"];
    let callers = [1, 1, 1, 1, 2, 3, 3];
    let tickets: HashMap<Ticket, &str> =
        (0..7).map(|index| (world.parks_of(callers[index], index as u128), names[index])).collect();
    let order: Vec<&str> = drain(&mut world, running).iter().map(|ticket| tickets[ticket]).collect();
    assert_eq!(order, ["1a", "2a", "3a", "1b", "3b", "1c", "1d"]);
}

#[test]
fn a_turn_of_a_conversation_with_a_place_never_waits() {
    let mut world = World::new(1, Admission { parked_max: 1, ..admission() });
    world.serves(1, 0);
    let other = world.goes(2);
    world.parks(3);
    for _ in 0..10 {
        let turn = world.goes(1);
        assert_eq!(turn.decision, Decision::Sticky);
        world.ends(&turn);
        world.passes(LINGER_S);
    }
    assert_eq!(world.refused(4).why, RefusedWhy::Full);
    world.ends(&other);
}

#[test]
fn several_requests_of_a_conversation_that_waits_share_its_place() {
    let (mut world, running) = full();
    let tickets = [world.parks(1), world.parks(1), world.parks(2), world.parks(1)];
    world.ends(&running[0]);
    world.passes(0.001);
    let woken = world.wakes();
    let decided: Vec<(Ticket, Decision)> = woken.iter().map(|(ticket, turn)| (*ticket, turn.decision)).collect();
    assert_eq!(decided, [(tickets[0], Decision::Placed), (tickets[1], Decision::Sticky)], "and 2 waits for its own");
    assert_eq!(world.held(), [2 * OWN]);
}

/// The client left, or was told to come again; it comes again after so many seconds.
#[test]
fn a_place_in_line_is_kept_for_a_minute() {
    for (away_s, kept) in [(0.0, true), (60.0, true), (60.001, false)] {
        for refused in [false, true] {
            let (mut world, running) = full();
            let first = world.parks(1);
            world.passes(100.0);
            let second = world.parks(2);
            if refused {
                world.passes(140.0);
                let woken = world.woken();
                assert_eq!((woken.len(), woken[0].ticket), (1, first));
                let refusal = Refusal { why: RefusedWhy::Overdue, retry_after_s: 1 };
                assert!(matches!(woken[0].verdict, Verdict::Refused(said) if said == refusal), "{woken:?}");
            } else {
                world.router.leave(first, world.now);
            }
            world.passes(away_s);
            let again = world.parks(1);
            let order = drain(&mut world, running);
            let expected = if kept { [again, second] } else { [second, again] };
            assert_eq!(order, expected, "{away_s} s, refused: {refused}");
            let counts = world.counts();
            assert_eq!((counts.parked, counts.admitted), (3, 2));
            assert_eq!((counts.left, counts.overdue), (u64::from(!refused), u64::from(refused)));
        }
    }
}

/// It had its place at once, or waited for it; then others needed the room in the middle of its work.
#[test]
fn a_conversation_that_lost_its_cache_comes_before_those_who_came_later() {
    for waited in [false, true] {
        let (mut world, mut running) = full();
        world.ends(&running.remove(0));
        if waited {
            let ticket = world.parks(1);
            world.passes(0.001);
            let (woken, turn) = world.wakes_one();
            assert_eq!(woken, ticket);
            world.ends(&turn);
        } else {
            world.passes(0.001);
            world.serves(1, 0);
        }
        world.passes(0.001);
        // A conversation of 9,000 tokens leaves no room for its cache.
        let large = world.asks(&Ask { bytes: 18_000, ..ask(2) });
        world.router.finish(&large, Some(Tokens { prompt: 9_000, ..tokens(0) }), world.now);
        world.passes(0.001);
        running.push(world.goes(3));
        let newcomer = world.parks(4);
        let back = world.parks(1);
        assert_eq!(drain(&mut world, running), [back, newcomer], "waited: {waited}");
    }
}

#[test]
fn one_who_leaves_is_forgotten_at_once() {
    let (mut world, running) = full();
    let (first, second) = (world.parks(1), world.parks(2));
    world.router.leave(first, world.now);
    world.router.leave(first, world.now);
    assert_eq!((world.snapshot().parked, world.counts().left), (1, 1), "leaving twice is leaving once");
    assert_eq!(drain(&mut world, running), [second]);
}

#[test]
fn overdue_it_goes_on_where_the_operator_says_so() {
    let mut world = World::new(2, Admission { overdue: Overdue::Admit, ..admission() });
    (1..=4).for_each(|conversation| {
        world.goes(conversation);
    });
    let tickets = [world.parks(5), world.parks(6)];
    world.passes(239.999);
    assert!(world.wakes().is_empty());
    world.passes(0.001);
    let woken = world.wakes();
    assert_eq!([woken[0].0, woken[1].0], tickets);
    let counts = world.counts();
    assert_eq!((counts.forced, counts.admitted, counts.overdue), (2, 2, 0));
    assert_eq!(world.held(), [3 * OWN, 3 * OWN], "each where least was to be expected");
}

#[test]
fn too_many_are_refused_with_the_time_that_the_line_will_take() {
    let cases = [(0.0, 240, 1), (10.0, 240, 20), (10.0, 5, 5)];
    for (pace_s, max_wait_s, retry_after_s) in cases {
        let max_wait = Duration::from_secs(max_wait_s);
        let mut world = World::new(2, Admission { parked_max: 2, max_wait, ..admission() });
        for conversation in 1..=4 {
            world.goes(conversation);
            world.passes(pace_s);
        }
        world.parks(5);
        world.parks(6);
        let refusal = Refusal { why: RefusedWhy::Full, retry_after_s };
        assert_eq!(world.refused(7), refusal, "one in {pace_s} s, of whom two wait, for {max_wait_s} s at most");
        assert_eq!(world.counts().full, 1);
    }
}

#[test]
fn with_others_waiting_a_conversation_gives_its_place_up_after_its_turns() {
    let mut world = World::new(1, Admission { rotate: Some(2), ..admission() });
    world.serves(1, 0);
    world.goes(2);
    (0..3).for_each(|_| {
        world.serves(1, SIZE);
    });
    let waits = world.parks(3);
    let turn = world.goes(1);
    assert_eq!(turn.decision, Decision::Sticky, "no turn of it is held back before");
    world.ends(&turn);
    let (ticket, third) = world.wakes_one();
    assert_eq!(ticket, waits);
    assert_eq!(world.goes(1).decision, Decision::Sticky, "its cache is there and nobody waits");
    world.ends(&third);
}

#[test]
fn one_who_had_its_turns_stands_behind_those_who_had_none() {
    let mut world = World::new(1, Admission { rotate: Some(1), ..admission() });
    let running = [world.goes(1001), world.goes(1002)];
    let tickets = [world.parks(1), world.parks(2), world.parks(3)];
    world.ends(&running[0]);
    let (first, turn) = world.wakes_one();
    world.ends(&turn);
    let (second, turn) = world.wakes_one();
    let again = world.parks(1);
    world.ends(&turn);
    let (third, turn) = world.wakes_one();
    world.ends(&turn);
    let (fourth, turn) = world.wakes_one();
    assert_eq!([first, second, third, fourth], [tickets[0], tickets[1], tickets[2], again]);
    assert_eq!(turn.decision, Decision::Placed);
}

#[test]
fn observing_parks_nobody_and_counts_who_would_have_waited() {
    let mut world = World::new(1, Admission { mode: AdmissionMode::Observe, ..admission() });
    (1..=5).for_each(|conversation| {
        world.goes(conversation);
    });
    assert_eq!(world.goes(1).decision, Decision::Sticky);
    let counts = world.counts();
    assert_eq!((counts.would_park, counts.parked), (3, 0));
}

#[test]
fn only_turns_of_a_conversation_wait() {
    let cases = [
        ("a rank named", Ask { pin: Pin::Rank(0), ..ask(9) }, true, Decision::ClientPinned),
        ("a rank that no engine has", Ask { pin: Pin::Rank(7), ..ask(9) }, true, Decision::Unrouted),
        ("no rank at all", Ask { pin: Pin::Invalid, ..ask(9) }, true, Decision::Unrouted),
        ("no conversation", Ask { key: None, ..ask(9) }, true, Decision::Balanced),
        ("affinity off", ask(9), false, Decision::Unrouted),
    ];
    for (why, ask, affinity, decision) in cases {
        let (mut world, _) = full();
        world.router.configure(Settings { affinity, ..settings(admission()) }, &engines(1), world.now);
        assert_eq!(world.asks(&ask).decision, decision, "{why}");
        assert_eq!(world.counts().parked, 0, "{why}");
    }
}

/// One in ten leaves. Of each caller, who came first goes first.
#[test]
fn ten_thousand_wait_in_order_and_leave_nothing_behind() {
    for callers in [1, 100] {
        let linger = Some(Duration::ZERO);
        let mut world = World::new(2, Admission { parked_max: 10_000, linger, ..admission() });
        let mut running: Vec<Turn> = (100_000..100_004).map(|conversation| world.goes(conversation)).collect();
        let tickets: Vec<(u64, Ticket)> = (0..10_000)
            .map(|conversation| {
                let caller = conversation % callers;
                (caller, world.parks_of(caller, conversation.into()))
            })
            .collect();
        assert_eq!(world.refused(10_000).why, RefusedWhy::Full);
        let leaves = |index: usize| index % 10 == 9;
        let mut expected: HashMap<u64, Vec<Ticket>> = HashMap::new();
        for (index, (caller, ticket)) in tickets.iter().enumerate() {
            if leaves(index) {
                world.router.leave(*ticket, world.now);
            } else {
                expected.entry(*caller).or_default().push(*ticket);
            }
        }
        let caller_of: HashMap<Ticket, u64> = tickets.iter().map(|(caller, ticket)| (*ticket, *caller)).collect();
        let mut order: HashMap<u64, Vec<Ticket>> = HashMap::new();
        while let Some(turn) = running.pop() {
            world.ends(&turn);
            world.passes(0.001);
            for (ticket, turn) in world.wakes() {
                order.entry(caller_of[&ticket]).or_default().push(ticket);
                running.push(turn);
            }
        }
        assert!(order == expected, "{callers} callers");
        let counts = world.counts();
        assert_eq!((counts.parked, counts.admitted, counts.left), (10_000, 9_000, 1_000));
        assert!(world.is_at_rest());
    }
}
