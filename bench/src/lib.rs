//! Simulated vLLM replicas for Homing.
//!
//! [`engine`] is a vLLM engine without a model, pure and in virtual time. [`fleet`] serves the same engine over HTTP as
//! vLLM does, in real time, with faults on request. [`balancer`] runs the `homing` binary before it, and [`demo`] shows both.
//! [`load`] is what agents ask for, pure as well, and [`experiment`] runs ways to choose a replica on it in virtual time.
//! [`live`] sends the same load over real HTTP. [`chaos`] checks every answer while faults are played at random.

pub mod balancer;
pub mod chaos;
pub mod demo;
pub mod engine;
pub mod experiment;
pub mod fleet;
pub mod live;
pub mod load;
