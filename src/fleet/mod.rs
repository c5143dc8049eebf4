//! Replicas as they live.

pub mod vllm_metrics;
