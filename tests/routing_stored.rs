//! Requests that name what only one engine keeps: stored responses, and threads of them.

use std::time::Duration;

use homing::routing::{
    Admission, Ask, Decision, EngineSpec, Key, Overdue, Pin, Reading, Recovery, Retry, Router, Settings, Target, Time,
    Turn, Verdict,
};

const RESPONSE: Key = Key::new(1 << 100);

fn settings() -> Settings {
    Settings {
        affinity: true,
        spill_threshold: 1,
        idle_forget: Duration::from_secs(1800),
        conversations_max: 4,
        admission: Admission::off(),
        recovery: Recovery::default(),
    }
}

fn engines<const N: usize>(names: [&str; N]) -> Vec<EngineSpec> {
    names.map(|name| EngineSpec { name: name.into(), data_parallel_size: if name == "ranks" { 3 } else { 1 } }).to_vec()
}

fn named() -> Ask {
    Ask { stored: Some(RESPONSE), ..Ask::of(None) }
}

fn turn(router: &mut Router, ask: &Ask) -> Turn {
    match router.route(ask, Time(0)) {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("an engine is configured and nothing waits: {other:?}"),
    }
}

/// A router over these engines, the last of which keeps the response, and where that is.
fn kept<const N: usize>(settings: Settings, names: [&str; N]) -> (Router, Target) {
    let mut router = Router::new(settings, &engines(names));
    let last = N - 1;
    (0..last).for_each(|index| _ = router.set_up(index, false));
    let maker = turn(&mut router, &Ask::of(None));
    (0..last).for_each(|index| _ = router.set_up(index, true));
    assert_eq!(maker.target.engine, last);
    router.keeps(&maker.target, RESPONSE);
    router.finish(&maker, None, Time(0));
    (router, maker.target)
}

#[test]
fn it_goes_where_that_is_before_any_other_rule() {
    let (mut router, place) = kept(settings(), ["a", "b", "ranks"]);
    let unknown = Ask { stored: Some(Key::new(7)), ..Ask::of(None) };
    assert_eq!(turn(&mut router, &unknown).decision, Decision::Balanced, "what nobody knows is routed as ever");
    // Whatever is in flight there, whatever rank the client named, and whatever home its conversation has.
    let home = turn(&mut router, &Ask::of(Some(Key::new(9))));
    assert_ne!(home.target.engine, place.engine);
    for ask in [named(), named(), Ask { pin: Pin::Rank(2), ..named() }, Ask { key: Some(Key::new(9)), ..named() }] {
        let there = turn(&mut router, &ask);
        assert_eq!((there.target, there.decision), (place, Decision::ClientPinned));
    }
    assert_eq!(router.follow(&named(), &[], Time(0)), Some(place));
    let snapshot = router.snapshot(Time(0));
    assert_eq!(snapshot.decisions.client_pinned, 4);
    assert_eq!(snapshot.replicas[2..].iter().map(|replica| replica.in_flight).sum::<u32>(), 4);
    // It moved no home and made none.
    assert_eq!(snapshot.conversations, 1);
    router.finish(&home, None, Time(0));
    assert_eq!(turn(&mut router, &Ask::of(Some(Key::new(9)))).target, home.target);
}

#[test]
fn with_affinity_off_it_goes_there_too() {
    let (mut router, place) = kept(Settings { affinity: false, ..settings() }, ["a", "b", "ranks"]);
    assert_eq!((place.replica, place.rank), (None, None), "the engine chose its rank itself");
    assert_eq!(turn(&mut router, &named()).target, place);
}

#[test]
fn nobody_else_is_tried() {
    let (mut router, place) = kept(settings(), ["a", "b"]);
    let there = turn(&mut router, &named());
    for why in [Retry::Unreachable, Retry::Refused] {
        assert!(router.retry(&named(), &there, &[router.attempt(place.engine)], why, Time(0)).is_none());
    }
    assert_eq!(router.follow(&named(), &[router.attempt(place.engine)], Time(0)), None);
    // One that is out may still answer, and nobody else can.
    router.set_up(place.engine, false);
    assert_eq!(turn(&mut router, &named()).target, place);
}

#[test]
fn it_never_waits_for_room() {
    let admission = Admission { kv_cache_tokens: Some(100), overdue: Overdue::Refuse, ..Admission::default() };
    let mut router = Router::new(Settings { admission, ..settings() }, &engines(["a"]));
    let first = turn(&mut router, &Ask { bytes: 4000, ..Ask::of(Some(Key::new(1))) });
    router.keeps(&first.target, RESPONSE);
    let newcomer = Ask { bytes: 4000, ..Ask::of(Some(Key::new(2))) };
    assert!(matches!(router.route(&newcomer, Time(0)), Some(Verdict::Parked(_))), "there is no room");
    let there = turn(&mut router, &Ask { stored: Some(RESPONSE), ..newcomer });
    assert_eq!(there.decision, Decision::ClientPinned);
    assert_eq!(router.snapshot(Time(0)).in_flight, 2);
}

#[test]
fn what_was_kept_is_gone_with_its_engine() {
    let (mut router, place) = kept(settings(), ["a", "b"]);
    let gone = |router: &mut Router| {
        let verdict = router.route(&named(), Time(0));
        assert_eq!(matches!(verdict, Some(Verdict::Gone)), router.is_gone(&named()));
        router.is_gone(&named())
    };
    assert!(!gone(&mut router));
    router.configure(settings(), &engines(["a"]), Time(0));
    assert!(gone(&mut router), "it is configured no more");
    router.configure(settings(), &engines(["a", "b"]), Time(0));
    assert!(!gone(&mut router), "it is again, and may never have stopped");
    let prompt_tokens = |tokens| [Reading { prompt_tokens: Some(tokens), ..Reading::default() }];
    router.read(place.engine, &prompt_tokens(10), Time(0));
    assert!(!gone(&mut router));
    assert!(router.read(place.engine, &prompt_tokens(1), Time(0)), "it has restarted");
    assert!(gone(&mut router));
    router.keeps(&place, RESPONSE);
    assert!(!gone(&mut router), "made anew");
}

#[test]
fn another_engine_in_its_place_has_not_what_it_kept() {
    let (mut router, place) = kept(settings(), ["a", "b"]);
    router.configure(settings(), &engines(["a"]), Time(0));
    router.configure(settings(), &engines(["a", "c"]), Time(0));
    assert_eq!(router.engine("c"), Some(place.engine), "the place is given again");
    assert!(router.is_gone(&named()));
}

#[test]
fn the_longest_unused_is_forgotten_past_the_limit() {
    let (mut router, place) = kept(settings(), ["a", "b"]);
    for key in 1..=3 {
        router.keeps(&place, Key::new(key));
    }
    turn(&mut router, &named());
    (4..=6).for_each(|key| router.keeps(&place, Key::new(key)));
    let snapshot = router.snapshot(Time(0));
    assert_eq!((snapshot.stored, snapshot.stored_evicted), (4, 3));
    assert!(router.knows(&RESPONSE) && router.knows(&Key::new(6)) && !router.knows(&Key::new(3)));
}
