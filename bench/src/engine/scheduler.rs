//! vLLM V1's scheduler: which tokens of which requests a step computes.
//!
//! Written after `vllm/v1/core/sched/scheduler.py` and `kv_cache_manager.py` of vLLM 0.32 with its defaults: first come
//! first served, chunked prefill, full prompts must fit before they are admitted (`scheduler_reserve_full_isl`), no
//! watermark, no speculative decoding. Its asynchronous scheduling is left out: it hides the work of a step behind the
//! one before and frees the blocks of a finished request one step later.

use std::collections::VecDeque;

use super::prefix_cache::BlockPool;
use super::request::{Event, RequestId};
use super::sequence::Sequence;

/// The limits vLLM is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Tokens a step computes at most.
    pub max_num_batched_tokens: u32,
    /// Requests that run at once at most.
    pub max_num_seqs: u32,
    /// Prompt and output tokens of a request at most.
    pub max_model_len: u32,
}

/// Lookups in the prefix cache, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    pub queries: u64,
    pub hits: u64,
}

impl CacheCounters {
    fn record(&mut self, queries: u32, hits: u32) {
        self.queries += u64::from(queries);
        self.hits += u64::from(hits);
    }
}

/// How much work a step is, which decides how long it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepLoad {
    /// Tokens to compute.
    pub tokens: u32,
    /// Pairs of a computed token and a token it attends to.
    pub attention_pairs: f64,
    /// Tokens whose keys and values are read.
    pub context_tokens: u64,
}

/// The queues and the blocks of one engine.
pub(super) struct Scheduler {
    config: SchedulerConfig,
    pub pool: BlockPool,
    pub running: Vec<Sequence>,
    pub waiting: VecDeque<Sequence>,
    /// Counted once a request, when it is admitted. Preempted requests are not counted again.
    pub admitted: CacheCounters,
    /// Counted at every attempt to admit the head of the queue, as vLLM did up to 0.26.
    pub attempted: CacheCounters,
    pub preemptions: u64,
}

impl Scheduler {
    pub fn new(config: SchedulerConfig, pool: BlockPool) -> Self {
        Self {
            config,
            pool,
            running: Vec::new(),
            waiting: VecDeque::new(),
            admitted: CacheCounters::default(),
            attempted: CacheCounters::default(),
            preemptions: 0,
        }
    }

    /// Gives every request its tokens of the next step, with the blocks to hold them.
    pub fn schedule(&mut self, now_s: f64) -> StepLoad {
        let preemptions_before = self.preemptions;
        let mut budget = self.schedule_running(self.config.max_num_batched_tokens);
        // A step that had to preempt has no room for newcomers.
        if self.preemptions == preemptions_before {
            while budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
                let Some(tokens) = self.admit_next(budget, now_s) else {
                    break;
                };
                budget -= tokens;
            }
        }
        self.advance()
    }

    /// Ends the step: finished prompts and running requests get a token each, and finished requests leave.
    pub fn finish_step(&mut self, end_s: f64, events: &mut Vec<Event>) {
        let pool = &mut self.pool;
        self.running.retain_mut(|sequence| {
            let scheduled = std::mem::take(&mut sequence.scheduled);
            if scheduled == 0 || !sequence.caught_up() {
                return true;
            }
            let (index, token) = sequence.generate();
            if index == 0 {
                sequence.timeline.first_token_s = end_s;
                let in_cache = sequence.blocks_cached as u32 * sequence.tokens.block_size();
                sequence.usage.created_cache_tokens = in_cache - sequence.usage.cached_tokens;
            }
            events.push(Event::Token { id: sequence.id, index, token });
            let Some(reason) = sequence.finish_reason() else {
                return true;
            };
            sequence.timeline.finished_s = end_s;
            pool.release(sequence.blocks.drain(..).rev());
            let (id, usage, timeline) = (sequence.id, sequence.usage, sequence.timeline);
            events.push(Event::Finished { id, reason, usage, timeline });
            false
        });
    }

    /// Drops a request wherever it is. Returns whether it was there.
    pub fn abort(&mut self, id: RequestId) -> bool {
        if let Some(index) = self.running.iter().position(|sequence| sequence.id == id) {
            let sequence = self.running.remove(index);
            self.pool.release(sequence.blocks.into_iter().rev());
            return true;
        }
        let index = self.waiting.iter().position(|sequence| sequence.id == id);
        index.and_then(|index| self.waiting.remove(index)).is_some()
    }

    /// Running requests come first, in the order in which they were admitted. Returns what is left of the budget.
    fn schedule_running(&mut self, mut budget: u32) -> u32 {
        let mut index = 0;
        while index < self.running.len() && budget > 0 {
            let sequence = &self.running[index];
            let tokens = (sequence.tokens.len() - sequence.computed).min(budget);
            let blocks_wanted = blocks_for(sequence, sequence.computed + tokens);
            while blocks_wanted > self.running[index].blocks.len() + self.pool.free_blocks() as usize {
                self.preempt_last();
                if self.running.len() == index {
                    return budget;
                }
            }
            give_blocks(&mut self.pool, &mut self.running[index], tokens);
            budget -= tokens;
            index += 1;
        }
        budget
    }

    /// Takes back all that the youngest running request holds and puts it at the head of the queue.
    fn preempt_last(&mut self) {
        let mut sequence = self.running.pop().expect("only a running request asks for blocks");
        self.pool.release(sequence.blocks.drain(..).rev());
        sequence.blocks_cached = 0;
        sequence.computed = 0;
        sequence.usage.preemptions += 1;
        self.preemptions += 1;
        self.waiting.push_front(sequence);
    }

    /// Admits the head of the queue with as much of its prompt as the budget allows, if all of it fits in the pool.
    /// Returns the tokens it was given.
    fn admit_next(&mut self, budget: u32, now_s: f64) -> Option<u32> {
        let sequence = self.waiting.front_mut()?;
        find_hits(&self.pool, sequence);
        let length = sequence.tokens.len();
        let cached = sequence.hits.len() as u32 * sequence.tokens.block_size();
        let first_time = sequence.usage.preemptions == 0;
        if first_time {
            self.attempted.record(length, cached);
        }
        let hits_to_revive = sequence.hits.iter().filter(|id| self.pool.is_free(**id)).count();
        let blocks_wanted = blocks_for(sequence, length) - sequence.hits.len() + hits_to_revive;
        if blocks_wanted > self.pool.free_blocks() as usize {
            return None;
        }
        if first_time {
            self.admitted.record(length, cached);
        }
        let mut sequence = self.waiting.pop_front()?;
        sequence.blocks = std::mem::take(&mut sequence.hits);
        sequence.blocks.iter().for_each(|id| self.pool.touch(*id));
        sequence.blocks_cached = sequence.blocks.len();
        sequence.computed = cached;
        if first_time {
            sequence.usage.cached_tokens = cached;
            sequence.timeline.scheduled_s = now_s;
        }
        let tokens = (length - cached).min(budget);
        give_blocks(&mut self.pool, &mut sequence, tokens);
        self.running.push(sequence);
        Some(tokens)
    }

    /// Counts the scheduled tokens as computed and adds up the work they are.
    fn advance(&mut self) -> StepLoad {
        let mut load = StepLoad::default();
        for sequence in self.running.iter_mut().filter(|sequence| sequence.scheduled > 0) {
            let (before, tokens) = (f64::from(sequence.computed), f64::from(sequence.scheduled));
            sequence.computed += sequence.scheduled;
            load.tokens += sequence.scheduled;
            load.attention_pairs += tokens * before + tokens * (tokens + 1.0) / 2.0;
            load.context_tokens += u64::from(sequence.computed);
        }
        load
    }
}

fn blocks_for(sequence: &Sequence, tokens: u32) -> usize {
    tokens.div_ceil(sequence.tokens.block_size()) as usize
}

/// Brings `hits` up to date. Those that are still cached stay: a lookup finds the oldest block of a hash, and the oldest
/// stays so until it is evicted.
fn find_hits(pool: &BlockPool, sequence: &mut Sequence) {
    let hashes = &sequence.tokens.block_hashes()[..sequence.blocks_findable()];
    let known = sequence.hits.iter().zip(hashes).take_while(|(id, hash)| pool.holds(**id, **hash)).count();
    sequence.hits.truncate(known);
    sequence.hits.extend(hashes[known..].iter().map_while(|hash| pool.find(*hash)));
}

/// Schedules `tokens` more tokens: takes the blocks they need and caches those that they fill. A block can be found from
/// here on, within the same step too.
fn give_blocks(pool: &mut BlockPool, sequence: &mut Sequence, tokens: u32) {
    sequence.scheduled = tokens;
    let computed = sequence.computed + tokens;
    for _ in sequence.blocks.len()..blocks_for(sequence, computed) {
        sequence.blocks.push(pool.allocate());
    }
    let full = (computed / sequence.tokens.block_size()) as usize;
    for index in sequence.blocks_cached..full {
        pool.cache(sequence.blocks[index], sequence.tokens.block_hashes()[index]);
    }
    sequence.blocks_cached = sequence.blocks_cached.max(full);
}
