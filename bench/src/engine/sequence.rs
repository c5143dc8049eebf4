//! A request inside the scheduler.

use super::prefix_cache::BlockId;
use super::prompt::Prompt;
use super::request::{FinishReason, Request, RequestId, Timeline, Usage};

/// A request with its progress: what is computed, and in which blocks.
pub(super) struct Sequence {
    pub id: RequestId,
    /// The prompt, then the output tokens generated so far.
    pub tokens: Prompt,
    output: Vec<u32>,
    /// Output tokens after which the request ends.
    output_limit: u32,
    /// Whether it ends because the model stops there.
    stops: bool,
    /// Tokens whose KV is computed or, during a step, being computed.
    pub computed: u32,
    /// Tokens of the step in progress; 0 if it sits this one out.
    pub scheduled: u32,
    /// The blocks that hold its KV, first to last.
    pub blocks: Vec<BlockId>,
    /// How many of `blocks` the prefix cache knows.
    pub blocks_cached: usize,
    /// Cached blocks found at the last attempt to admit it, to save the next attempt most of its lookups.
    pub hits: Vec<BlockId>,
    pub usage: Usage,
    pub timeline: Timeline,
}

impl Sequence {
    /// `max_model_len` bounds prompt and output together.
    pub fn new(request: Request, max_model_len: u32, now_s: f64) -> Self {
        let prompt_tokens = request.prompt.len();
        let wanted = request.output.len() as u32;
        let allowed = request.max_tokens.max(1).min(max_model_len - prompt_tokens);
        Self {
            id: request.id,
            tokens: request.prompt,
            output_limit: wanted.min(allowed),
            stops: wanted < allowed,
            output: request.output,
            computed: 0,
            scheduled: 0,
            blocks: Vec::new(),
            blocks_cached: 0,
            hits: Vec::new(),
            usage: Usage { prompt_tokens, ..Usage::default() },
            timeline: Timeline { submitted_s: now_s, ..Timeline::default() },
        }
    }

    /// Full blocks that a lookup may find: the last token is always computed, so its block is never taken whole.
    pub fn blocks_findable(&self) -> usize {
        ((self.tokens.len() - 1) / self.tokens.block_size()) as usize
    }

    /// Whether all its tokens are computed, so that the step brought the next one.
    pub fn caught_up(&self) -> bool {
        self.computed == self.tokens.len()
    }

    /// Adds the token that the model just generated and returns its place in the output and its value.
    pub fn generate(&mut self) -> (u32, u32) {
        let index = self.usage.output_tokens;
        let token = self.output[index as usize];
        self.tokens.push(token);
        self.usage.output_tokens += 1;
        (index, token)
    }

    /// Why the request is over, if it is.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        match (self.usage.output_tokens == self.output_limit, self.stops) {
            (false, _) => None,
            (true, true) => Some(FinishReason::Stop),
            (true, false) => Some(FinishReason::Length),
        }
    }
}
