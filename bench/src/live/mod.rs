//! The load over real HTTP: sessions against a balancer or an engine, in real time or faster.
//!
//! The same [`Sessions`](crate::load::Sessions) as in virtual time say which turn is due. A [`Driver`] sends each, reads
//! its stream, and records what happened in the same [`Trace`](crate::experiment::Trace). A turn goes to a balancer, or
//! straight to the engine that an [`Arm`](crate::experiment::Arm) chooses here: [`Via`] says which.

mod answer;
mod cells;
mod command;
mod conversation;
mod driver;
mod errand;
mod pace;
mod progress;
mod readings;
mod request;
pub(crate) mod text;
mod via;

pub use cells::LiveCells;
pub use command::SessionsArgs;
pub use driver::Driver;
pub use pace::{Pace, Way};
pub use request::{Dialect, Target};
pub use via::Via;
