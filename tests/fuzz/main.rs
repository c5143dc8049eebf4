//! What comes from outside, damaged at random: each reader has to hold what it promises, whatever it is given.
//!
//! Inputs are real ones (the captures in `tests/samples/`, and what is kept in `corpus/`) with a few changes. Each fuzzer runs
//! for `FUZZ_SECONDS`, and keeps what it finds in `corpus/`, where it is tried first from then on.

mod answer;
mod config;
mod form;
mod harness;
mod head;
mod metrics;
mod peek;
mod request;
mod session;
mod state;
mod usage;
