//! The balancer from outside: the built binary between clients and engines that the tests play.

mod harness;

mod affinity_off;
mod failover;
mod harness_itself;
mod health;
mod placement;
mod ranks;
mod restart;
mod sessions;
mod spill;
mod uncounted;
