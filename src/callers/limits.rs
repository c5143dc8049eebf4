//! What one caller uses at this moment, against what it may.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::Caller;
use crate::routing::{Key, LIVE, Time};

/// A limit that was reached, and the whole seconds after which another try makes sense, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    Rate { retry_after_s: u64 },
    InFlight { retry_after_s: u64 },
    Conversations { retry_after_s: u64 },
}

impl Exceeded {
    /// Whole seconds after which another try makes sense.
    pub fn retry_after_s(self) -> u64 {
        match self {
            Exceeded::Rate { retry_after_s }
            | Exceeded::InFlight { retry_after_s }
            | Exceeded::Conversations { retry_after_s } => retry_after_s,
        }
    }

    /// The setting that was reached.
    pub fn limit(self) -> &'static str {
        match self {
            Exceeded::Rate { .. } => "requests_per_minute",
            Exceeded::InFlight { .. } => "in_flight",
            Exceeded::Conversations { .. } => "conversations",
        }
    }
}

/// A minute's requests may come at once; from then on they are due again one by one.
#[derive(Clone, Copy)]
struct Bucket {
    /// Requests due.
    tokens: f64,
    at: Time,
}

/// A conversation that a caller holds: one that was used in the last five minutes.
struct Held {
    in_flight: u32,
    used: Time,
}

/// What a caller uses.
#[derive(Default)]
pub struct Limits(Mutex<Used>);

struct Used {
    bucket: Bucket,
    in_flight: u32,
    conversations: HashMap<Key, Held>,
}

impl Default for Used {
    fn default() -> Used {
        // As full as the limit of the moment allows.
        let bucket = Bucket { tokens: f64::INFINITY, at: Time(0) };
        Used { bucket, in_flight: 0, conversations: HashMap::new() }
    }
}

impl Limits {
    /// Counts a request in.
    ///
    /// # Errors
    /// If that is one too many, at once or in this minute.
    pub fn enter(&self, caller: &Caller, now: Time) -> Result<(), Exceeded> {
        let mut used = self.0.lock();
        used.bucket = used.with_another(caller, now)?;
        used.in_flight += 1;
        Ok(())
    }

    /// Whether a request could be counted in, and its conversation. Counts nothing.
    ///
    /// # Errors
    /// If not.
    pub fn would_take(&self, caller: &Caller, conversation: Option<Key>, now: Time) -> Result<(), Exceeded> {
        let used = self.0.lock();
        used.with_another(caller, now)?;
        conversation.map_or(Ok(()), |conversation| used.has_room(caller, conversation, now))
    }

    /// Counts the conversation of a request in, once for all of its turns.
    ///
    /// # Errors
    /// If that is one too many.
    pub fn converse(&self, caller: &Caller, conversation: Key, now: Time) -> Result<(), Exceeded> {
        let Some(most) = caller.conversations else { return Ok(()) };
        let mut used = self.0.lock();
        used.has_room(caller, conversation, now)?;
        let held = &mut used.conversations;
        if held.len() >= most as usize {
            held.retain(|key, held| *key == conversation || held.left(now) > Duration::ZERO);
        }
        held.entry(conversation).or_insert(Held { in_flight: 0, used: now }).in_flight += 1;
        Ok(())
    }

    /// Counts a request out, and its conversation where it was counted in.
    pub fn leave(&self, conversation: Option<Key>, now: Time) {
        let mut used = self.0.lock();
        used.in_flight = used.in_flight.saturating_sub(1);
        if let Some(held) = conversation.and_then(|key| used.conversations.get_mut(&key)) {
            held.in_flight = held.in_flight.saturating_sub(1);
            held.used = now;
        }
    }

    /// Requests counted in and not yet out.
    pub fn in_flight(&self) -> u32 {
        self.0.lock().in_flight
    }
}

impl Used {
    /// The bucket as another request leaves it.
    fn with_another(&self, caller: &Caller, now: Time) -> Result<Bucket, Exceeded> {
        if caller.in_flight.is_some_and(|most| self.in_flight >= most) {
            return Err(Exceeded::InFlight { retry_after_s: 1 });
        }
        self.bucket.less_one(caller.requests_per_minute, now)
    }

    /// Whether a conversation is held, or one more may be.
    fn has_room(&self, caller: &Caller, conversation: Key, now: Time) -> Result<(), Exceeded> {
        let held = &self.conversations;
        let most = caller.conversations.map_or(usize::MAX, |most| most as usize);
        if held.len() < most || held.contains_key(&conversation) {
            return Ok(());
        }
        let left = || held.values().map(|held| held.left(now)).filter(|left| *left > Duration::ZERO);
        if left().count() < most {
            return Ok(());
        }
        let soonest = left().min().unwrap_or_default();
        Err(Exceeded::Conversations { retry_after_s: soonest.as_millis().div_ceil(1000).max(1) as u64 })
    }
}

impl Bucket {
    fn less_one(self, per_minute: Option<u32>, now: Time) -> Result<Bucket, Exceeded> {
        let Some(per_minute) = per_minute.map(f64::from) else { return Ok(self) };
        let due = now.since(self.at).as_secs_f64() * per_minute / 60.0;
        let tokens = (self.tokens + due).min(per_minute);
        if tokens < 1.0 {
            let wait_s = (1.0 - tokens) * 60.0 / per_minute;
            return Err(Exceeded::Rate { retry_after_s: (wait_s.ceil() as u64).max(1) });
        }
        Ok(Bucket { tokens: tokens - 1.0, at: now })
    }
}

impl Held {
    /// How long it is still held if nothing comes.
    fn left(&self, now: Time) -> Duration {
        if self.in_flight > 0 { LIVE } else { LIVE.saturating_sub(now.since(self.used)) }
    }
}
