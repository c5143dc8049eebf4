use std::collections::HashMap;
use std::time::Duration;

use lru::LruCache;

use crate::routing::{Key, Time};

/// What the prefix cache of one replica should hold: the conversations last used there, by their size, as far back as its
/// capacity goes. vLLM frees the blocks of a request when it ends and evicts those freed first, so that is the order.
///
/// Every conversation is in one of three lists: **running** (a turn in flight), **lingering** (idle, with its place kept),
/// **left** (idle, its place given up: in the cache until something needs the room). Sizes are tokens of its own, without
/// the prefix that all share.
pub(super) struct Shadow {
    running: HashMap<Key, Running>,
    lingering: LruCache<Key, Lingering>,
    left: LruCache<Key, Left>,
    running_tokens: u64,
    lingering_tokens: u64,
    left_tokens: u64,
}

struct Running {
    tokens: u32,
    /// Its turns in flight here.
    in_flight: u32,
    placed: bool,
    /// Turns since it got its place.
    turns: u32,
}

struct Lingering {
    tokens: u32,
    since: Time,
    turns: u32,
}

struct Left {
    tokens: u32,
    /// It had its turns and is to wait while others do.
    rotated: bool,
}

/// How a conversation stands with a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has a place: a turn in flight, or idle no longer than it may linger.
    Placed,
    /// Its place is gone, its cache is not.
    Resident,
    /// As [`Standing::Resident`], but it had its turns and is to wait while others do.
    Rotated,
    /// Neither place nor cache.
    Gone,
}

/// Idle conversations of one replica that are kept track of at most.
const ENTRIES_MAX: usize = 65_536;

/// A conversation counts as one block at least.
const TOKENS_MIN: u32 = 16;

/// What a conversation counts as. There may be half a million on eight replicas, so this is narrow: nothing true is wider.
fn counted(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX).max(TOKENS_MIN)
}

impl Shadow {
    pub fn new() -> Shadow {
        Shadow {
            running: HashMap::new(),
            lingering: LruCache::unbounded(),
            left: LruCache::unbounded(),
            running_tokens: 0,
            lingering_tokens: 0,
            left_tokens: 0,
        }
    }

    /// Own tokens of the conversations with a place here and of all that runs.
    pub fn held(&self) -> u64 {
        self.running_tokens + self.lingering_tokens
    }

    /// Own tokens of everything that should be in the cache.
    pub fn cached(&self) -> u64 {
        self.held() + self.left_tokens
    }

    /// Conversations with a turn in flight.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Conversations with a place that have nothing in flight.
    pub fn lingering(&self) -> usize {
        self.lingering.len()
    }

    /// Conversations without a place that should still be in the cache.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// Whether nothing runs here and nothing has a place.
    pub fn is_free(&self) -> bool {
        self.running.is_empty() && self.lingering.is_empty()
    }

    /// Whether anything should be in the cache.
    pub fn is_empty(&self) -> bool {
        self.is_free() && self.left.is_empty()
    }

    pub fn standing(&self, key: &Key) -> Standing {
        match (self.running.get(key), self.left.peek(key)) {
            (Some(running), _) if running.placed => Standing::Placed,
            _ if self.lingering.contains(key) => Standing::Placed,
            (Some(_), _) | (None, Some(Left { rotated: false, .. })) => Standing::Resident,
            (None, Some(Left { rotated: true, .. })) => Standing::Rotated,
            (None, None) => Standing::Gone,
        }
    }

    /// Whether a turn of the conversation is in flight here.
    pub fn is_running(&self, key: &Key) -> bool {
        self.running.contains_key(key)
    }

    /// A turn of the conversation begins here and will take so many tokens of its own.
    pub fn start(&mut self, key: Key, tokens: u64, placed: bool) {
        let tokens = counted(tokens);
        let (turns, lingered) = self.take_idle(&key);
        let running = self.running.entry(key).or_insert(Running { tokens: 0, in_flight: 0, placed: false, turns });
        running.in_flight += 1;
        running.turns += 1;
        running.placed |= placed || lingered;
        self.running_tokens += u64::from(tokens.saturating_sub(running.tokens));
        running.tokens = tokens.max(running.tokens);
    }

    /// A turn of the conversation has ended here; the conversation has now so many tokens of its own. With the last one in
    /// flight it goes to rest. With `turns_max`, it gives its place up after so many turns; returns whether it did.
    pub fn finish(&mut self, key: Key, tokens: Option<u64>, turns_max: Option<u32>, now: Time) -> bool {
        let Some(running) = self.running.get_mut(&key) else { return false };
        if let Some(tokens) = tokens.map(counted) {
            self.running_tokens = self.running_tokens - u64::from(running.tokens) + u64::from(tokens);
            running.tokens = tokens;
        }
        running.in_flight -= 1;
        if running.in_flight > 0 {
            return false;
        }
        let Some(Running { tokens, placed, turns, .. }) = self.running.remove(&key) else { return false };
        self.running_tokens -= u64::from(tokens);
        let rotated = turns_max.is_some_and(|most| turns >= most);
        if placed && !rotated {
            self.lingering_tokens += u64::from(tokens);
            self.lingering.put(key, Lingering { tokens, since: now, turns });
        } else {
            self.leave(key, Left { tokens, rotated });
        }
        rotated
    }

    /// The conversation lives elsewhere now: its place here ends, its cache stays.
    pub fn give_up(&mut self, key: Key) {
        if let Some(running) = self.running.get_mut(&key) {
            running.placed = false;
        } else if let Some(Lingering { tokens, .. }) = self.lingering.pop(&key) {
            self.lingering_tokens -= u64::from(tokens);
            self.leave(key, Left { tokens, rotated: false });
        }
    }

    /// Since when the conversation has been idle that has a place here and was idle first.
    pub fn idle_since(&self) -> Option<Time> {
        self.lingering.peek_lru().map(|(_, lingering)| lingering.since)
    }

    /// Ends the places of those idle for longer than `linger`.
    pub fn expire(&mut self, linger: Duration, now: Time) {
        while self.idle_since().is_some_and(|since| now.since(since) > linger) {
            let Some((key, Lingering { tokens, .. })) = self.lingering.pop_lru() else { break };
            self.lingering_tokens -= u64::from(tokens);
            self.leave(key, Left { tokens, rotated: false });
        }
    }

    /// Drops what a cache of so many tokens cannot hold any more: the longest unused first, and what runs never. Returns how
    /// many were dropped for being too many, whatever their tokens.
    pub fn cut(&mut self, tokens_max: u64) -> u64 {
        let mut too_many = 0;
        while self.cached() > tokens_max || self.left.len() + self.lingering.len() > ENTRIES_MAX {
            too_many += u64::from(self.cached() <= tokens_max);
            if let Some((_, left)) = self.left.pop_lru() {
                self.left_tokens -= u64::from(left.tokens);
            } else if let Some((_, lingering)) = self.lingering.pop_lru() {
                self.lingering_tokens -= u64::from(lingering.tokens);
            } else {
                break;
            }
        }
        too_many
    }

    /// The cache is empty again, and nothing has a place here. What runs still does.
    pub fn clear_idle(&mut self) {
        self.running.values_mut().for_each(|running| running.placed = false);
        self.lingering.clear();
        self.left.clear();
        (self.lingering_tokens, self.left_tokens) = (0, 0);
    }

    /// A conversation of so many tokens of its own is known to rest here since then; with a place, if it `lingers`.
    pub fn rest(&mut self, key: Key, tokens: u64, since: Time, lingers: bool) {
        let tokens = counted(tokens);
        self.take_idle(&key);
        if lingers {
            self.lingering_tokens += u64::from(tokens);
            self.lingering.put(key, Lingering { tokens, since, turns: 0 });
        } else {
            self.leave(key, Left { tokens, rotated: false });
        }
    }

    fn leave(&mut self, key: Key, left: Left) {
        self.left_tokens += u64::from(left.tokens);
        self.left.put(key, left);
    }

    /// Takes a conversation out of the idle lists. Returns its turns since it got its place, and whether it has it still.
    fn take_idle(&mut self, key: &Key) -> (u32, bool) {
        if let Some(lingering) = self.lingering.pop(key) {
            self.lingering_tokens -= u64::from(lingering.tokens);
            return (lingering.turns, true);
        }
        if let Some(left) = self.left.pop(key) {
            self.left_tokens -= u64::from(left.tokens);
        }
        (0, false)
    }
}
