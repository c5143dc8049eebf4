//! An engine at which requests fail is left alone for a while, and tried with single requests.

use std::time::Duration;

use homing::routing::{
    Admission, Ask, Decision, EngineSpec, Key, Recovery, Retry, Router, Settings, State, Time, Turn, Verdict,
};

fn router(engines: usize) -> Router {
    let specs: Vec<EngineSpec> =
        (0..engines).map(|index| EngineSpec { name: format!("e{index}"), data_parallel_size: 1 }).collect();
    let settings = Settings {
        affinity: true,
        spill_threshold: 64,
        idle_forget: Duration::from_secs(7200),
        conversations_max: 1000,
        admission: Admission::off(),
        recovery: Recovery::default(),
    };
    Router::new(settings, &specs)
}

fn ask(key: u128) -> Ask {
    Ask::of(Some(Key::new(key << 64)))
}

fn goes(router: &mut Router, key: u128, now: Time) -> Turn {
    match router.route(&ask(key), now) {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("nothing waits: {other:?}"),
    }
}

fn fails(router: &mut Router, engine: usize, times: usize, now: Time) {
    (0..times).for_each(|_| _ = router.failed(&router.attempt(engine), now));
}

/// Two engines of which the first is left alone from the start; the second has so much in flight that new conversations
/// would go to the first.
fn left_alone() -> Router {
    let mut router = router(2);
    fails(&mut router, 0, 5, Time(0));
    (500..530).for_each(|key| assert_eq!(goes(&mut router, key, Time(0)).target.engine, 1));
    router
}

const fn s(seconds: u64) -> Time {
    Time(seconds * 1000)
}

#[test]
fn five_failures_in_a_row_open_it_and_no_others_do() {
    // f: a failure, a: an answer.
    for (events, opens) in
        [("ffff", false), ("fffff", true), ("ffffafffff", true), ("ffffaffff", false), ("fffffa", false)]
    {
        let mut router = router(2);
        for event in events.chars() {
            match event {
                'f' => router.failed(&router.attempt(0), Time(0)),
                _ => router.answered(&router.attempt(0)),
            };
        }
        assert_eq!(router.state(0) == State::Suspect, opens, "{events}");
        assert_eq!(
            router.snapshot(Time(0)).replicas[0].circuit_opened,
            u64::from(events.contains("fffff")),
            "{events}"
        );
    }
}

#[test]
fn after_the_pause_one_request_goes_there_and_no_other_until_its_end() {
    let mut router = left_alone();
    assert_eq!(goes(&mut router, 2, Time(9_999)).target.engine, 1);
    let trial = goes(&mut router, 3, s(10));
    assert_eq!(trial.target.engine, 0);
    for key in 4..8 {
        assert_eq!(goes(&mut router, key, s(60)).target.engine, 1, "one at a time");
    }
    // Its client left: neither word of it came.
    router.finish(&trial, None, s(61));
    let trial = goes(&mut router, 9, s(62));
    assert_eq!(trial.target.engine, 0, "the next is the trial");
    assert!(router.answered(&router.attempt(0)), "it is up again");
    assert_eq!((router.state(0), goes(&mut router, 10, s(63)).target.engine), (State::Up, 0));
    router.finish(&trial, None, s(64));
}

#[test]
fn each_trial_that_fails_doubles_the_pause_up_to_five_minutes() {
    let mut router = left_alone();
    let mut now = Time(0);
    for pause in [10, 20, 40, 80, 160, 300, 300] {
        let early = Time(now.0 + pause * 1000 - 1);
        let elsewhere = goes(&mut router, 2, early);
        assert_eq!(elsewhere.target.engine, 1, "{pause} s are not over");
        router.finish(&elsewhere, None, early);
        now = Time(now.0 + pause * 1000);
        let trial = goes(&mut router, 1000 + u128::from(now.0), now);
        assert_eq!(trial.target.engine, 0, "{pause} s are over");
        router.failed(&router.attempt(0), now);
        let next = router.retry(&ask(1), &trial, &[router.attempt(0)], Retry::Refused, now).expect("the other is left");
        router.finish(&next, None, now);
    }
    assert_eq!(router.snapshot(now).replicas[0].circuit_opened, 8);
}

/// Its engine may have begun to answer before it began to fail.
#[test]
fn an_answer_to_a_request_sent_before_it_opened_closes_nothing() {
    let mut router = router(2);
    let sent_before = router.attempt(0);
    fails(&mut router, 0, 5, Time(0));
    for moment in [Time(0), s(9), s(10)] {
        assert!(!router.answered(&sent_before), "no news");
        goes(&mut router, 1, moment);
        assert_eq!(router.state(0), State::Suspect);
    }
    assert!(router.answered(&router.attempt(0)), "of one that was sent since");
    assert_eq!(router.state(0), State::Up);
}

#[test]
fn a_failure_of_a_request_sent_before_it_opened_doubles_no_pause() {
    let mut router = router(2);
    let sent_before = router.attempt(0);
    fails(&mut router, 0, 5, Time(0));
    (500..530).for_each(|key| assert_eq!(goes(&mut router, key, Time(0)).target.engine, 1));
    goes(&mut router, 1, s(9));
    router.failed(&sent_before, s(9));
    router.woken(s(10));
    router.failed(&sent_before, s(10));
    let trial = goes(&mut router, 2, s(10));
    assert_eq!(trial.target.engine, 0, "the pause is as long as it was");
    router.failed(&sent_before, s(11));
    router.finish(&trial, None, s(11));
    assert_eq!(goes(&mut router, 3, s(11)).target.engine, 0, "the trial ended without a word, and the next is one");
    // Nor does it count among those in a row, once it is up again.
    router.answered(&router.attempt(0));
    (0..5).for_each(|_| _ = router.failed(&sent_before, s(12)));
    assert_eq!((router.state(0), router.snapshot(s(12)).replicas[0].circuit_opened), (State::Up, 1));
}

/// What was sent to the process before says nothing of the one that has started since.
#[test]
fn a_late_failure_from_before_a_restart_counts_for_nothing() {
    let mut router = router(2);
    let with = |process_start_s| homing::routing::Reading { process_start_s, ..Default::default() };
    router.read(0, &[with(Some(1.0))], Time(0));
    let sent_before = router.attempt(0);
    assert!(router.read(0, &[with(Some(2.0))], s(1)));
    (0..5).for_each(|_| assert!(!router.failed(&sent_before, s(1))));
    assert_eq!((router.state(0), router.snapshot(s(1)).replicas[0].circuit_opened), (State::Up, 0));
}

#[test]
fn a_conversation_moves_and_says_why() {
    let mut router = router(2);
    let first = goes(&mut router, 1, Time(0));
    router.finish(&first, None, Time(0));
    fails(&mut router, 0, 5, Time(0));
    let moved = goes(&mut router, 1, s(1));
    assert_eq!((moved.decision, moved.target.engine), (Decision::Placed, 1));
    assert!(router.reason(&moved).sentence().starts_with("home is suspect, "));
}

#[test]
fn with_all_of_them_open_the_least_bad_are_used() {
    let mut router = router(3);
    router.set_up(2, false);
    (0..3).for_each(|engine| fails(&mut router, engine, 5, Time(0)));
    let went: Vec<usize> = (0..4).map(|key| goes(&mut router, key, Time(0)).target.engine).collect();
    assert_eq!(went, [0, 1, 0, 1], "those that answer their checks, by their load");
}

#[test]
fn one_that_answers_its_checks_again_or_has_restarted_is_tried_at_once() {
    let back = |router: &mut Router| {
        router.set_up(0, false);
        router.set_up(0, true);
    };
    let restarted = |router: &mut Router| {
        let with = |process_start_s| homing::routing::Reading { process_start_s, ..Default::default() };
        router.read(0, &[with(Some(1.0))], s(1));
        assert!(router.read(0, &[with(Some(2.0))], s(1)));
    };
    for comes_back in [back as fn(&mut Router), restarted] {
        let mut router = left_alone();
        comes_back(&mut router);
        assert_eq!(goes(&mut router, 2, s(1)).target.engine, 0);
        assert_eq!(goes(&mut router, 3, s(1)).target.engine, 1, "with one request");
    }
}
