//! The balancer from outside: the built binary between clients and engines that the tests play.

mod harness;

mod access_log;
mod admin;
mod admission;
mod affinity_off;
mod bodies;
mod cache_outcomes;
mod discovery;
mod errors;
mod failover;
mod flood;
mod harness_itself;
mod headers;
mod health;
mod local;
mod metrics;
mod names;
mod parking;
mod parking_bounds;
mod placement;
mod ranks;
mod realtime;
mod reload;
mod restart;
mod routes;
mod sessions;
mod shutdown;
mod spill;
mod stored;
mod streams;
mod unasked_usage;
mod uncounted;
