//! Whether new requests go to an engine: facts from several sources, and the one state that follows.

use std::time::Duration;

use homing::routing::{
    Admission, Ask, Decision, EngineSpec, Key, Recovery, Router, Settings, State, Suspicion, Time, Trouble, Turn,
    Verdict,
};

const SILENT: Suspicion = Suspicion::Silent { lasting: Duration::from_secs(30) };

fn router(count: usize, admission: Admission) -> Router {
    let engines: Vec<EngineSpec> =
        (0..count).map(|index| EngineSpec { name: format!("e{index}"), data_parallel_size: 1 }).collect();
    let settings = Settings {
        affinity: true,
        spill_threshold: 8,
        idle_forget: Duration::from_secs(1800),
        conversations_max: 1000,
        admission,
        recovery: Recovery::default(),
    };
    Router::new(settings, &engines)
}

fn of(key: u128) -> Ask {
    Ask { bytes: 1000, ..Ask::of(Some(Key::new(key << 64))) }
}

fn goes(router: &mut Router, key: u128) -> Turn {
    match router.route(&of(key), Time(0)) {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("it goes on: {other:?}"),
    }
}

/// One fact about an engine, and its opposite.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fact {
    Suspect,
    Out,
    Asleep,
    Draining,
}

impl Fact {
    const ALL: [Fact; 4] = [Fact::Suspect, Fact::Out, Fact::Asleep, Fact::Draining];

    fn is(self, holds: bool, router: &mut Router, engine: usize) -> bool {
        match self {
            Fact::Suspect => router.set_suspect(engine, holds.then_some(SILENT)),
            Fact::Out => router.set_up(engine, !holds),
            Fact::Asleep => router.set_asleep(engine, holds),
            Fact::Draining => router.set_draining(engine, holds),
        }
    }

    fn state(self) -> State {
        match self {
            Fact::Suspect => State::Suspect,
            Fact::Out => State::Out,
            Fact::Asleep => State::Asleep,
            Fact::Draining => State::Draining,
        }
    }
}

#[test]
fn the_worst_fact_is_the_state_and_none_undoes_another() {
    for facts in 0..16usize {
        let mut router = router(2, Admission::off());
        let holds = |fact: Fact| facts & (1 << fact as usize) != 0;
        for fact in Fact::ALL.into_iter().filter(|fact| holds(*fact)) {
            let before = router.state(0);
            assert_eq!(fact.is(true, &mut router, 0), router.state(0) != before);
        }
        let worst = Fact::ALL.into_iter().filter(|fact| holds(*fact)).map(Fact::state).max();
        assert_eq!(router.state(0), worst.unwrap_or(State::Up), "{facts:b}");
        assert_eq!(router.trouble(0).map(Trouble::state), worst);
        assert_eq!(router.state(1), State::Up);
        for fact in Fact::ALL.into_iter().filter(|fact| !holds(*fact)) {
            assert!(!fact.is(false, &mut router, 0), "what was not so is no news");
        }
        assert_eq!(router.state(0), worst.unwrap_or(State::Up));
    }
}

/// In this order: up, suspect, out, asleep, draining.
#[test]
fn with_none_of_the_better_left_the_least_bad_is_tried() {
    for admission in [Admission::off(), Admission::default()] {
        let mut router = router(5, admission);
        for (engine, fact) in Fact::ALL.into_iter().enumerate() {
            fact.is(true, &mut router, engine + 1);
        }
        let mut tried = Vec::new();
        let mut turn = goes(&mut router, 1);
        tried.push(router.attempt(turn.target.engine));
        while let Some(next) = router.retry(&of(1), &turn, &tried, homing::routing::Retry::Refused, Time(0)) {
            turn = next;
            tried.push(router.attempt(turn.target.engine));
        }
        assert!(tried.iter().map(|attempt| attempt.engine).eq(0..5), "{tried:?}");
        for (engine, fact) in Fact::ALL[..3].iter().enumerate() {
            Fact::Draining.is(true, &mut router, engine);
            assert_eq!(goes(&mut router, 100 + engine as u128).target.engine, engine + 1, "the next is {fact:?}");
        }
    }
}

#[test]
fn a_turn_whose_home_is_not_in_use_moves_and_says_why() {
    let words = ["suspect", "out", "asleep", "draining"];
    for (fact, word) in Fact::ALL.into_iter().zip(words) {
        for admission in [Admission::off(), Admission::default()] {
            let mut router = router(2, admission);
            let first = goes(&mut router, 1);
            router.finish(&first, None, Time(0));
            assert!(fact.is(true, &mut router, first.target.engine));
            let moved = goes(&mut router, 1);
            assert_eq!(moved.decision, Decision::Placed);
            assert_ne!(moved.target, first.target, "{fact:?}");
            let reason = router.reason(&moved).sentence();
            assert!(reason.starts_with(&format!("home is {word}, ")), "{reason}");
            fact.is(false, &mut router, first.target.engine);
            let stays = goes(&mut router, 1);
            assert_eq!((stays.decision, stays.target), (Decision::Sticky, moved.target), "{fact:?}");
        }
    }
}

#[test]
fn sleep_empties_the_cache() {
    let mut router = router(1, Admission::off());
    let first = goes(&mut router, 1);
    router.finish(&first, None, Time(0));
    router.set_asleep(0, true);
    router.set_asleep(0, false);
    let next = goes(&mut router, 1);
    assert_eq!(next.decision, Decision::Sticky);
    let reason = router.reason(&next).sentence();
    assert!(reason.starts_with("home, its cache should be gone"), "{reason}");
}

#[test]
fn what_an_engine_keeps_is_asked_for_there_whatever_its_state() {
    for fact in Fact::ALL {
        let mut router = router(2, Admission::off());
        let first = goes(&mut router, 1);
        router.keeps(&first.target, Key::new(7));
        fact.is(true, &mut router, first.target.engine);
        let ask = Ask { stored: Some(Key::new(7)), ..of(2) };
        match router.route(&ask, Time(0)) {
            Some(Verdict::Go(turn)) => assert_eq!(turn.target, first.target, "{fact:?}"),
            other => panic!("{fact:?}: {other:?}"),
        }
    }
}
