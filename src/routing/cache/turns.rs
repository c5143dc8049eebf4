//! What a turn does to the cache of its replica from its beginning to its end, and what is learned of it.

use super::queue::Prompt;
use super::{CacheOutcome, Caches, Replica, Standing};
use crate::routing::{Key, ReplicaId, Time, Tokens};

/// A turn has kept its cache if it found all of it but this share (a template may render the last answer anew) ...
const SHORTFALL_SHARE: f64 = 0.1;

/// ... and these tokens: the last blocks, which are not full.
const SHORTFALL_TOKENS: u64 = 64;

/// A cache believed to hold less than this share of its capacity evicts nothing.
const ROOMY: f64 = 0.5;

/// What a turn is expected to find, kept with it until its end.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// Tokens of its conversation as its last turn left it; 0 for a first turn.
    pub before: u64,
    /// Tokens that the replica should find.
    pub found: u64,
    /// Why, if it finds less than there was.
    pub if_short: CacheOutcome,
    /// What the cache was believed to hold.
    believed: u64,
    /// Prompt tokens to compute before this one's first byte, its own included.
    queued: u64,
    /// Its own prompt, until the replica has read it.
    prompt: Option<Prompt>,
    /// The first turn of a newcomer that met a cache which others had used: what it finds there is what all share.
    met_others: bool,
}

impl Caches {
    /// A turn begins on a replica. `size` is that of its conversation after the last turn, `why_gone` what became of a
    /// cache that it no longer has there: at home, nothing but evicted it can be.
    pub fn start(
        &mut self,
        replica: ReplicaId,
        key: Key,
        size: Option<u64>,
        bytes: u64,
        placed: bool,
        why_gone: CacheOutcome,
    ) -> Expectation {
        let own = self.own_tokens(size, bytes);
        let shared = self.sizes.shared();
        let Replica { shadow, queue, .. } = &mut self.replicas[replica.index()];
        let met_others = !shadow.is_empty();
        // Elsewhere there may be a copy, left by a turn that was sent there once: an old one.
        let there = why_gone == CacheOutcome::Evicted && shadow.standing(&key) != Standing::Gone;
        let found = match size {
            Some(size) if there => size,
            _ if met_others => shared,
            _ => 0,
        };
        let length = size.unwrap_or_else(|| self.sizes.of_bytes(bytes)) + self.sizes.growth();
        let prompt = Prompt { length, to_compute: length.saturating_sub(found) };
        queue.add(prompt);
        let expectation = Expectation {
            before: size.unwrap_or(0),
            found,
            if_short: if there { CacheOutcome::Evicted } else { why_gone },
            believed: shared + shadow.cached(),
            queued: queue.to_compute(),
            prompt: Some(prompt),
            met_others: met_others && placed,
        };
        shadow.start(key, own, placed);
        expectation
    }

    /// The replica has begun to answer a turn: what was queued for it is read.
    pub fn began(&mut self, replica: ReplicaId, expectation: &mut Expectation) {
        if let Some(prompt) = expectation.prompt.take() {
            self.replicas[replica.index()].queue.remove(prompt);
        }
    }

    /// A turn has ended on a replica. Returns whether its conversation gave its place up, because it had `turns_max` turns.
    pub fn finish(
        &mut self,
        replica: ReplicaId,
        key: Key,
        expectation: &mut Expectation,
        tokens: Option<Tokens>,
        turns_max: Option<u32>,
        now: Time,
    ) -> bool {
        self.began(replica, expectation);
        self.idle_since = self.idle_since.min(now);
        let own = tokens.map(|tokens| self.own_tokens(Some(tokens.prompt + tokens.completion), 0));
        self.replicas[replica.index()].shadow.finish(key, own, turns_max, now)
    }

    /// Learns how fast a replica reads: a turn of so many tokens, whose first byte came after `seconds`.
    pub fn note_first_byte(&mut self, replica: ReplicaId, expectation: &Expectation, tokens: Tokens, seconds: f64) {
        let own = tokens.prompt.saturating_sub(tokens.cached.unwrap_or(0));
        let others = expectation.queued.saturating_sub(tokens.prompt.saturating_sub(expectation.found));
        self.speeds.note(replica, own + others, seconds);
    }

    /// Learns from the tokens of a turn of a conversation, sent in so many bytes, and says what became of its cache.
    /// `capacity` is that of the replica, where it is known and not learned; `waiting`: others wait for room.
    pub fn learn(
        &mut self,
        expectation: &Expectation,
        bytes: u64,
        tokens: Tokens,
        capacity: Option<u64>,
        waiting: bool,
        now: Time,
    ) -> CacheOutcome {
        let Expectation { before, believed, .. } = *expectation;
        self.sizes.note_prompt(bytes, tokens.prompt);
        let after = tokens.prompt + tokens.completion;
        if before > 0 && after > before {
            self.sizes.note_growth(after - before);
        }
        let at_home = before > 0 && expectation.found == before;
        if at_home {
            self.watch.note(before, tokens.cached);
        }
        let outcome =
            outcome(expectation, tokens, capacity.is_some_and(|capacity| (believed as f64) < ROOMY * capacity as f64));
        self.counts.count(outcome);
        let Some(cached) = tokens.cached else { return outcome };
        if at_home {
            self.counts.foreseen(before.min(tokens.prompt), cached);
        }
        let unknown = capacity.is_none();
        match outcome {
            CacheOutcome::FirstTurn if expectation.met_others => self.sizes.note_shared(cached),
            // Not even the head that all share: a replica without a cache, or one that has started anew.
            CacheOutcome::Evicted if cached == 0 => {}
            CacheOutcome::Evicted if at_home && unknown => self.learned.missed(believed, now),
            CacheOutcome::Kept if waiting && unknown => self.learned.kept(),
            _ => {}
        }
        if unknown {
            self.learned.held(after + self.sizes.growth());
        }
        outcome
    }
}

fn outcome(expectation: &Expectation, tokens: Tokens, roomy: bool) -> CacheOutcome {
    let Expectation { before, found, if_short, .. } = *expectation;
    let Some(cached) = tokens.cached else { return CacheOutcome::Unmeasured };
    if before == 0 {
        return match if_short {
            CacheOutcome::ReplicaRestarted | CacheOutcome::Moved => if_short,
            _ => CacheOutcome::FirstTurn,
        };
    }
    let shortfall = before.saturating_sub(cached);
    if shortfall <= SHORTFALL_TOKENS + (SHORTFALL_SHARE * before as f64) as u64 {
        return CacheOutcome::Kept;
    }
    match if_short {
        // It should have been there: only a cache that is full loses what goes on where it ended.
        CacheOutcome::Evicted if found == before && (tokens.prompt < before || roomy) => CacheOutcome::PromptChanged,
        other => other,
    }
}
