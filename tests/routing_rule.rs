//! The rule of routing, case by case, on the pure core.

use std::time::Duration;

use homing::routing::{
    Admission, Ask, Decision, EngineSpec, Key, Pin, Reading, Recovery, Retry, Router, Settings, Time, Turn, Verdict,
};

const MINUTE: Duration = Duration::from_secs(60);

fn settings() -> Settings {
    Settings {
        affinity: true,
        spill_threshold: 8,
        idle_forget: 30 * MINUTE,
        conversations_max: 8192,
        admission: Admission::off(),
        recovery: Recovery::default(),
    }
}

fn engines(count: usize) -> Vec<EngineSpec> {
    (0..count).map(|index| EngineSpec { name: format!("engine-{index}:8000"), data_parallel_size: 1 }).collect()
}

fn router(count: usize) -> Router {
    Router::new(settings(), &engines(count))
}

fn turn(key: u128) -> Ask {
    Ask::of(Some(Key::new(key)))
}

fn pinned(key: u128, rank: u32) -> Ask {
    Ask { pin: Pin::Rank(rank), ..Ask::of(Some(Key::new(key))) }
}

fn reading(running: u64, waiting: u64, kv_cache_usage: f64) -> Reading {
    Reading {
        running: Some(running),
        waiting: Some(waiting),
        kv_cache_usage: Some(kv_cache_usage),
        ..Reading::default()
    }
}

fn send(router: &mut Router, ask: Ask, now: Time) -> Turn {
    match router.route(&ask, now) {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("an engine is configured and nothing waits: {other:?}"),
    }
}

fn name(router: &Router, route: &Turn) -> String {
    router.replica_name(&route.target)
}

#[test]
fn a_burst_of_new_conversations_spreads_evenly() {
    let mut router = router(4);
    (0..100).for_each(|key| {
        send(&mut router, turn(key), Time(0));
    });
    let counts: Vec<u32> = router.snapshot(Time(0)).replicas.iter().map(|replica| replica.in_flight).collect();
    assert_eq!(counts, [25, 25, 25, 25]);
}

#[test]
fn later_turns_go_home_whatever_the_load() {
    let mut router = router(3);
    let first = send(&mut router, turn(1), Time(0));
    router.finish(&first, None, Time(0));
    router.read(0, &[reading(20, 20, 1.0)], Time(1));
    let second = send(&mut router, turn(1), Time(2));
    assert_eq!((second.target, second.decision), (first.target, Decision::Sticky));
}

#[test]
fn a_request_spills_at_the_threshold_to_the_fewest_in_flight_and_the_home_stays() {
    let mut router = router(3);
    let home = send(&mut router, turn(1), Time(0));
    (1..8).for_each(|_| assert_eq!(send(&mut router, turn(1), Time(0)).decision, Decision::Sticky));
    let busy = send(&mut router, turn(2), Time(0));
    assert_eq!(name(&router, &busy), "engine-1:8000");

    let spilled = send(&mut router, turn(1), Time(0));
    assert_eq!((spilled.decision, name(&router, &spilled).as_str()), (Decision::Spilled, "engine-2:8000"));
    router.finish(&home, None, Time(0));
    let back = send(&mut router, turn(1), Time(0));
    assert_eq!((back.decision, back.target), (Decision::Sticky, home.target));
}

#[test]
fn with_every_replica_as_busy_as_home_a_turn_stays() {
    let mut router = Router::new(Settings { spill_threshold: 1, ..settings() }, &engines(2));
    let home = send(&mut router, turn(1), Time(0));
    send(&mut router, turn(2), Time(0));
    let again = send(&mut router, turn(1), Time(0));
    assert_eq!((again.decision, again.target), (Decision::Sticky, home.target));
}

#[test]
fn kv_use_weighs_as_eight_requests_if_every_reading_is_fresh() {
    let place = |second_read_at: Option<u64>| {
        let mut router = router(2);
        router.read(0, &[reading(0, 0, 0.5)], Time(20_000));
        second_read_at.inspect(|at| {
            router.read(1, &[reading(0, 0, 0.0)], Time(*at));
        });
        let route = send(&mut router, turn(1), Time(20_000));
        name(&router, &route)
    };
    assert_eq!(place(Some(20_000)), "engine-1:8000", "half a cache in use weighs four requests");
    assert_eq!(place(Some(5_001)), "engine-1:8000", "a reading of under 15 s counts");
    assert_eq!(place(Some(5_000)), "engine-0:8000", "an older one leaves the KV use of all out");
    assert_eq!(place(None), "engine-0:8000", "and so does a missing one");
}

#[test]
fn ties_go_to_the_fewest_live_conversations_then_to_the_first() {
    let mut router = router(3);
    let first = send(&mut router, turn(1), Time(0));
    router.finish(&first, None, Time(0));
    // Engine 0 has a live conversation, engine 1 a request in flight without one: the loads are the same.
    send(&mut router, Ask::of(None), Time(0));
    router.set_up(2, false);
    let placed = send(&mut router, turn(2), Time(0));
    assert_eq!(name(&router, &placed), "engine-1:8000");
}

#[test]
fn a_conversation_is_live_for_five_minutes_and_forgotten_after_idle_forget() {
    let mut router = router(2);
    let first = send(&mut router, turn(1), Time(0));
    router.finish(&first, None, Time(0));
    let live_and_held = |router: &mut Router, seconds: u64| {
        let replica = &router.snapshot(Time(seconds * 1000)).replicas[0];
        (replica.live, replica.conversations)
    };
    assert_eq!(live_and_held(&mut router, 300), (1, 1));
    assert_eq!(live_and_held(&mut router, 301), (0, 1));
    assert_eq!(live_and_held(&mut router, 1800), (0, 1));
    assert_eq!(live_and_held(&mut router, 1801), (0, 0));
    assert_eq!(send(&mut router, turn(1), Time(1_801_000)).decision, Decision::Placed);
}

#[test]
fn without_a_key_a_request_is_balanced_by_load() {
    let mut router = router(2);
    let keyless = Ask::of(None);
    let names: Vec<String> = (0..2)
        .map(|_| {
            let route = send(&mut router, keyless, Time(0));
            assert_eq!(route.decision, Decision::Balanced);
            name(&router, &route)
        })
        .collect();
    assert_eq!(names, ["engine-0:8000", "engine-1:8000"]);
}

#[test]
fn a_restart_forgets_the_conversations_of_that_engine_only() {
    let with = |prompt_tokens, process_start_s| Reading { prompt_tokens, process_start_s, ..Reading::default() };
    let restarts = [
        ("a counter fell", with(Some(9), None), with(Some(8), None)),
        ("another process", with(None, Some(1.0)), with(None, Some(2.0))),
    ];
    for (why, before, after) in restarts {
        let mut router = router(2);
        router.read(0, &[before], Time(0));
        for key in [1, 2] {
            let route = send(&mut router, turn(key), Time(0));
            router.finish(&route, None, Time(0));
        }
        assert!(!router.read(0, &[before], Time(1)), "the same reading again is no restart");
        assert!(router.read(0, &[after], Time(2)), "{why}");
        assert_eq!(send(&mut router, turn(1), Time(3)).decision, Decision::Placed, "{why}");
        assert_eq!(send(&mut router, turn(2), Time(3)).decision, Decision::Sticky, "{why}");
    }
}

#[test]
fn an_engine_that_is_out_gets_nothing_unless_all_are() {
    let mut router = router(2);
    let first = send(&mut router, turn(1), Time(0));
    assert!(router.set_up(0, false));
    let moved = send(&mut router, turn(1), Time(1));
    assert_eq!((moved.decision, name(&router, &moved).as_str()), (Decision::Placed, "engine-1:8000"));
    assert!(router.set_up(1, false));
    let still = send(&mut router, turn(1), Time(2));
    assert_eq!((still.decision, still.target), (Decision::Sticky, moved.target), "with none left, all are tried");
    router.finish(&first, None, Time(0));
}

#[test]
fn a_failed_try_moves_the_home_only_if_it_cannot_be_reached() {
    for (why, decision_after) in [(Retry::Unreachable, "engine-1:8000"), (Retry::Refused, "engine-0:8000")] {
        let mut router = router(3);
        let first = send(&mut router, turn(1), Time(0));
        let second = router.retry(&turn(1), &first, &[router.attempt(0)], why, Time(0)).expect("two engines are left");
        router.finish(&second, None, Time(0));
        let later = send(&mut router, turn(1), Time(1));
        assert_eq!((later.decision, name(&router, &later).as_str()), (Decision::Sticky, decision_after), "{why:?}");
        let snapshot = router.snapshot(Time(1));
        assert_eq!((snapshot.failed_over, snapshot.decisions.sum()), (1, 2), "a try is no decision");
    }
}

#[test]
fn no_engine_is_tried_twice() {
    let mut router = router(2);
    let first = send(&mut router, turn(1), Time(0));
    let second =
        router.retry(&turn(1), &first, &[router.attempt(0)], Retry::Refused, Time(0)).expect("another engine is left");
    assert!(
        router
            .retry(&turn(1), &second, &[0, 1].map(|engine| router.attempt(engine)), Retry::Refused, Time(0))
            .is_none()
    );
}

#[test]
fn a_client_s_rank_is_honoured_within_its_home_s_engine() {
    let ranked = |name: &str| EngineSpec { name: name.into(), data_parallel_size: 4 };
    let mut router = Router::new(settings(), &[ranked("a:1"), ranked("b:1")]);
    (0..5).for_each(|key| {
        send(&mut router, turn(key), Time(0));
    });
    // Conversation 4 is at home in the second engine.
    let home = send(&mut router, turn(4), Time(0));
    assert_eq!(name(&router, &home), "b:1#0");
    let there = send(&mut router, pinned(4, 3), Time(0));
    assert_eq!((there.decision, name(&router, &there).as_str()), (Decision::ClientPinned, "b:1#3"));
    let elsewhere = send(&mut router, pinned(99, 2), Time(0));
    assert_eq!(name(&router, &elsewhere), "b:1#2", "without a home, in the least busy engine");
    let nowhere = send(&mut router, pinned(4, 4), Time(0));
    assert_eq!((nowhere.decision, nowhere.target.replica, nowhere.target.rank), (Decision::Unrouted, None, None));
    assert_eq!(name(&router, &nowhere), "b:1", "an engine says itself what is wrong with a rank that it lacks");
    assert_eq!(send(&mut router, turn(4), Time(1)).target, home.target, "a pin moves no home");
}

#[test]
fn ranks_are_named_to_the_engine_only_where_the_balancer_chooses_them() {
    let ranked = [EngineSpec { name: "a:1".into(), data_parallel_size: 2 }];
    let mut on = Router::new(settings(), &ranked);
    let mut off = Router::new(Settings { affinity: false, ..settings() }, &ranked);
    assert_eq!(send(&mut on, turn(1), Time(0)).target.rank, Some(0));
    let unrouted = send(&mut off, turn(1), Time(0));
    assert_eq!((unrouted.decision, unrouted.target.rank), (Decision::Unrouted, None));
    assert_eq!(off.snapshot(Time(0)).in_flight, 1, "it is in flight on the engine, on a rank that only that knows");
    off.finish(&unrouted, None, Time(0));
    assert_eq!(off.snapshot(Time(0)).in_flight, 0);
    assert_eq!(send(&mut router(1), turn(1), Time(0)).target.rank, None, "an engine without ranks is named none");
}

#[test]
fn with_affinity_off_the_least_running_and_waiting_counts_own_requests_at_once() {
    let mut router = Router::new(Settings { affinity: false, ..settings() }, &engines(2));
    router.read(0, &[reading(2, 1, 0.0)], Time(0));
    router.read(1, &[reading(0, 0, 0.0)], Time(0));
    let names: Vec<String> = (0..6)
        .map(|key| {
            let route = send(&mut router, turn(key), Time(1));
            name(&router, &route)
        })
        .collect();
    let second = |count: usize| vec!["engine-1:8000"; count];
    assert_eq!(names[..3], second(3), "three more go where three fewer are");
    assert_eq!(names[3..].iter().filter(|name| *name == "engine-0:8000").count(), 2, "then they alternate");
    // The next reading counts the same requests itself.
    router.read(0, &[reading(5, 0, 0.0)], Time(2));
    router.read(1, &[reading(4, 0, 0.0)], Time(2));
    let next = send(&mut router, turn(7), Time(3));
    assert_eq!(name(&router, &next), "engine-1:8000");
}

#[test]
fn following_a_conversation_counts_nothing() {
    let mut router = router(2);
    let home = send(&mut router, turn(1), Time(0));
    assert_eq!(router.follow(&turn(1), &[], Time(0)), Some(home.target));
    let other = router.follow(&turn(2), &[], Time(0)).expect("an engine is configured");
    assert_ne!(other.engine, home.target.engine, "a stranger goes to the least loaded");
    let snapshot = router.snapshot(Time(0));
    assert_eq!((snapshot.in_flight, snapshot.decisions.sum(), snapshot.conversations), (1, 1, 1));
}

#[test]
fn a_reload_keeps_what_stays_and_lets_the_rest_end() {
    let mut router = router(2);
    let stays = send(&mut router, turn(1), Time(0));
    let goes = send(&mut router, turn(2), Time(0));
    let left = [engines(1)[0].clone(), EngineSpec { name: "new:1".into(), data_parallel_size: 1 }];
    router.configure(settings(), &left, Time(0));
    assert_eq!(send(&mut router, turn(1), Time(1)).target, stays.target);
    let moved = send(&mut router, turn(2), Time(1));
    assert_eq!((moved.decision, name(&router, &moved).as_str()), (Decision::Placed, "new:1"));

    let states = |router: &mut Router| -> Vec<(String, &str, u32)> {
        let replicas = router.snapshot(Time(1)).replicas;
        replicas.into_iter().map(|r| (r.name, r.state.name(), r.in_flight)).collect()
    };
    let ending = ("engine-1:8000".to_owned(), "draining", 1);
    assert_eq!(states(&mut router).last(), Some(&ending), "what it has in flight ends there");
    router.finish(&goes, None, Time(0));
    assert_eq!(states(&mut router).len(), 2);
    assert_eq!(router.snapshot(Time(1)).decisions.sum(), 4, "totals lose nothing");
    router.configure(settings(), &engines(2), Time(0));
    let back = states(&mut router);
    assert_eq!((back[1].0.as_str(), back[1].1), ("engine-1:8000", "up"));
}

#[test]
fn following_keeps_to_a_named_rank_and_to_affinity_off() {
    let ranked = [EngineSpec { name: "a:1".into(), data_parallel_size: 4 }];
    let rank_of = |router: &Router, ask: Ask| router.follow(&ask, &[], Time(0)).and_then(|target| target.rank);
    let mut on = Router::new(settings(), &ranked);
    let off = Router::new(Settings { affinity: false, ..settings() }, &ranked);
    send(&mut on, turn(1), Time(0));
    assert_eq!(rank_of(&on, turn(1)), Some(0));
    assert_eq!(rank_of(&on, pinned(1, 3)), Some(3), "the client's rank stands");
    assert_eq!(rank_of(&on, pinned(1, 9)), None, "and so does one that there is not");
    assert_eq!(rank_of(&off, turn(1)), None, "with affinity off the engine chooses");
}

#[test]
fn a_rank_that_no_engine_has_is_tried_elsewhere_too() {
    let mut router = router(2);
    let first = send(&mut router, pinned(1, 7), Time(0));
    assert_eq!(first.decision, Decision::Unrouted);
    let next = router.retry(&pinned(1, 7), &first, &[router.attempt(first.target.engine)], Retry::Refused, Time(0));
    assert_eq!(next.map(|turn| turn.target.engine), Some(1));
}

#[test]
fn a_conversation_that_names_its_rank_is_not_forgotten() {
    let mut router = router(2);
    let home = send(&mut router, turn(1), Time(0));
    send(&mut router, pinned(1, 0), Time(1_700_000));
    let later = send(&mut router, turn(1), Time(1_900_000));
    assert_eq!((later.decision, later.target), (Decision::Sticky, home.target));
}

#[test]
fn a_named_rank_is_asked_even_where_only_engines_that_are_out_have_it() {
    let engines = [
        EngineSpec { name: "one:1".into(), data_parallel_size: 1 },
        EngineSpec { name: "ranked:1".into(), data_parallel_size: 4 },
    ];
    let mut router = Router::new(settings(), &engines);
    router.set_up(1, false);
    let there = send(&mut router, pinned(1, 3), Time(0));
    assert_eq!((there.decision, name(&router, &there).as_str()), (Decision::ClientPinned, "ranked:1#3"));
}

#[test]
fn a_fleet_that_changes_for_ever_does_not_grow_for_ever() {
    let mut router = router(2);
    for generation in 0..1000u64 {
        let route = send(&mut router, turn(generation.into()), Time(generation));
        router.finish(&route, None, Time(0));
        let names = [format!("a{generation}:1"), format!("b{generation}:1")];
        let engines = names.map(|name| EngineSpec { name, data_parallel_size: 1 });
        router.configure(settings(), &engines, Time(0));
    }
    assert!(router.configured().iter().all(|index| *index < 4), "{:?}", router.configured());
    let snapshot = router.snapshot(Time(1000));
    assert_eq!((snapshot.decisions.sum(), snapshot.replicas.len()), (1000, 2), "and loses no count");
}
