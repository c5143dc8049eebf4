//! Profiles: which model on which hardware, and how vLLM was started, as YAML.

use std::path::Path;

use serde::Deserialize;

use super::cost::{Hardware, Model};
use super::scheduler::SchedulerConfig;

/// The profiles in `bench/profiles/`, by name.
const BUILT_IN: [(&str, &str); 3] = [
    ("a4000-qwen3-4b", include_str!("../../profiles/a4000-qwen3-4b.yaml")),
    ("rtx5090-27b", include_str!("../../profiles/rtx5090-27b.yaml")),
    ("h200-qwen3-32b", include_str!("../../profiles/h200-qwen3-32b.yaml")),
];

/// One replica: its hardware, its model and its engine's limits.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub hardware: Hardware,
    pub model: Model,
    pub engine: EngineConfig,
}

/// The settings of vLLM that matter here, under vLLM's names.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    /// Tokens a KV block holds.
    pub block_size: u32,
    /// Tokens the KV cache of one replica holds; a part of a block is lost.
    pub kv_cache_tokens: u32,
    /// Tokens a step computes at most.
    pub max_num_batched_tokens: u32,
    /// Requests that run at once at most.
    pub max_num_seqs: u32,
    /// Prompt and output tokens of a request at most.
    pub max_model_len: u32,
}

impl EngineConfig {
    /// Blocks in the pool: `num_gpu_blocks` of vLLM, the reserved one included.
    pub fn num_blocks(&self) -> u32 {
        self.kv_cache_tokens / self.block_size
    }

    /// The limits the scheduler works with.
    pub fn scheduler(&self) -> SchedulerConfig {
        SchedulerConfig {
            max_num_batched_tokens: self.max_num_batched_tokens,
            max_num_seqs: self.max_num_seqs,
            max_model_len: self.max_model_len,
        }
    }
}

impl Profile {
    /// The names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads a built-in profile by its name, or else the YAML file at that path.
    ///
    /// # Errors
    /// A message that says what is wrong and where: no such profile, a file that cannot be read, a value out of range.
    pub fn load(name_or_path: &str) -> Result<Self, String> {
        let built_in = BUILT_IN.iter().find(|(name, _)| *name == name_or_path);
        let yaml = match built_in {
            Some((_, yaml)) => (*yaml).to_owned(),
            None => std::fs::read_to_string(Path::new(name_or_path)).map_err(|error| {
                let names: Vec<_> = Self::names().collect();
                format!("no profile `{name_or_path}`: {error}; name a file or one of {}", names.join(", "))
            })?,
        };
        Self::parse(&yaml).map_err(|error| format!("profile `{name_or_path}`: {error}"))
    }

    /// Reads a profile from YAML and checks it.
    ///
    /// # Errors
    /// A message that names the field.
    pub fn parse(yaml: &str) -> Result<Self, String> {
        let profile: Self = serde_yaml::from_str(yaml).map_err(|error| error.to_string())?;
        profile.check()?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        let Self { hardware, model, engine } = self;
        let positive = [
            ("hardware.memory_bandwidth", hardware.memory_bandwidth),
            ("hardware.memory_efficiency", hardware.memory_efficiency),
            ("hardware.flops", hardware.flops),
            ("hardware.flops_efficiency", hardware.flops_efficiency),
            ("hardware.step_overhead_s", hardware.step_overhead_s),
            ("model.weight_bytes", model.weight_bytes),
            ("model.active_parameters", model.active_parameters),
            ("model.kv_bytes_per_token", model.kv_bytes_per_token()),
            ("engine.block_size", f64::from(engine.block_size)),
            ("engine.max_num_batched_tokens", f64::from(engine.max_num_batched_tokens)),
            ("engine.max_num_seqs", f64::from(engine.max_num_seqs)),
            ("engine.max_model_len", f64::from(engine.max_model_len)),
        ];
        if let Some((field, value)) = positive.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            return Err(format!("{field} is {value}: give a number above 0"));
        }
        if hardware.memory_efficiency > 1.0 || hardware.flops_efficiency > 1.0 {
            return Err("an efficiency is above 1: give the share of the peak that is reached".to_owned());
        }
        let usable = engine.num_blocks().saturating_sub(1) * engine.block_size;
        if usable < engine.max_model_len {
            return Err(format!(
                "engine.kv_cache_tokens: {usable} tokens of whole blocks, less than engine.max_model_len {}: \
                 one request must fit",
                engine.max_model_len
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cost::step_seconds;
    use crate::engine::scheduler::StepLoad;

    #[test]
    fn every_built_in_profile_is_valid() {
        for name in Profile::names() {
            assert!(Profile::load(name).is_ok(), "{name}: {:?}", Profile::load(name));
        }
    }

    #[test]
    fn a_wrong_profile_is_refused_with_its_field() {
        let yaml = include_str!("../../profiles/a4000-qwen3-4b.yaml");
        let wrong = yaml.replace("max_model_len: 32768", "max_model_len: 65536");
        assert!(Profile::parse(&wrong).unwrap_err().contains("engine.kv_cache_tokens"));
        let wrong = yaml.replace("max_num_seqs: 32", "max_num_seqs: 0");
        assert!(Profile::parse(&wrong).unwrap_err().contains("engine.max_num_seqs"));
        assert!(Profile::load("no-such-profile").unwrap_err().contains("a4000-qwen3-4b"));
    }

    /// The figures that fit the published measurements of this hardware.
    #[test]
    fn the_a4000_profile_reads_weights_in_20_ms_and_a_prompt_token_in_a_fifth_of_a_ms() {
        let profile = Profile::load("a4000-qwen3-4b").unwrap();
        let seconds = |tokens| {
            let load = StepLoad { tokens, ..StepLoad::default() };
            step_seconds(&profile.hardware, &profile.model, &load)
        };
        let fixed = seconds(0);
        assert!((0.022..0.032).contains(&fixed), "{fixed}");
        let per_token = (seconds(2000) - fixed) / 2000.0;
        assert!((0.000_20..0.000_22).contains(&per_token), "{per_token}");
    }
}
