//! The pure core: which replica a turn goes to.
//!
//! Nothing in here knows a socket, a clock, Pingora or async. Time is an argument, so that the experiment in
//! `bench/` drives the very same code in virtual time. The entry is [`Router`], one for each model.

mod conversations;
mod decision;
mod key;
mod load;
mod members;
mod replica;
mod router;
mod snapshot;
mod time;

pub use conversations::{Conversations, LIVE};
pub use decision::{Decision, DecisionCounts};
pub use key::Key;
pub use load::{KV_WEIGHT, READING_MAX_AGE};
pub use replica::{EngineSpec, Reading, ReplicaId, State, Target};
pub use router::{Ask, MAX_NUM_SEQS_ASSUMED, Pin, Retry, Route, Router, Settings, auto_spill_threshold};
pub use snapshot::{ReplicaSnapshot, Snapshot};
pub use time::Time;
