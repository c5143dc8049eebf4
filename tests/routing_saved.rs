//! What a router knows, over a restart of the process: saved by one, taken back by the next.

use std::time::Duration;

use homing::routing::{
    Admission, Ask, CacheOutcome, CapacitySource, Decision, EngineSpec, Key, Pin, Reading, Router, Saved, Settings,
    State, Time, Tokens, Turn, Verdict,
};
use proptest::prelude::*;

/// The clocks of two processes have nothing in common.
const BEFORE: Time = Time(7_000_000);
const AFTER: Time = Time(1 << 42);
const NO_TIME: Duration = Duration::ZERO;
const MINUTE: Duration = Duration::from_secs(60);

fn settings() -> Settings {
    Settings {
        affinity: true,
        spill_threshold: 64,
        idle_forget: Duration::from_secs(1800),
        conversations_max: 1000,
        admission: Admission::off(),
        recovery: homing::routing::Recovery::default(),
    }
}

fn engines(names: &[&str]) -> Vec<EngineSpec> {
    let ranks = |name: &str| if name.starts_with("ranks") { 3 } else { 1 };
    names.iter().map(|name| EngineSpec { name: name.to_string(), data_parallel_size: ranks(name) }).collect()
}

fn router(names: &[&str]) -> Router {
    Router::new(settings(), &engines(names))
}

/// As a file gives it back.
fn written(router: &Router, now: Time) -> Saved {
    let bytes = postcard::to_stdvec(&router.save(now)).expect("it can be written");
    postcard::from_bytes(&bytes).expect("and read again")
}

fn ask(conversation: u128) -> Ask {
    Ask { bytes: 1000, ..Ask::of(Some(Key::new(conversation << 64))) }
}

fn go(router: &mut Router, ask: &Ask, now: Time) -> Turn {
    match router.route(ask, now) {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("there is an engine, and nobody waits: {other:?}"),
    }
}

fn serve(router: &mut Router, conversation: u128, now: Time) -> Turn {
    let turn = go(router, &ask(conversation), now);
    router.finish(&turn, Some(TOKENS), now);
    turn
}

const TOKENS: Tokens = Tokens { prompt: 5000, cached: Some(0), completion: 100 };

fn home(router: &Router, turn: &Turn) -> String {
    router.replica_name(&turn.target)
}

#[test]
fn conversations_go_home_by_name_and_rank_whatever_the_list_is_now() {
    let mut before = router(&["a", "ranks", "b"]);
    let homes: Vec<String> = (0..200)
        .map(|conversation| {
            let turn = serve(&mut before, conversation, BEFORE);
            home(&before, &turn)
        })
        .collect();
    let saved = written(&before, BEFORE);
    assert_eq!(saved.conversations(), 200);
    let mut after = router(&["new", "b", "ranks"]);
    after.restore(&saved, NO_TIME, AFTER);
    for (conversation, home_before) in homes.iter().enumerate() {
        let turn = serve(&mut after, conversation as u128, AFTER);
        match home_before.as_str() {
            "a" => assert_eq!(turn.decision, Decision::Placed, "its home is gone"),
            there => assert_eq!((turn.decision, home(&after, &turn).as_str()), (Decision::Sticky, there)),
        }
    }
}

#[test]
fn an_engine_that_is_found_only_later_drains_as_before() {
    let mut before = router(&["a", "b"]);
    before.set_draining(0, true);
    let mut after = router(&["b"]);
    after.restore(&written(&before, BEFORE), NO_TIME, AFTER);
    after.configure(settings(), &engines(&["a", "b"]), AFTER + Duration::from_secs(5));
    let states = ["a", "b"].map(|name| after.state(after.engine(name).expect("it is configured")));
    assert_eq!(states, [State::Draining, State::Up]);
}

/// It was told to drain and then removed. Within ten minutes of that it is taken for the one that was there, over a restart too.
#[test]
fn one_that_was_away_for_long_comes_back_as_a_new_one() {
    for (before_restart, restart, drains) in
        [(1, 1, State::Draining), (11, 1, State::Up), (1, 11, State::Up), (11, 11, State::Up)]
    {
        for found_later in [false, true] {
            let mut before = router(&["a", "b"]);
            before.set_draining(0, true);
            before.configure(settings(), &engines(&["b"]), BEFORE);
            let saved = written(&before, BEFORE + before_restart * MINUTE);
            let mut after = router(if found_later { &["b"] } else { &["b", "a"] });
            after.restore(&saved, restart * MINUTE, AFTER);
            after.configure(settings(), &engines(&["b", "a"]), AFTER);
            let state = after.state(after.engine("a").expect("it is configured"));
            assert_eq!(state, drains, "{before_restart} min, then {restart} min, {found_later}");
        }
    }
}

/// The one of before was drained and had one rank; the one of now has three, and is in use.
#[test]
fn two_of_one_name_are_told_apart() {
    let with = |ranks| vec![EngineSpec { name: "a".into(), data_parallel_size: ranks }];
    let reading = |capacity| Reading { capacity_tokens: Some(capacity), ..Reading::default() };
    for (first, second) in [(1, 3), (3, 1)] {
        let mut before = Router::new(settings(), &with(first));
        before.set_draining(0, true);
        before.read(0, &vec![reading(1000); first as usize], BEFORE);
        before.configure(settings(), &with(second), BEFORE);
        let now = before.engine("a").expect("it is configured");
        before.set_draining(now, false);
        before.read(now, &vec![reading(2000); second as usize], BEFORE);
        let mut after = Router::new(settings(), &with(second));
        after.restore(&written(&before, BEFORE), NO_TIME, AFTER);
        assert_eq!(after.state(0), State::Up);
        let capacities: Vec<_> = after.snapshot(AFTER).replicas.iter().map(|replica| replica.capacity_tokens).collect();
        assert_eq!(capacities, vec![Some(2000); second as usize]);
    }
}

#[test]
fn what_is_too_old_is_left_out_by_the_time_that_passed_everywhere() {
    let mut before = router(&["a"]);
    serve(&mut before, 1, BEFORE);
    serve(&mut before, 2, BEFORE + 10 * MINUTE);
    let saved = written(&before, BEFORE + 16 * MINUTE);
    let restored = |away| {
        let mut after = router(&["a"]);
        after.restore(&saved, away, AFTER);
        let snapshot = after.snapshot(AFTER);
        (snapshot.conversations, snapshot.replicas[0].live)
    };
    assert_eq!(restored(NO_TIME), (2, 0), "both are there, neither was used in the last five minutes");
    assert_eq!(restored(20 * MINUTE), (1, 0), "the first would be 36 min old");
    assert_eq!(restored(60 * MINUTE), (0, 0));
    let mut after = router(&["a"]);
    after.restore(&written(&before, BEFORE + 11 * MINUTE), NO_TIME, AFTER);
    assert_eq!(after.snapshot(AFTER).replicas[0].live, 1);
    // Time goes on from where it was.
    assert_eq!(after.snapshot(AFTER + 25 * MINUTE).conversations, 1);
}

#[test]
fn the_limit_keeps_the_last_used() {
    let mut before = router(&["a", "b"]);
    (0..10).for_each(|conversation| {
        _ = serve(&mut before, conversation, BEFORE + Duration::from_secs(conversation as u64))
    });
    let saved = written(&before, BEFORE + MINUTE);
    let mut after = Router::new(Settings { conversations_max: 3, ..settings() }, &engines(&["a", "b"]));
    after.restore(&saved, NO_TIME, AFTER);
    assert_eq!(after.snapshot(AFTER).conversations, 3);
    let decisions: Vec<Decision> =
        (7..10).map(|conversation| serve(&mut after, conversation, AFTER).decision).collect();
    assert_eq!(decisions, [Decision::Sticky; 3]);
}

#[test]
fn stored_responses_are_found_where_they_are() {
    let mut before = router(&["a", "ranks"]);
    let asks: Vec<Ask> = (0..20).map(|id| Ask { stored: Some(Key::new(id << 100 | 1)), ..Ask::of(None) }).collect();
    let places: Vec<String> = asks
        .iter()
        .map(|ask| {
            let maker = go(&mut before, &Ask::of(None), BEFORE);
            before.keeps(&maker.target, ask.stored.expect("it names one"));
            home(&before, &maker)
        })
        .collect();
    let saved = written(&before, BEFORE);
    let mut after = router(&["ranks", "b"]);
    after.restore(&saved, NO_TIME, AFTER);
    for (ask, place) in asks.iter().zip(&places) {
        match (place.as_str(), after.route(ask, AFTER)) {
            ("a", gone) => assert!(matches!(gone, Some(Verdict::Gone)), "its engine is gone: {gone:?}"),
            (place, Some(Verdict::Go(turn))) => {
                assert_eq!((home(&after, &turn).as_str(), turn.decision), (place, Decision::ClientPinned));
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// An engine that started anew while nobody looked has lost what it held.
#[test]
fn a_restart_of_an_engine_in_between_is_noticed() {
    let reading = |start: f64| Reading { process_start_s: Some(start), prompt_tokens: Some(9), ..Reading::default() };
    let mut before = router(&["a"]);
    before.read(0, &[reading(100.0)], BEFORE);
    serve(&mut before, 1, BEFORE);
    let saved = written(&before, BEFORE);
    for (start, decision) in [(100.0, Decision::Sticky), (200.0, Decision::Placed)] {
        let mut after = router(&["a"]);
        after.restore(&saved, NO_TIME, AFTER);
        assert_eq!(after.read(0, &[reading(start)], AFTER), decision == Decision::Placed);
        assert_eq!(serve(&mut after, 1, AFTER).decision, decision);
    }
}

#[test]
fn the_capacity_sizes_and_places_hold_over_it() {
    let admitting = Settings { admission: Admission::default(), ..settings() };
    let mut before = Router::new(admitting.clone(), &engines(&["a"]));
    before.read(0, &[Reading { capacity_tokens: Some(20_000), ..Reading::default() }], BEFORE);
    serve(&mut before, 1, BEFORE);
    let running = go(&mut before, &ask(2), BEFORE);
    let mut after = Router::new(admitting, &engines(&["a"]));
    after.restore(&written(&before, BEFORE), NO_TIME, AFTER);
    let snapshot = after.snapshot(AFTER);
    let replica = &snapshot.replicas[0];
    assert_eq!((replica.capacity_tokens, replica.capacity_source), (Some(20_000), CapacitySource::Engine));
    assert_eq!(snapshot.in_flight, 0, "what runs in another process is not in flight in this one");
    // The first by what its engine said, the second, which was in flight, as far as can be guessed: both have places.
    assert!((5_100..20_000).contains(&replica.held_tokens), "{}", replica.held_tokens);
    // A turn that finds its cache is known to have had one.
    let turn = go(&mut after, &ask(1), AFTER);
    let kept = Tokens { prompt: 5200, cached: Some(5_090), completion: 10 };
    assert_eq!(after.finish(&turn, Some(kept), AFTER), Some(CacheOutcome::Kept));
    before.finish(&running, None, BEFORE);
}

#[test]
fn a_capacity_that_was_learned_is_still_known() {
    let mut before = router(&["a"]);
    for second in 0..40 {
        // Nothing but a full cache explains a turn that finds only its head.
        let now = BEFORE + Duration::from_secs(10 * second);
        let turn = go(&mut before, &ask(1), now);
        before.finish(&turn, Some(Tokens { prompt: 5000 + second, cached: Some(64), completion: 1 }), now);
    }
    let learned = before.snapshot(BEFORE).replicas[0].capacity_tokens;
    assert!(learned.is_some());
    let mut after = router(&["a"]);
    after.restore(&written(&before, BEFORE), NO_TIME, AFTER);
    assert_eq!(after.snapshot(AFTER).replicas[0].capacity_tokens, learned);
}

/// What the operator said stands, until the configuration says something else of it.
#[test]
fn engines_that_were_told_to_drain_go_on_draining() {
    let told = |configured: bool, told: bool, configured_now: bool| {
        let mut before = router(&["other", "a"]);
        before.configure_draining(1, configured);
        before.set_draining(1, told);
        let mut after = router(&["a"]);
        after.configure_draining(0, configured_now);
        after.restore(&written(&before, BEFORE), NO_TIME, AFTER);
        after.state(0)
    };
    assert_eq!(told(false, true, false), State::Draining);
    assert_eq!(told(true, false, true), State::Up);
    assert_eq!(told(true, false, false), State::Up);
    assert_eq!(told(true, true, false), State::Up, "only the file said so, and no longer does");
}

/// A pin that the client chose is no part of it, and does no harm.
#[test]
fn requests_without_a_conversation_leave_nothing() {
    let mut before = router(&["ranks"]);
    go(&mut before, &Ask::of(None), BEFORE);
    go(&mut before, &Ask { pin: Pin::Rank(1), ..Ask::of(None) }, BEFORE);
    assert_eq!(before.save(BEFORE).conversations(), 0);
}

proptest! {
    /// Whatever a file holds that can be read at all, the router goes on.
    #[test]
    fn no_file_breaks_a_router(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        away_ms in any::<u64>(),
    ) {
        let mut before = router(&["a", "ranks", "b"]);
        let reading = Reading { capacity_tokens: Some(100_000), prompt_tokens: Some(5), ..Reading::default() };
        before.read(0, &[reading], BEFORE);
        for conversation in 0..20 {
            let turn = serve(&mut before, conversation % 12, BEFORE + Duration::from_secs(conversation as u64));
            before.keeps(&turn.target, Key::new(conversation));
        }
        let mut bytes = postcard::to_stdvec(&before.save(BEFORE + MINUTE)).expect("it can be written");
        for (place, byte) in flips {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let Ok(saved) = postcard::from_bytes::<Saved>(&bytes) else { return Ok(()) };
        let settings = Settings { admission: Admission::default(), ..settings() };
        let mut after = Router::new(settings, &engines(&["b", "a", "ranks"]));
        after.restore(&saved, Duration::from_millis(away_ms), AFTER);
        for conversation in 0..20 {
            let now = AFTER + Duration::from_secs(conversation as u64);
            if let Some(Verdict::Go(turn)) = after.route(&ask(conversation), now) {
                after.finish(&turn, Some(TOKENS), now);
            }
            after.woken(now);
        }
        let snapshot = after.snapshot(AFTER + 10 * MINUTE);
        prop_assert!(snapshot.conversations <= 1000);
        prop_assert_eq!(snapshot.in_flight, 0);
    }
}
