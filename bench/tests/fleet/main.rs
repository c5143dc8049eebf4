//! The fleet from outside, over HTTP, beside what a real vLLM answered.

mod aborts;
mod faults;
mod ranks;
mod shapes;
mod support;
mod turns;
