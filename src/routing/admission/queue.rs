use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

use lru::LruCache;

use crate::routing::{Ask, Key, Time};

/// A parked request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(Place);

/// A conversation whose request left the line keeps its place in it for this long.
pub const PLACE_KEPT: Duration = Duration::from_secs(60);

/// Places kept at most, where no more may wait than that.
const PLACES_MAX: usize = 4096;

/// A place in the line: the lower stands before the higher. Never 0, so that a conversation without one takes no more memory.
pub type Place = NonZeroU64;

/// Requests that wait for room: in the order in which their conversations came, and fairly between callers, each of whom has
/// as many go on at its turn as its weight says (weighted round robin).
pub(super) struct Queue {
    requests: BTreeMap<Ticket, Parked>,
    lines: HashMap<u64, BTreeMap<Place, Ticket>>,
    /// Callers with someone in line, the next one to be served first.
    callers: VecDeque<Serving>,
    kept: LruCache<Key, (Place, Time)>,
    /// Places given up because too many were kept.
    dropped: u64,
    /// The last place that was given.
    last: Place,
}

/// A caller's turn to be served.
struct Serving {
    caller: u64,
    /// Requests of it that went on at this turn.
    served: u32,
}

/// What is kept of a parked request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub ask: Ask,
    pub key: Key,
    pub since: Time,
    pub place: Place,
}

impl Queue {
    pub fn new() -> Queue {
        Queue {
            requests: BTreeMap::new(),
            lines: HashMap::new(),
            callers: VecDeque::new(),
            kept: LruCache::unbounded(),
            dropped: 0,
            last: Place::MIN,
        }
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Parks a request of a conversation: at the place that was kept for it, or at the one that it `had` when it was
    /// admitted, or at the end.
    pub fn park(&mut self, ask: Ask, key: Key, had: Option<Place>, now: Time) -> Ticket {
        let number = self.number();
        let place = match self.kept.pop(&key) {
            Some((place, left)) if now.since(left) <= PLACE_KEPT => place,
            _ => had.unwrap_or(number),
        };
        let ticket = Ticket(number);
        let line = self.lines.entry(ask.caller).or_default();
        if line.is_empty() {
            self.callers.push_back(Serving { caller: ask.caller, served: 0 });
        }
        // Two requests of a conversation may come for one place.
        let place = if line.contains_key(&place) { number } else { place };
        line.insert(place, ticket);
        self.requests.insert(ticket, Parked { ask, key, since: now, place });
        ticket
    }

    /// The next place at the end of the line, for someone who need not wait there.
    pub fn number(&mut self) -> Place {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// Who is to be admitted next.
    pub fn first(&self) -> Option<(Ticket, Parked)> {
        let line = self.lines.get(&self.callers.front()?.caller)?;
        let (_, ticket) = line.first_key_value()?;
        Some((*ticket, *self.requests.get(ticket)?))
    }

    /// Who has waited longest, where that is at least `wait`.
    pub fn overdue(&self, wait: Duration, now: Time) -> Option<(Ticket, Parked)> {
        let (ticket, parked) = self.requests.first_key_value()?;
        (now.since(parked.since) >= wait).then_some((*ticket, *parked))
    }

    /// Takes a request out of the line that goes on to a replica; once its caller has had its weight, it is the next
    /// caller's turn.
    pub fn admit(&mut self, ticket: Ticket) -> Option<Parked> {
        let parked = self.remove(ticket)?;
        let at = self.callers.iter().position(|turn| turn.caller == parked.ask.caller);
        if let Some(turn) = at.and_then(|at| self.callers.get_mut(at)) {
            turn.served += 1;
        }
        if let Some(at) = at.filter(|at| self.callers[*at].served >= parked.ask.weight) {
            self.callers.remove(at);
            self.callers.push_back(Serving { caller: parked.ask.caller, served: 0 });
        }
        Some(parked)
    }

    /// Takes a request out of the line whose client left or was refused, and keeps its conversation's place for a while; of as
    /// many as may wait at once, `parked_max`.
    pub fn leave(&mut self, ticket: Ticket, parked_max: usize, now: Time) -> Option<Parked> {
        let parked = self.remove(ticket)?;
        // Of two requests of a conversation, the better place.
        let place = self.kept.peek(&parked.key).map_or(parked.place, |(kept, _)| parked.place.min(*kept));
        self.kept.put(parked.key, (place, now));
        while self.kept.peek_lru().is_some_and(|(_, (_, left))| now.since(*left) > PLACE_KEPT) {
            self.kept.pop_lru();
        }
        while self.kept.len() > PLACES_MAX.max(parked_max) {
            self.kept.pop_lru();
            self.dropped += 1;
        }
        Some(parked)
    }

    /// Whether a place in the line is kept for this conversation.
    pub fn keeps_place(&self, key: &Key, now: Time) -> bool {
        self.kept.peek(key).is_some_and(|(_, left)| now.since(*left) <= PLACE_KEPT)
    }

    /// Places given up because too many were kept.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How long the one in line for longest has waited.
    pub fn longest_wait(&self, now: Time) -> Duration {
        self.requests.first_key_value().map_or(Duration::ZERO, |(_, parked)| now.since(parked.since))
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Parked> {
        let parked = self.requests.remove(&ticket)?;
        let caller = parked.ask.caller;
        let line = self.lines.get_mut(&caller)?;
        line.remove(&parked.place);
        if line.is_empty() {
            self.lines.remove(&caller);
            self.callers.retain(|turn| turn.caller != caller);
        }
        Some(parked)
    }
}
