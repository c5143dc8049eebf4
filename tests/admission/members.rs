//! Engines that fail, restart, come and go while requests wait.

use std::time::Duration;

use homing::routing::{
    Admission, AdmissionMode, Decision, EngineSpec, Overdue, Reading, Retry, Settings, Ticket, Turn, Verdict,
};

use crate::world::{OWN, World, admission, ask, engines, settings};

/// Two replicas whose places are taken by turns in flight, two on each, and three that wait. Nothing lingers.
fn full() -> (World, Vec<Turn>, Vec<Ticket>) {
    let mut world = World::new(2, Admission { linger: Some(Duration::ZERO), ..admission() });
    let mut turns: Vec<Turn> = (1..=4).map(|conversation| world.goes(conversation)).collect();
    turns.sort_by_key(|turn| turn.target.engine);
    let tickets = (5..=7).map(|conversation| world.parks(conversation)).collect();
    (world, turns, tickets)
}

/// Ends all that runs, again and again, until nobody waits; returns who went where.
fn drain(world: &mut World, mut running: Vec<Turn>) -> Vec<(Ticket, usize)> {
    let mut went = Vec::new();
    while !running.is_empty() {
        running.drain(..).for_each(|turn| {
            world.ends(&turn);
        });
        world.passes(0.001);
        for (ticket, turn) in world.wakes() {
            went.push((ticket, turn.target.engine));
            running.push(turn);
        }
    }
    assert!(world.is_at_rest());
    went
}

#[test]
fn an_engine_that_is_out_takes_none_of_them_while_another_is_up() {
    for (out, serves) in [(0, 1), (1, 0)] {
        let (mut world, running, tickets) = full();
        world.router.set_up(out, false);
        let expected: Vec<(Ticket, usize)> = tickets.into_iter().map(|ticket| (ticket, serves)).collect();
        assert_eq!(drain(&mut world, running), expected);
    }
}

#[test]
fn with_every_engine_out_they_are_tried_all_the_same() {
    let (mut world, running, tickets) = full();
    (0..2).for_each(|engine| assert!(world.router.set_up(engine, false)));
    let went: Vec<Ticket> = drain(&mut world, running).into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(went, tickets);
}

#[test]
fn an_engine_that_comes_back_has_room_at_once() {
    let (mut world, running, tickets) = full();
    world.router.configure(settings(admission()), &engines(3), world.now);
    let woken = world.wakes();
    assert_eq!(woken.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets[..2]);
    assert!(woken.iter().all(|(_, turn)| turn.target.engine == 2));
    drop(running);
}

#[test]
fn a_restart_frees_the_places_of_what_is_idle() {
    let mut world = World::new(1, admission());
    let with = |prompt_tokens| Reading { prompt_tokens: Some(prompt_tokens), ..Reading::default() };
    world.router.read(0, &[with(9)], world.now);
    world.serves(1, 0);
    let running = world.goes(2);
    let ticket = world.parks(3);
    assert!(world.router.read(0, &[with(1)], world.now));
    assert_eq!(world.held(), [OWN], "what runs still runs");
    assert_eq!(world.wakes_one().0, ticket);
    world.ends(&running);
    assert_eq!(world.held(), [OWN], "and has no place when it ends");
}

#[test]
fn when_their_engines_go_they_go_to_the_new_ones() {
    let (mut world, running, tickets) = full();
    let others: Vec<EngineSpec> =
        ["new-0:1", "new-1:1"].map(|name| EngineSpec { name: name.into(), data_parallel_size: 1 }).into();
    world.router.configure(settings(admission()), &others, world.now);
    let woken = world.wakes();
    assert_eq!(woken.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets);
    assert!(woken.iter().all(|(_, turn)| world.router.replica_name(&turn.target).starts_with("new-")));
    running.iter().chain(woken.iter().map(|(_, turn)| turn)).for_each(|turn| {
        world.router.finish(turn, None, world.now);
    });
    world.passes(11.0);
    assert!(world.is_at_rest());
}

#[test]
fn when_admission_is_turned_off_all_go_on() {
    for mode in [AdmissionMode::Off, AdmissionMode::Observe] {
        let (mut world, _, tickets) = full();
        world.router.configure(settings(Admission { mode, ..admission() }), &engines(2), world.now);
        let woken = world.wakes();
        assert_eq!(woken.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets);
        assert!(woken.iter().all(|(_, turn)| turn.decision == Decision::Placed));
    }
}

/// None of them gets a home: each goes where the least is to do.
#[test]
fn when_affinity_is_turned_off_all_go_on_by_load() {
    let (mut world, running, tickets) = full();
    world.router.configure(Settings { affinity: false, ..settings(admission()) }, &engines(2), world.now);
    let conversations = world.snapshot().conversations;
    let woken = world.wakes();
    assert_eq!(woken.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets);
    assert!(woken.iter().all(|(_, turn)| turn.decision == Decision::Unrouted));
    assert_eq!(world.snapshot().conversations, conversations);
    for turn in running.iter().chain(woken.iter().map(|(_, turn)| turn)) {
        world.ends(turn);
    }
    assert_eq!(world.snapshot().in_flight, 0);
}

#[test]
fn with_no_engine_left_they_are_refused_when_they_are_overdue() {
    for overdue in [Overdue::Refuse, Overdue::Admit] {
        let (mut world, _, tickets) = full();
        world.router.configure(settings(Admission { overdue, ..admission() }), &[], world.now);
        assert!(world.woken().is_empty());
        assert!(world.router.route(&ask(9), world.now).is_none());
        world.passes(240.0);
        let woken = world.woken();
        assert_eq!(woken.iter().map(|woken| woken.ticket).collect::<Vec<_>>(), tickets);
        assert!(woken.iter().all(|woken| matches!(woken.verdict, Verdict::Refused(_))));
    }
}

/// Where none is up, one that is to be tried again is no better than the others that are suspect.
#[test]
fn nobody_waits_for_the_one_to_be_tried_while_another_as_bad_has_room() {
    let mut world = World::new(2, admission());
    world.router.set_draining(1, true);
    (1..=2).for_each(|conversation| assert_eq!(world.goes(conversation).target.engine, 0));
    world.parks(3);
    world.router.set_draining(1, false);
    for engine in 0..2 {
        let attempt = world.router.attempt(engine);
        (0..5).for_each(|_| _ = world.router.failed(&attempt, world.now));
        // The first is to be tried after 10 s, the second 5 s later.
        world.passes(5.0);
    }
    world.passes(1.0);
    let (_, turn) = world.wakes_one();
    assert_eq!(turn.target.engine, 1, "the first has no room");
    assert_eq!(world.goes(4).target.engine, 1);
    world.parks(5);
}

#[test]
fn one_that_waited_can_fail_and_be_sent_elsewhere() {
    for (why, home) in [(Retry::Unreachable, 1), (Retry::Refused, 0)] {
        let mut world = World::new(2, admission());
        let running: Vec<Turn> = (1..=4).map(|conversation| world.goes(conversation)).collect();
        world.parks(5);
        world.ends(&running[0]);
        world.passes(10.001);
        let (_, turn) = world.wakes_one();
        assert_eq!(turn.target.engine, 0);
        let next =
            world.router.retry(&ask(5), &turn, &[world.router.attempt(0)], why, world.now).expect("another is left");
        assert!(
            world
                .router
                .retry(&ask(5), &next, &[0, 1].map(|engine| world.router.attempt(engine)), why, world.now)
                .is_none(),
            "it stays where it is"
        );
        world.ends(&next);
        let again = world.goes(5);
        assert_eq!((again.decision, again.target.engine), (Decision::Sticky, home), "{why:?}");
        running[1..].iter().chain([&again]).for_each(|turn| {
            world.ends(turn);
        });
        world.passes(10.001);
        assert!(world.is_at_rest());
        let snapshot = world.snapshot();
        assert_eq!((snapshot.decisions.sum(), snapshot.failed_over), (6, 1));
    }
}
