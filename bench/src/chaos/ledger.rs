//! What became of every turn.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::faults::FaultLog;
use super::turn::{Api, Reply, shortened};
use crate::balancer::Log;

/// Wrong turns that are told; the rest are counted.
const TOLD_MAX: usize = 20;

/// Characters of an answer by which it is known again: chance makes two alike once in 10^17.
const KNOWN_BY: usize = 16;

/// Which turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnName {
    pub session: u64,
    pub conversation: u64,
    pub turn: u64,
}

impl fmt::Display for TurnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn {}.{}.{}", self.session, self.conversation, self.turn)
    }
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// Its client did not wait.
    Left,
    /// Its replica died after bytes of the answer had reached the client.
    Lost,
    Wrong(String),
}

/// How many turns ended how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub answered: u64,
    pub left: u64,
    pub lost: u64,
    pub wrong: u64,
}

/// Takes down how turns end.
pub struct Ledger {
    faults: Arc<FaultLog>,
    log: Log,
    counts: Mutex<Counts>,
    wrong: Mutex<Vec<String>>,
    /// Whose an answer is, by how it begins.
    answers: Mutex<HashMap<String, TurnName>>,
}

impl Ledger {
    pub fn new(faults: Arc<FaultLog>, log: Log) -> Ledger {
        Ledger { faults, log, counts: Mutex::default(), wrong: Mutex::default(), answers: Mutex::default() }
    }

    /// A turn is about to be sent, whose answer is this.
    pub fn expect(&self, name: TurnName, answer: &str) {
        if answer.len() >= KNOWN_BY {
            self.answers.lock().insert(answer[..KNOWN_BY].to_owned(), name);
        }
    }

    /// What an answer is that is not the right one.
    pub fn whose(&self, name: TurnName, expected: &str, words: &str) -> String {
        let other = words.get(..KNOWN_BY).and_then(|start| self.answers.lock().get(start).copied());
        match other.filter(|other| *other != name) {
            Some(other) => format!("the answer of {other}"),
            None => format!("{:?} in place of {:?}", shortened(words), shortened(expected)),
        }
    }

    /// Whether a broken answer is one that nobody could have saved.
    pub fn is_lost(&self, reply: &Reply, began: Instant) -> bool {
        reply.status == 200 && reply.has_begun() && self.faults.died_since(&reply.replica, began)
    }

    /// Takes down the end of a turn.
    pub fn note(&self, name: TurnName, api: Api, began: Instant, reply: &Reply, outcome: Outcome) {
        let mut counts = self.counts.lock();
        match outcome {
            Outcome::Answered => counts.answered += 1,
            Outcome::Left => counts.left += 1,
            Outcome::Lost => counts.lost += 1,
            Outcome::Wrong(why) => {
                counts.wrong += 1;
                let mut wrong = self.wrong.lock();
                if wrong.len() < TOLD_MAX {
                    wrong.push(self.told(name, api, began, reply, &why));
                }
            }
        }
    }

    pub fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    pub fn wrong(&self) -> Vec<String> {
        self.wrong.lock().clone()
    }

    fn told(&self, name: TurnName, api: Api, began: Instant, reply: &Reply, why: &str) -> String {
        let replica = if reply.replica.is_empty() { "no replica" } else { &reply.replica };
        let log: String = match reply.request_id.as_str() {
            "" => String::new(),
            id => self.log.lines(id).iter().map(|line| format!("\n    log: {line}")).collect(),
        };
        format!(
            "{name} ({api:?}, {replica}, ended at {:.2} s after {:.2} s): {why}\n    faults meanwhile: {}{log}",
            self.faults.second(),
            began.elapsed().as_secs_f64(),
            self.faults.shown_since(began),
        )
    }
}
