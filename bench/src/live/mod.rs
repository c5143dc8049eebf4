//! The load over real HTTP: sessions against a balancer or an engine, in real time or faster.
//!
//! The same [`Sessions`](crate::load::Sessions) as in virtual time say which turn is due. A [`Driver`] sends each, reads
//! its stream, and records what happened in the same [`Trace`](crate::experiment::Trace).

mod answer;
mod cells;
mod command;
mod driver;
mod progress;
mod request;
mod text;

pub use cells::LiveCells;
pub use command::SessionsArgs;
pub use driver::{Driver, Pace};
pub use request::{Dialect, Target};
