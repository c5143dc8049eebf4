//! The pure core: which replica a turn goes to.
//!
//! Nothing in here knows a socket, a clock, Pingora or async. Time is an argument, so that the experiment in
//! `bench/` drives the very same code in virtual time. The entry is [`Router`], one for each model.

mod admission;
mod attempt;
mod away;
mod cache;
mod circuit;
mod conversations;
mod decision;
mod health;
mod key;
mod load;
mod members;
mod plan;
mod recent;
mod replica;
mod returning;
mod router;
mod rule;
mod saved;
mod settings;
mod snapshot;
mod stored;
mod suspicion;
mod time;
mod turn;
mod why;
mod work;

pub use admission::{AdmissionCounts, Ticket, Woken};
pub use attempt::Attempt;
pub use cache::{Advice, CacheCounts, CacheOutcome, CapacitySource};
pub use conversations::{Conversations, LIVE};
pub use decision::{Decision, DecisionCounts};
pub use health::{State, Trouble};
pub use key::{ConversationHash, Key};
pub use load::{KV_WEIGHT, READING_MAX_AGE};
pub use plan::Foreseen;
pub use replica::{EngineSpec, Reading, ReplicaId, Target};
pub use router::Router;
pub use saved::Saved;
pub use settings::{Admission, AdmissionMode, MAX_NUM_SEQS_ASSUMED, Overdue, Recovery, Settings, auto_spill_threshold};
pub use snapshot::{ReplicaSnapshot, Snapshot};
pub use suspicion::Suspicion;
pub use time::Time;
pub use turn::{Ask, Pin, Refusal, RefusedWhy, Retry, Tokens, Turn, Verdict};
pub use why::{Newcomer, Placement, Reason, Why};
