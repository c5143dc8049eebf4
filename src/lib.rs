//! Homing, an edge load balancer for vLLM.

pub mod config;
pub mod request {
    pub mod source;
}
