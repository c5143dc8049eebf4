//! A vLLM engine without a model: its scheduler, its prefix cache and the time its steps take.
//!
//! Pure: time is an argument, and the same calls give the same results. A simulation drives it in virtual time, the
//! [fleet](crate::fleet) in real time. Both do the same: submit requests, and whenever the engine has work and its last
//! step has ended, ask for the [next step](Engine::next_step).
//!
//! ```
//! use homing_bench::engine::{Engine, Event, Profile, Request, Usage};
//!
//! /// Serves one turn and returns when it ended and what it cost.
//! fn turn(engine: &mut Engine, mut now_s: f64, request: Request) -> (f64, Usage) {
//!     engine.submit(now_s, request).unwrap();
//!     let mut cost = Usage::default();
//!     while let Some(step) = engine.next_step(now_s) {
//!         now_s = step.end_s;
//!         for event in step.events {
//!             if let Event::Finished { usage, .. } = event {
//!                 cost = usage;
//!             }
//!         }
//!     }
//!     (now_s, cost)
//! }
//!
//! let mut engine = Engine::new(Profile::load("a4000-qwen3-4b")?);
//! let mut prompt = engine.prompt();
//! prompt.extend(0..5000);
//! let answer: Vec<u32> = (7000..7256).collect();
//! let first = Request { id: 1, prompt: prompt.clone(), output: answer.clone(), max_tokens: 256 };
//! let (now_s, _) = turn(&mut engine, 0.0, first);
//!
//! // The next turn is the same prompt, then the answer, then what the user says next.
//! prompt.extend(answer);
//! prompt.extend(9000..9400);
//! let second = Request { id: 2, prompt, output: vec![1], max_tokens: 1 };
//! let (_, cost) = turn(&mut engine, now_s, second);
//! assert_eq!((cost.prompt_tokens, cost.cached_tokens), (5656, 5248));
//! # Ok::<(), String>(())
//! ```

mod balance;
mod cost;
mod prefix_cache;
mod profile;
mod prompt;
mod request;
mod scheduler;
mod sequence;

pub use balance::{load_since_0_27, load_until_0_26};
pub use cost::{Hardware, Model, step_seconds};
pub use prefix_cache::{BlockId, BlockPool};
pub use profile::{EngineConfig, Profile};
pub use prompt::{BlockHash, Prompt};
pub use request::{Event, FinishReason, Request, RequestId, Step, SubmitError, Timeline, Usage};
use scheduler::Scheduler;
pub use scheduler::{CacheCounters, SchedulerConfig, StepLoad};
use sequence::Sequence;

/// One engine: one replica, or one data-parallel rank of it.
pub struct Engine {
    profile: Profile,
    scheduler: Scheduler,
    slowdown: f64,
    prompt_tokens: u64,
    prompt_tokens_cached: u64,
    generation_tokens: u64,
}

/// What vLLM reports of itself in `/metrics`. Counters count from the engine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub running: u32,
    pub waiting: u32,
    /// Share of the KV cache that running requests hold, 0 to 1.
    pub kv_usage: f64,
    /// Prefix cache queries and hits in tokens, once a request, as vLLM counts since 0.27.
    pub prefix_cache: CacheCounters,
    /// The same as vLLM counted up to 0.26: a request that blocks the head of the queue again at every step.
    pub prefix_cache_attempts: CacheCounters,
    /// Prompt tokens of requests that reached their first token.
    pub prompt_tokens: u64,
    /// Those of `prompt_tokens` that were cached.
    pub prompt_tokens_cached: u64,
    pub generation_tokens: u64,
    pub preemptions: u64,
}

impl Engine {
    /// An idle engine with an empty cache.
    pub fn new(profile: Profile) -> Self {
        let pool = BlockPool::new(profile.engine.num_blocks());
        let scheduler = Scheduler::new(profile.engine.scheduler(), pool);
        Self { profile, scheduler, slowdown: 1.0, prompt_tokens: 0, prompt_tokens_cached: 0, generation_tokens: 0 }
    }

    /// An empty prompt, hashed as this engine needs it.
    pub fn prompt(&self) -> Prompt {
        Prompt::new(self.profile.engine.block_size)
    }

    /// Puts a request at the end of the queue. The next step may take it up.
    ///
    /// # Errors
    /// When no engine of this configuration could serve the request.
    pub fn submit(&mut self, now_s: f64, request: Request) -> Result<(), SubmitError> {
        let engine = &self.profile.engine;
        if request.prompt.is_empty() || request.output.is_empty() {
            return Err(SubmitError::Empty);
        }
        if request.prompt.block_size() != engine.block_size {
            let prompt = request.prompt.block_size();
            return Err(SubmitError::BlockSize { prompt, engine: engine.block_size });
        }
        let (prompt_tokens, max_model_len) = (request.prompt.len(), engine.max_model_len);
        if prompt_tokens >= max_model_len {
            return Err(SubmitError::TooLong { prompt_tokens, max_model_len });
        }
        self.scheduler.waiting.push_back(Sequence::new(request, max_model_len, now_s));
        Ok(())
    }

    /// Drops a request that waits or runs and frees its blocks; what it filled of them stays cached. Returns whether
    /// it was there. A step handed out earlier may still hold events of it.
    pub fn abort(&mut self, id: RequestId) -> bool {
        self.scheduler.abort(id)
    }

    /// Whether there is nothing to do: no request waits or runs.
    pub fn is_idle(&self) -> bool {
        self.scheduler.running.is_empty() && self.scheduler.waiting.is_empty()
    }

    /// Does the step that starts at `now_s`, which must not be before the end of the last one. `None` if idle.
    ///
    /// The engine is at once in the state in which the step leaves it. Requests submitted before `end_s` wait for the
    /// next step, as they would in a real engine.
    pub fn next_step(&mut self, now_s: f64) -> Option<Step> {
        if self.is_idle() {
            return None;
        }
        let load = self.scheduler.schedule(now_s);
        let seconds = step_seconds(&self.profile.hardware, &self.profile.model, &load);
        let end_s = now_s + seconds * self.slowdown;
        let mut events = Vec::with_capacity(self.scheduler.running.len());
        self.count_first_tokens();
        self.scheduler.finish_step(end_s, &mut events);
        let tokens = events.iter().filter(|event| matches!(event, Event::Token { .. })).count();
        self.generation_tokens += tokens as u64;
        Some(Step { end_s, tokens: load.tokens, events })
    }

    /// Makes the steps from now on last `factor` times as long, above 0.
    pub fn set_slowdown(&mut self, factor: f64) {
        assert!(factor > 0.0, "a step takes time");
        self.slowdown = factor;
    }

    /// The profile it was made from.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The state after the last step.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            running: self.scheduler.running.len() as u32,
            waiting: self.scheduler.waiting.len() as u32,
            kv_usage: self.scheduler.pool.usage(),
            prefix_cache: self.scheduler.admitted,
            prefix_cache_attempts: self.scheduler.attempted,
            prompt_tokens: self.prompt_tokens,
            prompt_tokens_cached: self.prompt_tokens_cached,
            generation_tokens: self.generation_tokens,
            preemptions: self.scheduler.preemptions,
        }
    }

    fn count_first_tokens(&mut self) {
        for sequence in &self.scheduler.running {
            if sequence.scheduled > 0 && sequence.caught_up() && sequence.usage.output_tokens == 0 {
                self.prompt_tokens += u64::from(sequence.usage.prompt_tokens);
                self.prompt_tokens_cached += u64::from(sequence.usage.cached_tokens);
            }
        }
    }
}

#[cfg(test)]
mod tests;
