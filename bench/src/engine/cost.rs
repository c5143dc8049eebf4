//! How long a step takes on given hardware.
//!
//! The four terms of a decoder's step are added rather than overlapped: reading the weights, reading the keys and values
//! of the context, multiplying, and a fixed overhead for scheduling, launching kernels and sampling. Peak figures come
//! from data sheets; the share of them that is reached is part of the profile.

use serde::Deserialize;

use super::scheduler::StepLoad;

/// An accelerator: what it could do and which share of it a model gets.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Peak memory bandwidth, bytes a second.
    pub memory_bandwidth: f64,
    /// Share of the bandwidth that is reached, 0 to 1.
    pub memory_efficiency: f64,
    /// Peak dense matrix multiplication at the precision of the model, floating point operations a second.
    pub flops: f64,
    /// Share of the operations that is reached, 0 to 1.
    pub flops_efficiency: f64,
    /// Time of a step besides all reading and multiplying, seconds.
    pub step_overhead_s: f64,
}

/// A decoder-only transformer: what a step has to read and multiply.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that clients ask for.
    pub name: String,
    /// Weights that a step reads, bytes.
    pub weight_bytes: f64,
    /// Parameters that a token is multiplied with; each is one multiplication and one addition.
    pub active_parameters: f64,
    /// Layers with attention over the whole context.
    pub attention_layers: u32,
    pub query_heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    /// Bytes of one number in the KV cache.
    pub kv_value_bytes: u32,
}

impl Model {
    /// Bytes of keys and values a token has in the cache.
    pub fn kv_bytes_per_token(&self) -> f64 {
        2.0 * f64::from(self.attention_layers * self.kv_heads * self.head_dim * self.kv_value_bytes)
    }

    /// Operations for one token to attend to another: a dot product with its key, then its value scaled and added.
    fn flops_per_attention_pair(&self) -> f64 {
        4.0 * f64::from(self.attention_layers * self.query_heads * self.head_dim)
    }
}

/// Seconds of a step with the given load.
pub fn step_seconds(hardware: &Hardware, model: &Model, load: &StepLoad) -> f64 {
    let bytes = model.weight_bytes + load.context_tokens as f64 * model.kv_bytes_per_token();
    let flops = 2.0 * model.active_parameters * f64::from(load.tokens)
        + model.flops_per_attention_pair() * load.attention_pairs;
    hardware.step_overhead_s
        + bytes / (hardware.memory_bandwidth * hardware.memory_efficiency)
        + flops / (hardware.flops * hardware.flops_efficiency)
}
