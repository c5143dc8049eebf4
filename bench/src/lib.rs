//! Simulated vLLM replicas for Homing.
//!
//! [`engine`] is a vLLM engine without a model, pure and in virtual time. [`fleet`] serves the same engine over HTTP as
//! vLLM does, in real time, with faults on request.

pub mod engine;
pub mod fleet;
