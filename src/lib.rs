//! Homing: an edge load balancer that sends every turn of a conversation to the vLLM replica that holds its prefix cache.
//!
//! A request flows one way: `proxy` reads it, [`request`] says what it asks, [`routing`] decides, [`fleet`] counts it in,
//! `proxy` sends it, and what the answer says of its tokens is counted as it passes. [`callers`] says who may ask at all.
//! [`config`] and `admin` look in from the sides, and [`terminal`] asks `admin`. `ARCHITECTURE.md` has the map and the invariants.

pub mod admin;
pub mod callers;
pub mod config;
mod decisions;
mod figures;
pub mod fleet;
mod gone;
pub mod history;
mod live;
mod metrics;
mod panics;
mod proxy;
mod reload;
pub mod request;
pub mod routing;
mod serve;
mod shutdown;
mod sockets;
pub mod state;
pub mod terminal;
mod traces;
mod upgrade;

pub use serve::serve;
