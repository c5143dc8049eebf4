//! What is kept over a restart, within the room that there is.

use std::path::Path;

use homing::config::Config;
use homing::fleet::{Fleet, now};
use homing::routing::{Ask, Decision, Key, Verdict};
use homing::state::State;
use proptest::prelude::*;

const CONFIG: &str = "models:\n\
    - {name: large, admission: off, replicas: [{url: 'http://127.0.0.1:1'}, {url: 'http://127.0.0.1:2'}]}\n\
    - {name: small, admission: off, replicas: [{url: 'http://127.0.0.1:3'}]}\n";

fn fleet() -> Fleet {
    Fleet::new(&Config::parse(Path::new("test.yaml"), CONFIG).expect("it checks"))
}

/// A turn of a conversation of the model at this place: why it went where it did.
fn turn(fleet: &Fleet, model: usize, conversation: usize) -> Decision {
    // Keys are spread over all their bits.
    let key = Key::new((conversation as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    let mut router = fleet.models()[model].router.lock();
    match router.route(&Ask::of(Some(key)), now()) {
        Some(Verdict::Go(turn)) => {
            router.finish(&turn, None, now());
            turn.decision
        }
        other => panic!("there is an engine, and nobody waits: {other:?}"),
    }
}

/// How many of the conversations of a model are at home; these are the last ones used.
fn at_home(fleet: &Fleet, model: usize, conversations: usize) -> usize {
    let home: Vec<bool> = (0..conversations).map(|n| turn(fleet, model, n) == Decision::Sticky).collect();
    let first = home.iter().position(|home| *home).unwrap_or(conversations);
    assert!(home[first..].iter().all(|home| *home), "some that were used later are gone");
    conversations - first
}

fn known(conversations: [usize; 2]) -> State {
    let fleet = fleet();
    for (model, count) in conversations.into_iter().enumerate() {
        (0..count).for_each(|n| assert_eq!(turn(&fleet, model, n), Decision::Placed));
    }
    State::of(&fleet, [7; 16])
}

#[test]
fn without_room_for_all_the_last_used_of_each_model_are_kept() {
    let state = known([3000, 1000]);
    let whole = state.clone().into_bytes(u64::MAX).expect("there is room").len();
    for parts in [1, 2, 5, 20] {
        let room = whole / parts;
        let bytes = state.clone().into_bytes(room as u64).expect("there is room for some");
        assert!((room * 4 / 5..=room).contains(&bytes.len()), "{} of {room} bytes", bytes.len());
        let after = fleet();
        State::from_bytes(&bytes).expect("it can be read").restore(&after);
        let (large, small) = (at_home(&after, 0, 3000), at_home(&after, 1, 1000));
        match parts {
            1 => assert_eq!((large, small), (3000, 1000)),
            _ => assert!(small > 700 / parts && large.abs_diff(3 * small) <= 3, "{large} and {small} of 1/{parts}"),
        }
    }
}

#[test]
fn without_room_for_anything_it_is_an_error() {
    let why = known([10, 10]).into_bytes(100).expect_err("there is no room for the models");
    assert!(why.contains("larger than 100 bytes"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn it_never_takes_more_than_its_room(large in 0..300usize, small in 0..30usize, room in 0..20_000u64) {
        let state = known([large, small]);
        match state.clone().into_bytes(room) {
            Ok(bytes) => {
                prop_assert!(bytes.len() as u64 <= room);
                prop_assert!(State::from_bytes(&bytes).is_ok());
            }
            Err(_) => prop_assert!(known([0, 0]).into_bytes(u64::MAX).expect("there is room").len() as u64 + 40 > room),
        }
    }
}
