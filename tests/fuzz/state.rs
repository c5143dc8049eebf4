//! The state file: whatever it holds, it is read or refused, and what is read can be taken back and written again.

use std::path::Path;

use homing::config::Config;
use homing::fleet::{Fleet, now};
use homing::routing::{Ask, Key, Verdict};
use homing::state::State;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::harness::Fuzzer;

/// Mark, version, length and checksum of a file.
const HEAD: usize = 52;

const CONFIG: &str = "models:\n\
    - {name: m, conversations_max: 100, replicas: [{url: 'http://a:1'}, {url: 'http://b:1', data_parallel_size: 3}]}\n\
    - {name: n, admission: off, replicas: [{url: 'http://a:1'}]}\n";

#[test]
fn a_file_is_read_or_refused_and_what_is_read_does_no_harm() {
    Fuzzer { name: "state", seeds: seeds(), words: WORDS }.run(|input| {
        // As it is, most of it is refused for its checksum; under a true one, what it says counts.
        let _ = State::from_bytes(&input.bytes);
        let Ok(state) = State::from_bytes(&sealed(&input.bytes)) else { return Ok(()) };
        let again = state.clone().into_bytes(u64::MAX).map_err(TestCaseError::fail)?;
        let read = State::from_bytes(&again).map_err(TestCaseError::fail)?;
        // Not compared as they are, for a number may be none.
        prop_assert!(read.into_bytes(u64::MAX).as_ref() == Ok(&again), "it reads otherwise once written again");
        let fleet = fleet();
        state.restore(&fleet);
        for model in fleet.models() {
            for conversation in 0..4 {
                let mut router = model.router.lock();
                if let Some(Verdict::Go(turn)) = router.route(&Ask::of(Some(key(conversation))), now()) {
                    router.finish(&turn, None, now());
                }
            }
            let snapshot = model.router.lock().snapshot(now());
            let most = snapshot.settings.conversations_max as u64;
            prop_assert!(snapshot.conversations <= most && snapshot.in_flight == 0);
        }
        let kept = State::of(&fleet, [0; 16]).into_bytes(u64::MAX).map_err(TestCaseError::fail)?;
        prop_assert!(State::from_bytes(&kept).is_ok());
        Ok(())
    });
}

/// Numbers of postcard's form: in groups of seven bits, the highest of a byte says that more follow.
const WORDS: &[&str] =
    &["\0", "\u{1}", "\u{2}", "\u{7f}", "homing\0s", "m", "n", "a:1", "b:1", "b:1#2", "homing\0s\u{2}\0\0\0"];

fn fleet() -> Fleet {
    Fleet::new(&Config::parse(Path::new("test.yaml"), CONFIG).expect("it checks"))
}

fn key(conversation: u128) -> Key {
    Key::new(conversation.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// The same content with the head that belongs to it.
fn sealed(file: &[u8]) -> Vec<u8> {
    let content = file.get(HEAD..).unwrap_or_default();
    let length = (content.len() as u64).to_le_bytes();
    [&b"homing\0s\x02\0\0\0"[..], &length, &Sha256::digest(content), content].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let state = |conversations: u128| {
        let fleet = fleet();
        for model in fleet.models() {
            let mut router = model.router.lock();
            for conversation in 0..conversations {
                if let Some(Verdict::Go(turn)) = router.route(&Ask::of(Some(key(conversation))), now()) {
                    router.finish(&turn, None, now());
                    router.keeps(&turn.target, key(conversation + 1000));
                }
            }
        }
        State::of(&fleet, [9; 16]).into_bytes(u64::MAX).expect("there is room")
    };
    [0, 1, 5, 40].map(state).to_vec()
}
