use lru::LruCache;

use super::admission::Line;
use super::away::Away;
use super::cache::{CacheOutcome, Caches, CapacitySource};
use super::plan::Plan;
use super::replica::{Engine, Replica};
use super::returning::Returning;
use super::stored::{Kept, StoredTable};
use super::{
    Ask, Attempt, Conversations, Decision, DecisionCounts, EngineSpec, Key, Pin, ReplicaId, Settings, State, Target,
    Time, Tokens, Turn, Verdict, Why,
};

/// Decides where the requests of one model go, and keeps what the decisions rest on.
///
/// Every [`Turn`] that comes out of it ([`Router::route`], [`Router::woken`], [`Router::retry`]) is counted in where it
/// goes, and is to be matched by one [`Router::finish`], or by a [`Router::retry`] that moves it. `bench/` drives this in
/// virtual time; the proxy calls it under a lock.
pub struct Router {
    pub(super) settings: Settings,
    /// The engines configured and those that still have something in flight: an index stays valid while a request is.
    pub(super) engines: Vec<Engine>,
    /// The engines configured now, in the order in which ties are resolved.
    pub(super) order: Vec<usize>,
    /// The best state that any of them is in.
    pub(super) best: Option<State>,
    /// The replicas to choose from while nothing has been tried: kept, because most decisions that look at all of them
    /// look at these.
    pub(super) candidates: Vec<ReplicaId>,
    pub(super) replicas: Vec<Replica>,
    pub(super) conversations: Conversations,
    /// Why conversations that lost their home lost it, until their next turn.
    pub(super) lost: LruCache<Key, CacheOutcome>,
    /// Of those, the ones whose reason was forgotten because they were too many.
    pub(super) lost_forgotten: u64,
    pub(super) caches: Caches,
    pub(super) line: Line,
    pub(super) stored: StoredTable,
    /// Requests by decision that are counted on no replica: those whose rank the engine chose, and those on engines gone.
    pub(super) unranked: DecisionCounts,
    /// When the first of the engines left alone is to be tried again.
    pub(super) next_trial: Option<Time>,
    pub(super) returning: Returning,
    pub(super) away: Away,
    pub(super) failed_over: u64,
    /// Requests without a conversation so far: each takes room in a cache under a key of its own.
    keyless: u64,
}

impl Router {
    /// A router over `engines`, in the order in which ties are resolved.
    pub fn new(settings: Settings, engines: &[EngineSpec]) -> Router {
        let mut router = Router {
            settings,
            engines: Vec::new(),
            order: Vec::new(),
            best: None,
            candidates: Vec::new(),
            replicas: Vec::new(),
            conversations: Conversations::default(),
            lost: LruCache::unbounded(),
            lost_forgotten: 0,
            caches: Caches::new(),
            line: Line::new(),
            stored: StoredTable::new(),
            unranked: DecisionCounts::default(),
            next_trial: None,
            returning: Returning::default(),
            away: Away::new(),
            failed_over: 0,
            keyless: 0,
        };
        router.set_engines(engines, Time::default());
        router
    }

    /// Chooses where a request goes and counts it in there, or parks it. None: the model has no engine.
    pub fn route(&mut self, ask: &Ask, now: Time) -> Option<Verdict> {
        self.let_time_pass(now);
        if let Some(key) = self.told_conversation(ask) {
            self.note_pause(&key, now);
            self.observe(ask, &key, now);
        }
        Some(match self.plan(ask, now)? {
            Plan::Apart(chosen) => Verdict::Go(self.send_apart(ask, chosen, now)),
            Plan::Home(key, home) => Verdict::Go(self.send_home(ask, key, home, now)),
            Plan::Place(key, fit) => Verdict::Go(self.place(ask, key, fit, now)),
            Plan::Admit(key, fit) => Verdict::Go(self.admit_at_once(ask, key, fit, now)),
            Plan::Park(key) => Verdict::Parked(self.park(ask, key, now)),
            Plan::Full(refusal) => Verdict::Refused(self.refuse(refusal)),
            Plan::Gone => Verdict::Gone,
        })
    }

    pub(super) fn let_time_pass(&mut self, now: Time) {
        self.let_trials_come(now);
        self.conversations.expire(now, self.settings.idle_forget);
    }

    /// The conversation by which alone a request is to be routed.
    fn told_conversation(&self, ask: &Ask) -> Option<Key> {
        let free = ask.pin == Pin::None && self.kept(ask) == Kept::Unknown;
        ask.key.filter(|_| free && self.settings.affinity)
    }

    /// Sends a request where it says itself, or by load.
    pub(super) fn send_apart(&mut self, ask: &Ask, chosen: Chosen, now: Time) -> Turn {
        ask.stored.inspect(|key| self.stored.used(key));
        let home = ask.key.and_then(|key| self.conversations.home(&key));
        let free = ask.pin == Pin::None && self.kept(ask) == Kept::Unknown;
        if let (false, Some(key), Some(home)) = (free, ask.key, home) {
            // A turn that says where it goes moves no home, but the conversation goes on.
            self.live_at(key, home, now);
        }
        let at_home = home.is_some() && chosen.target.replica == home;
        let why_gone = match home {
            Some(_) if at_home => CacheOutcome::Evicted,
            Some(_) => CacheOutcome::Moved,
            None => CacheOutcome::FirstTurn,
        };
        self.begin(ask, chosen, why_gone, now)
    }

    /// Where a request goes that follows its conversation but is no turn of it (counting tokens, rendering a prompt):
    /// home, or the least loaded replica. What it names that an engine keeps, a rank that the client named, and affinity
    /// off, hold as for a turn. Counts nothing.
    pub fn follow(&self, ask: &Ask, tried: &[Attempt], now: Time) -> Option<Target> {
        if let Kept::At(target) = self.kept(ask) {
            return tried.is_empty().then_some(target);
        }
        match ask.pin {
            Pin::Rank(rank) if self.has_rank(rank) => {
                return self.pinned(ask.key, rank, tried, now).map(|chosen| chosen.target);
            }
            Pin::None if self.settings.affinity => {}
            Pin::None | Pin::Invalid | Pin::Rank(_) => return self.unrouted(tried, now).map(|chosen| chosen.target),
        }
        let home =
            ask.key.and_then(|key| self.usable_home(&key)).filter(|home| !self.has_tried(tried, self.engine_of(*home)));
        home.or_else(|| self.least_loaded(tried, now).map(|(replica, _)| replica)).map(|replica| self.target(replica))
    }

    /// The first byte of a streamed answer has come: the replica has read the prompt.
    pub fn began(&mut self, turn: &mut Turn, now: Time) {
        if let (Some(replica), Some(expectation)) = (turn.target.replica, &mut turn.expectation) {
            turn.first_byte.get_or_insert(now);
            self.caches.began(replica, expectation);
        }
    }

    /// Counts a request out, and learns from what the engine said of its tokens. Says what became of its conversation's
    /// cache, where it has one and the engine answered.
    pub fn finish(&mut self, turn: &Turn, tokens: Option<Tokens>, now: Time) -> Option<CacheOutcome> {
        self.count_out(&turn.target);
        if let Some(trial) = turn.trial {
            self.learn(turn.target.engine, |health| health.circuit.end_trial(trial));
        }
        let tokens = tokens.and_then(Tokens::plausible);
        let size = tokens.map(|tokens| tokens.prompt + tokens.completion);
        if turn.of_conversation {
            self.conversations.ended(&turn.key, size, now);
        }
        let (replica, mut expectation) = (turn.target.replica?, turn.expectation?);
        let waiting = self.line.parked() > 0;
        let mut outcome = None;
        if let Some(tokens) = tokens.filter(|_| turn.of_conversation) {
            if let Some(first_byte) = turn.first_byte {
                let seconds = first_byte.since(turn.sent).as_secs_f64();
                self.caches.note_first_byte(replica, &expectation, tokens, seconds);
            }
            let (capacity, source) = self.caches.capacity(replica, self.settings.admission.kv_cache_tokens);
            let known = capacity.filter(|_| source != CapacitySource::Learned);
            outcome = Some(self.caches.learn(&expectation, turn.bytes, tokens, known, waiting, now));
        }
        let turns_max = self.settings.admission.rotate.filter(|_| waiting);
        if self.caches.finish(replica, turn.key, &mut expectation, tokens, turns_max, now) {
            self.conversations.set_place(&turn.key, None);
        }
        self.cut(replica);
        outcome
    }

    /// Notes a turn of a conversation that lives at `home`. One that lived elsewhere needs its place there no more.
    pub(super) fn live_at(&mut self, key: Key, home: ReplicaId, now: Time) {
        let before = self.conversations.put(key, home, now, self.settings.conversations_max);
        if let Some(before) = before.filter(|before| *before != home) {
            self.caches.give_up(before, key);
        }
    }

    /// Counts a request in where it goes, under its decision.
    pub(super) fn begin(&mut self, ask: &Ask, chosen: Chosen, why_gone: CacheOutcome, now: Time) -> Turn {
        let decisions = match chosen.target.replica {
            Some(replica) => &mut self.replicas[replica.index()].decisions,
            None => &mut self.unranked,
        };
        decisions.count(chosen.decision);
        let placed = matches!(chosen.decision, Decision::Placed | Decision::Sticky);
        self.enter(ask, chosen, placed, why_gone, now)
    }

    pub(super) fn enter(&mut self, ask: &Ask, chosen: Chosen, placed: bool, why_gone: CacheOutcome, now: Time) -> Turn {
        let Chosen { target, decision, why } = chosen;
        let key = ask.key.unwrap_or_else(|| {
            self.keyless += 1;
            Key::new(self.keyless.into())
        });
        let expectation = target.replica.map(|replica| {
            let size = self.conversations.size(&key);
            let expectation = self.caches.start(replica, key, size, ask.bytes, placed, why_gone);
            self.cut(replica);
            expectation
        });
        let mut trial = None;
        self.learn(target.engine, |health| trial = health.circuit.begin_trial());
        // Last, so that nothing is counted in that is never counted out, whatever fault there may be above.
        self.count_in(&target);
        Turn {
            target,
            decision,
            why,
            key,
            of_conversation: ask.key.is_some(),
            bytes: ask.bytes,
            sent: now,
            first_byte: None,
            expectation,
            trial,
        }
    }

    /// Forgets the conversations at home on a replica, whose next turns will say why.
    pub(super) fn lose_home(&mut self, replica: ReplicaId, why: CacheOutcome) {
        for key in self.conversations.forget_home(replica) {
            self.lost.put(key, why);
        }
        while self.lost.len() > self.settings.conversations_max {
            self.lost.pop_lru();
            self.lost_forgotten += 1;
        }
        self.caches.clear(replica);
    }

    pub(super) fn cut(&mut self, replica: ReplicaId) {
        self.caches.cut(replica, self.settings.admission.kv_cache_tokens);
    }

    fn count_in(&mut self, target: &Target) {
        match target.replica {
            Some(replica) => self.replicas[replica.index()].in_flight += 1,
            None => self.engines[target.engine].unranked_in_flight += 1,
        }
    }

    fn count_out(&mut self, target: &Target) {
        let count = match target.replica {
            Some(replica) => &mut self.replicas[replica.index()].in_flight,
            None => &mut self.engines[target.engine].unranked_in_flight,
        };
        debug_assert!(*count > 0, "a request left twice");
        *count = count.saturating_sub(1);
    }
}

/// Where a request goes, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub target: Target,
    pub decision: Decision,
    pub why: Why,
}
