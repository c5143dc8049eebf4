use std::num::NonZeroU64;
use std::time::Duration;

use lru::LruCache;

use super::admission::Place;
use super::{Key, ReplicaId, Time};

/// A conversation used within this time is live: it counts in the load of its home (the rule's 300 s).
pub const LIVE: Duration = Duration::from_secs(300);

/// Which replica each conversation lives on: the session-affinity table.
///
/// Two lists, each in order of last use, hold the live and the idle conversations. So the number of live ones on a
/// replica is always at hand, and what is to be forgotten always stands at the end of a list.
pub struct Conversations {
    live: LruCache<Key, Conversation>,
    idle: LruCache<Key, Conversation>,
    counts: Vec<Counts>,
    evicted: u64,
}

/// There may be a million of them, so it is narrow.
#[derive(Clone, Copy)]
pub(super) struct Conversation {
    pub home: ReplicaId,
    /// Tokens of it after its last turn; 0 where no engine has said, and never more than this type can say.
    size: u32,
    pub last_used: Time,
    /// The end of its last turn; another may be in flight since.
    ended: Option<Ended>,
    /// The place in the line at which it was admitted, until it has had its turns.
    place: Option<Place>,
}

const _: () = assert!(size_of::<Conversation>() <= 32);

impl Conversation {
    /// Tokens of it after its last turn; 0 where no engine has said.
    pub fn size(&self) -> u64 {
        self.size.into()
    }

    /// When a turn of it last ended.
    pub fn last_ended(&self) -> Option<Time> {
        self.ended.map(Ended::moment)
    }
}

/// When a turn ended, in milliseconds, and in the lowest bit whether the pause since then is still to be noted. One is added,
/// so that a conversation of which no turn has ended takes no more memory.
#[derive(Clone, Copy)]
struct Ended(NonZeroU64);

impl Ended {
    fn new(moment: Time, pauses: bool) -> Ended {
        let moment = moment.0.min(u64::MAX >> 2);
        Ended(NonZeroU64::MIN.saturating_add(moment << 1 | u64::from(pauses)))
    }

    fn moment(self) -> Time {
        Time((self.0.get() - 1) >> 1)
    }

    fn pauses(self) -> bool {
        (self.0.get() - 1) & 1 == 1
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    live: u32,
    all: u32,
}

impl Default for Conversations {
    fn default() -> Self {
        Conversations { live: LruCache::unbounded(), idle: LruCache::unbounded(), counts: Vec::new(), evicted: 0 }
    }
}

impl Conversations {
    /// Conversations in the table.
    pub fn len(&self) -> usize {
        self.live.len() + self.idle.len()
    }

    /// Whether the table holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Conversations pushed out by the limit before they were due to be forgotten.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The home of a conversation, if it has one. Not a use of it.
    pub fn home(&self, key: &Key) -> Option<ReplicaId> {
        self.get(key).map(|conversation| conversation.home)
    }

    /// Tokens of a conversation after its last turn, where an engine has said.
    pub fn size(&self, key: &Key) -> Option<u64> {
        self.get(key).map(Conversation::size).filter(|size| *size > 0)
    }

    /// The place in the line at which a conversation was admitted, until it has had its turns.
    pub(super) fn place(&self, key: &Key) -> Option<Place> {
        self.get(key)?.place
    }

    /// Notes the place in the line at which a conversation was admitted.
    pub(super) fn set_place(&mut self, key: &Key, place: Option<Place>) {
        if let Some(conversation) = self.live.peek_mut(key).or_else(|| self.idle.peek_mut(key)) {
            conversation.place = place;
        }
    }

    /// When a turn of a conversation last ended.
    pub fn last_ended(&self, key: &Key) -> Option<Time> {
        self.get(key)?.last_ended()
    }

    /// How long a conversation has paused since its last turn ended. Asked again before its next one ends, nothing: what
    /// it waits for then is room.
    pub(super) fn take_pause(&mut self, key: &Key, now: Time) -> Option<Duration> {
        let conversation = self.live.peek_mut(key).or_else(|| self.idle.peek_mut(key))?;
        let ended = conversation.ended.filter(|ended| ended.pauses())?.moment();
        conversation.ended = Some(Ended::new(ended, false));
        Some(now.since(ended))
    }

    /// Notes the end of a turn, after which the conversation has `size` tokens, where the engine says so.
    pub fn ended(&mut self, key: &Key, size: Option<u64>, now: Time) {
        if let Some(conversation) = self.live.peek_mut(key).or_else(|| self.idle.peek_mut(key)) {
            conversation.ended = Some(Ended::new(now, true));
            conversation.size = size.map_or(conversation.size, narrow);
        }
    }

    /// Conversations at home on `replica` that were used within [`LIVE`], as of the last [`Conversations::expire`].
    pub fn live_on(&self, replica: ReplicaId) -> u32 {
        self.counts.get(replica.index()).map_or(0, |counts| counts.live)
    }

    /// Conversations at home on `replica`.
    pub fn homed_on(&self, replica: ReplicaId) -> u32 {
        self.counts.get(replica.index()).map_or(0, |counts| counts.all)
    }

    /// Notes a turn of the conversation at `home`, which becomes its home if it was another. Pushes the longest unused
    /// conversations out until at most `limit` remain. Returns the home that it had.
    pub fn put(&mut self, key: Key, home: ReplicaId, now: Time, limit: usize) -> Option<ReplicaId> {
        let known = self.remove(&key);
        while self.len() >= limit.max(1) {
            self.evict();
        }
        let new = Conversation { home, size: 0, last_used: now, ended: None, place: None };
        self.live.put(key, known.map_or(new, |known| Conversation { home, last_used: now, ..known }));
        let counts = self.counts_mut(home);
        counts.live += 1;
        counts.all += 1;
        known.map(|known| known.home)
    }

    /// Every conversation, the longest unused first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Conversation)> {
        self.idle.iter().rev().chain(self.live.iter().rev())
    }

    /// Takes back a conversation that was known before. To be called for the longest unused first.
    pub(super) fn restore(
        &mut self,
        key: Key,
        home: ReplicaId,
        last_used: Time,
        last_ended: Time,
        size: u64,
        now: Time,
    ) {
        self.remove(&key);
        let live = now.since(last_used) <= LIVE;
        let ended = Some(Ended::new(last_ended, false));
        let conversation = Conversation { home, size: narrow(size), last_used, ended, place: None };
        if live { &mut self.live } else { &mut self.idle }.put(key, conversation);
        let counts = self.counts_mut(home);
        counts.live += u32::from(live);
        counts.all += 1;
    }

    /// Lets live conversations grow idle and forgets those unused for `idle_forget`.
    pub fn expire(&mut self, now: Time, idle_forget: Duration) {
        let past = |conversation: &Conversation, age| now.since(conversation.last_used) > age;
        while self.live.peek_lru().is_some_and(|(_, conversation)| past(conversation, LIVE.min(idle_forget))) {
            let Some((key, conversation)) = self.live.pop_lru() else { break };
            self.counts_mut(conversation.home).live -= 1;
            self.idle.put(key, conversation);
        }
        while self.idle.peek_lru().is_some_and(|(_, conversation)| past(conversation, idle_forget)) {
            let Some((_, conversation)) = self.idle.pop_lru() else { break };
            self.counts_mut(conversation.home).all -= 1;
        }
    }

    /// Forgets every conversation at home on `replica`; returns them.
    pub fn forget_home(&mut self, replica: ReplicaId) -> Vec<Key> {
        let homed: Vec<Key> = self
            .live
            .iter()
            .chain(self.idle.iter())
            .filter(|(_, conversation)| conversation.home == replica)
            .map(|(key, _)| *key)
            .collect();
        for key in &homed {
            self.remove(key);
        }
        homed
    }

    fn get(&self, key: &Key) -> Option<&Conversation> {
        self.live.peek(key).or_else(|| self.idle.peek(key))
    }

    fn remove(&mut self, key: &Key) -> Option<Conversation> {
        let (conversation, was_live) = match self.live.pop(key) {
            Some(conversation) => (conversation, true),
            None => (self.idle.pop(key)?, false),
        };
        let counts = self.counts_mut(conversation.home);
        counts.live -= u32::from(was_live);
        counts.all -= 1;
        Some(conversation)
    }

    fn evict(&mut self) {
        let oldest = self.idle.peek_lru().or_else(|| self.live.peek_lru()).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.remove(&key);
            self.evicted += 1;
        }
    }

    fn counts_mut(&mut self, replica: ReplicaId) -> &mut Counts {
        if self.counts.len() <= replica.index() {
            self.counts.resize(replica.index() + 1, Counts::default());
        }
        &mut self.counts[replica.index()]
    }
}

fn narrow(size: u64) -> u32 {
    size.try_into().unwrap_or(u32::MAX)
}
