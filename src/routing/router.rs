use std::borrow::Cow;
use std::time::Duration;

use super::load::{busy, fewest_in_flight, least_loaded};
use super::replica::{Engine, Replica};
use super::{Conversations, Decision, DecisionCounts, EngineSpec, Key, ReplicaId, State, Target, Time};

/// How one model is routed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether conversations have homes. Off: by load alone, and an engine chooses among its ranks itself.
    pub affinity: bool,
    /// Requests in flight on a home from which on its next request goes elsewhere; at least 1.
    pub spill_threshold: u32,
    /// A conversation unused for this long is forgotten.
    pub idle_forget: Duration,
    /// Conversations kept at most; the longest unused is forgotten first.
    pub conversations_max: usize,
}

/// `max_num_seqs` where it is not known: vLLM's own default. It stands in no metric of the engine.
pub const MAX_NUM_SEQS_ASSUMED: u32 = 256;

/// The rule's automatic spill threshold: a quarter of what an engine computes at once, and at least 1.
pub fn auto_spill_threshold(max_num_seqs: Option<u32>) -> u32 {
    (max_num_seqs.unwrap_or(MAX_NUM_SEQS_ASSUMED) / 4).max(1)
}

/// What a request asks of the router.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Its conversation, where one could be told.
    pub key: Option<Key>,
    /// The data-parallel rank that the client named.
    pub pin: Pin,
}

/// A data-parallel rank named by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// None named.
    None,
    /// This one.
    Rank(u32),
    /// Something that is no number: the engine will say so.
    Invalid,
}

/// Where a request goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub target: Target,
    pub decision: Decision,
}

/// What the failure of a try says about the replica tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It could not be reached: a conversation at home there moves to where the next try goes.
    Unreachable,
    /// It is there but would not serve: the conversation's home stays.
    Refused,
}

/// Decides where the requests of one model go, and keeps what the decisions rest on.
///
/// Every [`Router::route`] and [`Router::retry`] counts the request in where it goes, and is to be matched by one
/// [`Router::finish`]. `bench/` drives this in virtual time; the proxy calls it under a lock.
pub struct Router {
    pub(super) settings: Settings,
    /// The engines configured and those that still have something in flight: an index stays valid while a request is.
    pub(super) engines: Vec<Engine>,
    /// The engines configured now, in the order in which ties are resolved.
    pub(super) order: Vec<usize>,
    /// The replicas to choose from while nothing has been tried: kept, because most decisions that look at all of them
    /// look at these.
    pub(super) candidates: Vec<ReplicaId>,
    pub(super) replicas: Vec<Replica>,
    pub(super) conversations: Conversations,
    /// Requests by decision that are counted on no replica: those whose rank the engine chose, and those on engines gone.
    pub(super) unranked: DecisionCounts,
    pub(super) failed_over: u64,
}

impl Router {
    /// A router over `engines`, in the order in which ties are resolved.
    pub fn new(settings: Settings, engines: &[EngineSpec]) -> Router {
        let mut router = Router {
            settings,
            engines: Vec::new(),
            order: Vec::new(),
            candidates: Vec::new(),
            replicas: Vec::new(),
            conversations: Conversations::default(),
            unranked: DecisionCounts::default(),
            failed_over: 0,
        };
        router.set_engines(engines);
        router
    }

    /// Chooses where a request goes and counts it in there. None: the model has no engine.
    pub fn route(&mut self, ask: &Ask, now: Time) -> Option<Route> {
        self.conversations.expire(now, self.settings.idle_forget);
        let route = match ask.pin {
            Pin::None if !self.settings.affinity => self.unrouted(&[], now),
            Pin::None => self.by_conversation(ask.key, now),
            Pin::Rank(rank) if self.has_rank(rank) => self.pinned(ask.key, rank, &[], now),
            Pin::Rank(_) | Pin::Invalid => self.mispinned(ask.key, now),
        }?;
        if let (Pin::Rank(_) | Pin::Invalid, Some(key)) = (ask.pin, ask.key)
            && let Some(home) = self.conversations.home(&key)
        {
            // A turn that names its rank moves no home, but the conversation goes on.
            self.conversations.put(key, home, now, self.settings.conversations_max);
        }
        self.count_in(&route.target);
        let decisions = match route.target.replica {
            Some(replica) => &mut self.replicas[replica.index()].decisions,
            None => &mut self.unranked,
        };
        decisions.count(route.decision);
        Some(route)
    }

    /// Chooses where a request goes next that failed on every engine in `tried` (the last one just now), and counts it
    /// in there. The decision stays. None: no other engine is left.
    pub fn retry(&mut self, ask: &Ask, tried: &[usize], why: Retry, now: Time) -> Option<Target> {
        let target = match ask.pin {
            Pin::Rank(rank) if self.has_rank(rank) => self.pinned(ask.key, rank, tried, now)?.target,
            Pin::None if self.settings.affinity => self.target(self.least_loaded(tried, now)?),
            Pin::None | Pin::Invalid | Pin::Rank(_) => self.unrouted(tried, now)?.target,
        };
        if let (Retry::Unreachable, Some(key), Some(replica)) = (why, ask.key, target.replica)
            && let Some(home) = self.conversations.home(&key)
            && tried.last() == Some(&self.replicas[home.index()].engine)
        {
            self.conversations.put(key, replica, now, self.settings.conversations_max);
        }
        self.failed_over += 1;
        self.count_in(&target);
        Some(target)
    }

    /// Where a request goes that follows its conversation but is no turn of it (counting tokens, rendering a prompt):
    /// home, or the least loaded replica. A rank that the client named, and affinity off, hold as for a turn. Counts
    /// nothing.
    pub fn follow(&self, ask: &Ask, tried: &[usize], now: Time) -> Option<Target> {
        match ask.pin {
            Pin::Rank(rank) if self.has_rank(rank) => {
                return self.pinned(ask.key, rank, tried, now).map(|route| route.target);
            }
            Pin::None if self.settings.affinity => {}
            Pin::None | Pin::Invalid | Pin::Rank(_) => return self.unrouted(tried, now).map(|route| route.target),
        }
        let home =
            ask.key.and_then(|key| self.usable_home(&key)).filter(|home| !tried.contains(&self.engine_of(*home)));
        home.or_else(|| self.least_loaded(tried, now)).map(|replica| self.target(replica))
    }

    /// Counts a request out that [`Router::route`] or [`Router::retry`] counted in.
    pub fn finish(&mut self, target: &Target) {
        let count = match target.replica {
            Some(replica) => &mut self.replicas[replica.index()].in_flight,
            None => &mut self.engines[target.engine].unranked_in_flight,
        };
        debug_assert!(*count > 0, "a request left twice");
        *count = count.saturating_sub(1);
    }

    fn by_conversation(&mut self, key: Option<Key>, now: Time) -> Option<Route> {
        let Some(key) = key else {
            let target = self.target(self.least_loaded(&[], now)?);
            return Some(Route { target, decision: Decision::Balanced });
        };
        let (home, replica, decision) = match self.usable_home(&key) {
            Some(home) => {
                let replica = self.home_or_spill(home);
                let decision = if replica == home { Decision::Sticky } else { Decision::Spilled };
                (home, replica, decision)
            }
            None => {
                let home = self.least_loaded(&[], now)?;
                (home, home, Decision::Placed)
            }
        };
        self.conversations.put(key, home, now, self.settings.conversations_max);
        Some(Route { target: self.target(replica), decision })
    }

    /// Home while it has fewer requests in flight than the spill threshold, else the replica with the fewest.
    fn home_or_spill(&self, home: ReplicaId) -> ReplicaId {
        if self.replicas[home.index()].in_flight < self.settings.spill_threshold {
            return home;
        }
        fewest_in_flight(&self.candidates, &self.replicas, home).unwrap_or(home)
    }

    /// Whether an engine that is configured has this rank.
    fn has_rank(&self, rank: u32) -> bool {
        self.order.iter().any(|index| rank < self.engines[*index].spec.data_parallel_size)
    }

    /// The rank that the client named: in its home's engine, else in the least busy engine that has it.
    fn pinned(&self, key: Option<Key>, rank: u32, tried: &[usize], now: Time) -> Option<Route> {
        let with_rank = |state: State| {
            let engines = self.order.iter().filter(|index| !tried.contains(index)).map(|index| &self.engines[*index]);
            engines.filter(move |engine| engine.state == state && rank < engine.spec.data_parallel_size)
        };
        // Only these can take it, so those that are out are asked where no other of them is left.
        let engine = self
            .home_engine(key, tried)
            .filter(|engine| rank < engine.spec.data_parallel_size)
            .or_else(|| self.least_busy(with_rank(State::Up), now))
            .or_else(|| self.least_busy(with_rank(State::Out), now))?;
        let replica = engine.ids().nth(rank as usize)?;
        let target = Target { rank: Some(rank), ..self.target(replica) };
        Some(Route { target, decision: Decision::ClientPinned })
    }

    /// A rank that no engine has goes to the home's engine all the same, which will say what is wrong with it.
    fn mispinned(&self, key: Option<Key>, now: Time) -> Option<Route> {
        match self.home_engine(key, &[]) {
            Some(engine) => Some(self.unranked(engine)),
            None => self.unrouted(&[], now),
        }
    }

    fn unrouted(&self, tried: &[usize], now: Time) -> Option<Route> {
        self.least_busy(self.usable(tried), now).map(|engine| self.unranked(engine))
    }

    fn unranked(&self, engine: &Engine) -> Route {
        let first = ReplicaId(engine.replicas.start);
        let index = self.engine_of(first);
        let replica = (engine.replicas.len() == 1).then_some(first);
        Route { target: Target { engine: index, replica, rank: None }, decision: Decision::Unrouted }
    }

    fn home_engine(&self, key: Option<Key>, tried: &[usize]) -> Option<&Engine> {
        let index = self.engine_of(self.usable_home(&key?)?);
        (!tried.contains(&index)).then(|| &self.engines[index])
    }

    /// The home of a conversation, unless it is out of use while others are not.
    fn usable_home(&self, key: &Key) -> Option<ReplicaId> {
        let home = self.conversations.home(key)?;
        match self.engines[self.engine_of(home)].state {
            State::Up => Some(home),
            State::Out => (!self.any_up(&[])).then_some(home),
            State::Draining => None,
        }
    }

    fn least_loaded(&self, tried: &[usize], now: Time) -> Option<ReplicaId> {
        let candidates = match tried {
            [] => Cow::Borrowed(&self.candidates),
            _ => Cow::Owned(self.usable(tried).flat_map(Engine::ids).collect()),
        };
        least_loaded(&candidates, &self.replicas, &self.conversations, now)
    }

    fn least_busy<'a>(&self, engines: impl Iterator<Item = &'a Engine>, now: Time) -> Option<&'a Engine> {
        engines
            .map(|engine| (busy(engine, &self.replicas, now), engine))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, engine)| engine)
    }

    /// The engines to choose from: those up and not yet tried; with none of them left, those out and not yet tried.
    fn usable_indices(&self, tried: &[usize]) -> impl Iterator<Item = usize> {
        let state = if self.any_up(tried) { State::Up } else { State::Out };
        let usable = move |index: &usize| self.engines[*index].state == state && !tried.contains(index);
        self.order.iter().copied().filter(usable)
    }

    /// Whether an engine is up that is not among those tried.
    pub fn any_up(&self, tried: &[usize]) -> bool {
        self.order.iter().any(|index| self.engines[*index].state == State::Up && !tried.contains(index))
    }

    pub(super) fn usable(&self, tried: &[usize]) -> impl Iterator<Item = &Engine> {
        self.usable_indices(tried).map(|index| &self.engines[index])
    }

    fn engine_of(&self, replica: ReplicaId) -> usize {
        self.replicas[replica.index()].engine
    }

    /// A replica as a target; its rank is named only to an engine that has several.
    pub(super) fn target(&self, replica: ReplicaId) -> Target {
        let engine = self.engine_of(replica);
        let ranked = self.engines[engine].spec.data_parallel_size > 1;
        Target { engine, replica: Some(replica), rank: ranked.then_some(self.replicas[replica.index()].rank) }
    }

    fn count_in(&mut self, target: &Target) {
        match target.replica {
            Some(replica) => self.replicas[replica.index()].in_flight += 1,
            None => self.engines[target.engine].unranked_in_flight += 1,
        }
    }
}
