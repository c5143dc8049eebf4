//! The balancer from outside: the built binary between clients and engines that the tests play.

mod harness;
mod harness_itself;
