//! The balancer from outside: the built binary between clients and engines that the tests play.

mod harness;

mod access_log;
mod admin;
mod admission;
mod affinity_off;
mod bodies;
mod cache_outcomes;
mod callers;
mod cors;
mod discovery;
mod errors;
mod failover;
mod flood;
mod harness_itself;
mod header_limits;
mod headers;
mod health;
mod local;
mod metrics;
mod parking;
mod parking_bounds;
mod placement;
mod ranks;
mod reload;
mod restart;
mod secrets;
mod sessions;
mod shutdown;
mod smuggling;
mod spill;
mod streams;
mod uncounted;
