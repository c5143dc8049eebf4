//! The balancer from outside: the built binary between clients and engines that the tests play.

mod harness;

mod affinity_off;
mod bodies;
mod errors;
mod failover;
mod harness_itself;
mod headers;
mod health;
mod local;
mod placement;
mod ranks;
mod restart;
mod sessions;
mod spill;
mod streams;
mod uncounted;
