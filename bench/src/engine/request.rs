//! What goes into the engine and what comes out of it.

use super::prompt::Prompt;

/// Tells the requests of one engine apart. The caller chooses it; no two requests in the engine may share it.
pub type RequestId = u64;

/// One generation.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: RequestId,
    pub prompt: Prompt,
    /// The tokens the model will answer with, at least one. The engine stops after the last of them, or at
    /// `max_tokens`, or where the context is full, whichever comes first.
    pub output: Vec<u32>,
    pub max_tokens: u32,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model had nothing more to say.
    Stop,
    /// `max_tokens` or the context length was reached.
    Length,
}

/// The tokens of one request, as vLLM reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    /// Prompt tokens that were in the prefix cache when the request was first scheduled.
    pub cached_tokens: u32,
    /// Prompt tokens that the request added to the prefix cache: full blocks only.
    pub created_cache_tokens: u32,
    pub output_tokens: u32,
    pub preemptions: u32,
}

/// When a request reached each stage, in seconds of the engine's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timeline {
    pub submitted_s: f64,
    /// Start of the first step that worked on it.
    pub scheduled_s: f64,
    pub first_token_s: f64,
    pub finished_s: f64,
}

/// What a step did for one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The `index`-th output token, counted from 0, was generated.
    Token { id: RequestId, index: u32, token: u32 },
    /// The request is over; its last token came just before.
    Finished { id: RequestId, reason: FinishReason, usage: Usage, timeline: Timeline },
}

/// One step of the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When the step ends and its events happen. The next step may start then.
    pub end_s: f64,
    /// Tokens computed in the step, prompt and output together.
    pub tokens: u32,
    pub events: Vec<Event>,
}

/// Why the engine refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The prompt leaves no room for an output token.
    TooLong { prompt_tokens: u32, max_model_len: u32 },
    /// A prompt without tokens, or an output without any.
    Empty,
    /// The prompt was hashed for another block size.
    BlockSize { prompt: u32, engine: u32 },
}

impl std::fmt::Display for SubmitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { prompt_tokens, max_model_len } => write!(
                f,
                "a prompt of {prompt_tokens} tokens leaves no room for output in a context of {max_model_len}: shorten it"
            ),
            Self::Empty => write!(f, "a request needs at least one prompt token and one output token"),
            Self::BlockSize { prompt, engine } => write!(
                f,
                "the prompt was hashed in blocks of {prompt} tokens, but the engine's hold {engine}: \
                 make it with Prompt::new({engine})"
            ),
        }
    }
}

impl std::error::Error for SubmitError {}
