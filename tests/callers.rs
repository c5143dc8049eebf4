//! What a caller may still do, as time goes by. The same from outside is in `blackbox/callers.rs`.

use std::time::Duration;

use homing::callers::limits::{Exceeded, Limits};
use homing::config::{Caller, KeyHash};
use homing::routing::{Key, Time};
use proptest::prelude::*;
use wildmatch::WildMatch;

fn caller() -> Caller {
    Caller {
        name: "ann".into(),
        keys: vec![KeyHash::of(b"key")],
        models: vec![WildMatch::new("*")],
        requests_per_minute: None,
        in_flight: None,
        conversations: None,
        weight: 1,
    }
}

const START: Time = Time(1_000_000);

fn after(seconds: f64) -> Time {
    START + Duration::from_secs_f64(seconds)
}

#[test]
fn a_minute_s_requests_may_come_at_once_and_are_due_again_one_by_one() {
    let (limits, caller) = (Limits::default(), Caller { requests_per_minute: Some(6), ..caller() });
    let enter = |seconds: f64| limits.enter(&caller, after(seconds)).map_err(Exceeded::retry_after_s);
    for _ in 0..6 {
        assert_eq!(enter(0.0), Ok(()));
    }
    assert_eq!(enter(0.0), Err(10));
    assert_eq!(enter(9.9), Err(1));
    assert_eq!(enter(10.0), Ok(()));
    assert_eq!(enter(10.0), Err(10));
    assert_eq!((0..9).filter(|_| enter(1000.0).is_ok()).count(), 6, "no more than a minute's are ever due");
}

#[test]
fn a_limit_that_changes_holds_at_once() {
    let (limits, wide) = (Limits::default(), Caller { requests_per_minute: Some(100), ..caller() });
    assert_eq!(limits.enter(&wide, START), Ok(()));
    let narrow = Caller { requests_per_minute: Some(2), ..caller() };
    let taken = (0..10).filter(|_| limits.enter(&narrow, START).is_ok()).count();
    assert_eq!(taken, 2);
    assert_eq!(limits.enter(&caller(), START), Ok(()), "no limit is none");
}

#[test]
fn a_conversation_is_held_for_five_minutes_after_its_last_turn() {
    let (limits, caller) = (Limits::default(), Caller { conversations: Some(2), ..caller() });
    let [one, two, three] = [1, 2, 3].map(Key::new);
    let turn = |key: Key, from: f64, to: f64| {
        limits.enter(&caller, after(from)).expect("requests have no limit");
        let conversed = limits.converse(&caller, key, after(from));
        limits.leave(conversed.is_ok().then_some(key), after(to));
        conversed.map_err(Exceeded::retry_after_s)
    };
    assert_eq!(turn(one, 0.0, 100.0), Ok(()));
    assert_eq!(turn(two, 100.0, 200.0), Ok(()));
    assert_eq!(turn(three, 200.0, 200.0), Err(200), "the first is held until 400 s");
    assert_eq!(turn(three, 399.5, 399.5), Err(1));
    assert_eq!(turn(three, 400.0, 450.0), Ok(()));
    assert_eq!(turn(one, 450.0, 450.0), Err(50), "its place is taken");
    // One in flight is held for as long as it takes.
    limits.enter(&caller, after(499.0)).expect("requests have no limit");
    assert_eq!(limits.converse(&caller, two, after(499.0)), Ok(()));
    assert_eq!(turn(one, 5000.0, 5000.0), Ok(()), "the third was not used any more");
    assert_eq!(turn(three, 5000.0, 5000.0), Err(300));
    limits.leave(Some(two), after(5000.0));
}

proptest! {
    /// Whatever comes and goes, no more is in flight than may be, and nothing is left at the end.
    #[test]
    fn what_enters_leaves(steps in prop::collection::vec((any::<bool>(), 0..5u128), 0..200)) {
        let (limits, caller) = (Limits::default(), Caller { in_flight: Some(3), conversations: Some(2), ..caller() });
        let mut inside = Vec::new();
        for (n, (enters, key)) in steps.into_iter().enumerate() {
            let now = after(n as f64);
            if enters {
                let entered = limits.enter(&caller, now);
                prop_assert_eq!(entered.is_ok(), inside.len() < 3);
                if entered.is_ok() {
                    let key = Key::new(key);
                    inside.push(limits.converse(&caller, key, now).is_ok().then_some(key));
                }
            } else if let Some(conversation) = inside.pop() {
                limits.leave(conversation, now);
            }
            prop_assert_eq!(limits.in_flight() as usize, inside.len());
        }
        inside.drain(..).for_each(|conversation| limits.leave(conversation, after(1000.0)));
        prop_assert_eq!(limits.in_flight(), 0);
    }
}
