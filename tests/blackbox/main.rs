//! The balancer from outside: the built binary between clients and engines that the tests play.

mod harness;

mod access_log;
mod admin;
mod admission;
mod affinity_off;
mod bodies;
mod cache_outcomes;
mod discovery;
mod engines_over_tls;
mod errors;
mod failover;
mod flood;
mod framings;
mod harness_itself;
mod headers;
mod health;
mod http2;
mod http2_limits;
mod local;
mod metrics;
mod parking;
mod parking_bounds;
mod placement;
mod ranks;
mod reload;
mod restart;
mod sessions;
mod shutdown;
mod smuggling;
mod spill;
mod streams;
mod tls;
mod uncounted;
