//! What all generating endpoints do alike: read the body, check it, find a rank.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::HeaderMap;
use serde_json::Value;

use super::error::ApiError;
use crate::engine::Prompt;
use crate::fleet::fault::Fault;
use crate::fleet::process::Process;
use crate::fleet::rank::Generation;

/// A request that was understood.
pub struct Call {
    pub process: Arc<Process>,
    pub body: Value,
    pub prompt: Prompt,
}

impl Call {
    /// Reads a body, checks its model and makes the prompt with `tokens`, which returns `None` and the name of the field
    /// that should hold it if there is none.
    pub fn read(
        process: Arc<Process>,
        body: &Bytes,
        tokens: impl FnOnce(&Value) -> Result<Vec<u32>, &'static str>,
    ) -> Result<Self, ApiError> {
        let body: Value = serde_json::from_slice(body).map_err(|error| ApiError::bad_json(&error, body.len()))?;
        let model = body["model"].as_str().unwrap_or(&process.model);
        if model != process.model {
            return Err(ApiError::no_such_model(model, &process.model));
        }
        let prompt = process.prompt(tokens(&body).map_err(ApiError::bad_field)?.into_iter());
        let limit = process.profile.engine.max_model_len;
        if prompt.len() >= limit {
            return Err(ApiError::too_long(prompt.len(), limit));
        }
        if *process.faults.borrow() == Fault::EngineDead {
            return Err(ApiError::engine_dead());
        }
        Ok(Self { process, body, prompt })
    }

    /// Whether the answer is to be streamed.
    pub fn streams(&self) -> bool {
        self.body["stream"] == true
    }

    /// The identifier of the answer: that of the request if it came with one.
    pub fn id(&self, prefix: &str, headers: &HeaderMap) -> String {
        let given = headers.get("x-request-id").and_then(|id| id.to_str().ok());
        format!("{prefix}-{}", given.map_or_else(|| self.process.new_id(), str::to_owned))
    }

    /// Starts the generation on the rank that the headers ask for, or else on the least loaded.
    ///
    /// # Errors
    /// When there is no such rank.
    pub fn generate(&self, headers: Option<&HeaderMap>, max_tokens: Option<u32>) -> Result<Generation, ApiError> {
        let asked = headers.and_then(|headers| headers.get("x-data-parallel-rank")?.to_str().ok()?.parse::<i64>().ok());
        let ranks = self.process.ranks.len();
        let rank = match asked {
            None => self.process.least_loaded_rank(),
            Some(asked) => usize::try_from(asked).ok().filter(|rank| *rank < ranks).ok_or_else(|| {
                let message = format!("data_parallel_rank {asked} is out of range [0, {ranks}).");
                ApiError::bad_request(message, None)
            })?,
        };
        let room = self.process.profile.engine.max_model_len - self.prompt.len();
        let max_tokens = max_tokens.unwrap_or(room).clamp(1, room);
        Ok(self.process.generate(rank, self.prompt.clone(), max_tokens))
    }

    /// A count in the body, the first of these fields that has one.
    pub fn count(&self, fields: &[&str]) -> Option<u32> {
        fields.iter().find_map(|field| self.body[field].as_u64()).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    }
}
