use super::{ReplicaId, Router, State, Target, Turn};

/// Why a request went where it went, with the names of the replicas that it speaks of.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    pub why: Why,
    /// The replica that it went to first.
    pub there: String,
    /// The home that it left, where it left one.
    pub home: Option<String>,
    /// The replica that it went to in the end, because those before failed.
    pub failed_over_to: Option<String>,
}

impl Reason {
    /// One sentence, without the decision's name.
    pub fn sentence(&self) -> String {
        let sentence = self.why.sentence(&self.there, self.home.as_deref().unwrap_or_default());
        match &self.failed_over_to {
            Some(replica) => format!("{sentence}; {} failed, then {replica}", self.there),
            None => sentence,
        }
    }
}

impl Router {
    /// Why a turn goes where it goes, as long as it is in flight.
    pub fn reason(&self, turn: &Turn) -> Reason {
        self.reason_of(&turn.target, turn.why)
    }

    pub(super) fn reason_of(&self, target: &Target, why: Why) -> Reason {
        let home = match why {
            Why::Spilled { home, .. } => Some(self.replica_name(&self.target(home))),
            _ => None,
        };
        Reason { why, there: self.replica_name(target), home, failed_over_to: None }
    }
}

/// Why a request went where it went: the case of its decision, with the figures that it rested on.
///
/// "There" is the replica that it went to first; loads are those of [`ReplicaSnapshot::load`](super::ReplicaSnapshot).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// It was given a home.
    Placed {
        /// Why it needed one.
        newcomer: Newcomer,
        by: Placement,
    },
    /// Home was below the spill threshold.
    Home {
        in_flight: u32,
        threshold: u32,
        /// Whether its cache should be there.
        cached: bool,
    },
    /// Home was at the spill threshold, and no other replica had fewer in flight.
    NoneLessBusy { in_flight: u32, threshold: u32 },
    /// Home was at the spill threshold, and there were the fewest in flight.
    Spilled { home: ReplicaId, in_flight: u32, threshold: u32, there: u32 },
    /// The client named this data-parallel rank.
    Pinned { rank: u32 },
    /// It has the stored response that the request goes on from.
    StoredThere,
    /// Nothing told the conversation apart: the least load.
    NoConversation { load: f64 },
    /// Affinity is off: the least busy engine.
    AffinityOff,
    /// The client named a rank that no engine has, or no number: an engine is to say so.
    NoSuchRank,
}

/// Why a conversation needs a home.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Newcomer {
    /// It is not known.
    New,
    /// Its home started anew.
    HomeRestarted,
    /// Its home is no longer configured.
    HomeRemoved,
    /// Its home is in this state, and others are in a better one.
    HomeIs(State),
    /// Others needed the room that its cache had at home.
    CacheGone,
    /// It had its turns, and others waited.
    HadItsTurns,
}

/// By what a home was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// The least load.
    LeastLoad { load: f64 },
    /// The fewest tokens held, since it lost its home and others with it.
    LeastHeld { tokens: u64 },
    /// There was room, and of the replicas with room the shortest time was to be expected there.
    Room {
        /// Tokens of its own that it needs room for.
        tokens: u64,
        /// Seconds to be expected there for these and for what else is there.
        expected_s: f64,
    },
    /// No replica had room for the longest wait: the shortest time was to be expected there.
    NoRoom,
    /// It went on to the least load, because conversations no longer wait for room.
    WaitsNoMore,
}

impl Why {
    fn sentence(&self, there: &str, home: &str) -> String {
        match *self {
            Why::Placed { newcomer, by } => format!("{}, {}", newcomer.words(), by.words()),
            Why::Home { in_flight, threshold, cached } => {
                let cache = if cached { "its cache is there" } else { "its cache should be gone" };
                format!("home, {cache}; {in_flight} in flight, threshold {threshold}")
            }
            Why::NoneLessBusy { in_flight, threshold } => {
                format!("home had {in_flight} in flight, threshold {threshold}; no replica had fewer")
            }
            Why::Spilled { in_flight, threshold, there: fewest, .. } => {
                format!("home {home} had {in_flight} in flight, threshold {threshold}; {there} had {fewest}")
            }
            Why::Pinned { rank } => format!("the client named rank {rank}"),
            Why::StoredThere => "the stored response that it goes on from is there".into(),
            Why::NoConversation { load } => format!("nothing told its conversation, least load {load:.1}"),
            Why::AffinityOff => "affinity is off, least busy engine".into(),
            Why::NoSuchRank => "the client named a rank that there is not".into(),
        }
    }
}

impl Newcomer {
    /// Whether it lost its home, and many others with it.
    pub(super) fn is_displaced(self) -> bool {
        matches!(self, Newcomer::HomeRestarted | Newcomer::HomeRemoved | Newcomer::HomeIs(_))
    }

    fn words(self) -> String {
        match self {
            Newcomer::New => "a new conversation".into(),
            Newcomer::HomeRestarted => "home restarted".into(),
            Newcomer::HomeRemoved => "home is no longer configured".into(),
            Newcomer::HomeIs(state) => format!("home is {}", state.name()),
            Newcomer::CacheGone => "its cache is gone".into(),
            Newcomer::HadItsTurns => "it had its turns".into(),
        }
    }
}

impl Placement {
    fn words(self) -> String {
        match self {
            Placement::LeastLoad { load } => format!("least load {load:.1}"),
            Placement::LeastHeld { tokens } => format!("fewest tokens held, {}", thousands(tokens)),
            Placement::Room { tokens, expected_s } => {
                format!("room for {} tokens, least expected time {expected_s:.1} s", thousands(tokens))
            }
            Placement::NoRoom => "no replica had room in the longest wait, least expected time".into(),
            Placement::WaitsNoMore => "admission was turned off while it waited, least load".into(),
        }
    }
}

/// 850, 12k, 1,200k.
fn thousands(tokens: u64) -> String {
    match tokens {
        0..1000 => tokens.to_string(),
        _ => format!("{}k", (tokens + 500) / 1000),
    }
}
