use super::cache::Expectation;
use super::circuit::TrialId;
use super::{Decision, Key, Target, Ticket, Time, Why};

/// What a request asks of the router.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Its conversation, where one could be told.
    pub key: Option<Key>,
    /// The data-parallel rank that the client named.
    pub pin: Pin,
    /// What it names that an engine keeps: it goes where that is, before any other rule.
    pub stored: Option<Key>,
    /// Who asks, for fairness between those who wait: equal for the same caller.
    pub caller: u64,
    /// How many of those of this caller who wait go on at its turn, at least 1.
    pub weight: u32,
    /// Bytes of its body, by which an unknown conversation's size is guessed.
    pub bytes: u64,
}

impl Ask {
    /// A turn of a conversation, if one could be told, of a caller and a size that do not matter.
    pub fn of(key: Option<Key>) -> Ask {
        Ask { key, pin: Pin::None, stored: None, caller: 0, weight: 1, bytes: 0 }
    }
}

/// A data-parallel rank named by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// None named.
    None,
    /// This one.
    Rank(u32),
    /// Something that is no number: the engine will say so.
    Invalid,
}

/// What the failure of a try says about the replica tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It could not be reached: a conversation at home there moves to where the next try goes.
    Unreachable,
    /// It answered that it will not serve now: the home stays.
    Refused,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It goes to a replica now.
    Go(Turn),
    /// It waits for room; [`Router::woken`](super::Router::woken) says when its wait is over.
    Parked(Ticket),
    /// What it names was kept by an engine that is gone, or has restarted since.
    Gone,
    /// There is no room, and it has waited for as long as it may, or too many wait.
    Refused(Refusal),
}

/// Why a request was refused, and when it may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub why: RefusedWhy,
    /// Whole seconds, at least 1.
    pub retry_after_s: u64,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedWhy {
    /// It waited for as long as it may. Its place in the line is kept for a while.
    Overdue,
    /// Too many wait.
    Full,
}

/// A request on its way: where it went and why, and what the router needs to count it out again.
#[derive(Clone, Debug)]
pub struct Turn {
    pub target: Target,
    pub decision: Decision,
    /// What the decision rested on.
    pub why: Why,
    /// Its conversation, or a key of its own.
    pub(super) key: Key,
    pub(super) of_conversation: bool,
    pub(super) bytes: u64,
    pub(super) sent: Time,
    pub(super) first_byte: Option<Time>,
    /// None where the engine chooses the replica.
    pub(super) expectation: Option<Expectation>,
    /// Its engine was left alone, and it tries whether that serves again.
    pub(super) trial: Option<TrialId>,
}

/// What an engine says of the tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Of the prompt, cached ones included.
    pub prompt: u64,
    /// Found in the cache; none where the engine does not say.
    pub cached: Option<u64>,
    /// Generated.
    pub completion: u64,
}

/// No prompt or answer has so many tokens: what says so is wrong.
pub(super) const TOKENS_MAX: u64 = 1 << 32;

impl Tokens {
    /// These, as far as they can be true; none if they cannot.
    pub(super) fn plausible(self) -> Option<Tokens> {
        let Tokens { prompt, cached, completion } = self;
        let cached = cached.map(|cached| cached.min(prompt));
        (prompt.max(completion) <= TOKENS_MAX).then_some(Tokens { prompt, cached, completion })
    }
}
