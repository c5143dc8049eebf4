//! The rule: where a request goes by its conversation, by the rank that its client named, or by load.

use std::borrow::Cow;

use super::admission::Fit;
use super::cache::{CacheOutcome, Standing};
use super::load::{busy, fewest_in_flight, least_loaded};
use super::replica::Engine;
use super::router::Chosen;
use super::{Ask, Attempt, Decision, Key, Newcomer, Placement, ReplicaId, Router, Target, Time, Turn, Why};

impl Router {
    /// The home of a conversation that need not wait for a place there.
    pub(super) fn home_to_go_to(&self, key: &Key) -> Option<ReplicaId> {
        self.usable_home(key).filter(|home| !self.admits() || self.is_settled(*home, key))
    }

    /// Sends a turn home, or elsewhere if too much is in flight there.
    pub(super) fn send_home(&mut self, ask: &Ask, key: Key, home: ReplicaId, now: Time) -> Turn {
        self.live_at(key, home, now);
        let chosen = self.home_or_spill(home, &key);
        let why_gone = match chosen.decision {
            Decision::Spilled => CacheOutcome::Spilled,
            _ => CacheOutcome::Evicted,
        };
        self.begin(ask, chosen, why_gone, now)
    }

    /// Gives a conversation a home, and sends its turn there.
    pub(super) fn place(&mut self, ask: &Ask, key: Key, fit: Fit, now: Time) -> Turn {
        let why_gone = self.why_gone(&key, fit.replica);
        let chosen = self.placed(&key, fit);
        self.lost.pop(&key);
        self.live_at(key, fit.replica, now);
        self.takes_one(fit.replica, now);
        self.begin(ask, chosen, why_gone, now)
    }

    /// What becomes of a conversation's cache that gets its home on `replica`.
    fn why_gone(&self, key: &Key, replica: ReplicaId) -> CacheOutcome {
        match self.conversations.home(key) {
            Some(before) if self.caches.standing(before, key) == Standing::Gone => CacheOutcome::Evicted,
            Some(before) if before == replica => CacheOutcome::Evicted,
            Some(_) => CacheOutcome::Moved,
            None => self.lost.peek(key).copied().unwrap_or(CacheOutcome::FirstTurn),
        }
    }

    pub(super) fn placed(&self, key: &Key, fit: Fit) -> Chosen {
        let why = Why::Placed { newcomer: self.newcomer(key), by: fit.by };
        Chosen { target: self.target(fit.replica), decision: Decision::Placed, why }
    }

    /// Why a conversation needs a home.
    pub(super) fn newcomer(&self, key: &Key) -> Newcomer {
        let Some(before) = self.conversations.home(key) else {
            return match self.lost.peek(key) {
                Some(CacheOutcome::ReplicaRestarted) => Newcomer::HomeRestarted,
                Some(_) => Newcomer::HomeRemoved,
                None => Newcomer::New,
            };
        };
        match (self.usable_home(key), self.caches.standing(before, key)) {
            (None, _) => Newcomer::HomeIs(self.state(self.engine_of(before))),
            (Some(_), Standing::Gone) => Newcomer::CacheGone,
            (Some(_), _) => Newcomer::HadItsTurns,
        }
    }

    /// A request that nothing tells apart.
    pub(super) fn balanced(&self, now: Time) -> Option<Chosen> {
        let (replica, load) = self.least_loaded(&[], now)?;
        Some(Chosen { target: self.target(replica), decision: Decision::Balanced, why: Why::NoConversation { load } })
    }

    /// Home while it has fewer requests in flight than the spill threshold, else the replica with the fewest.
    pub(super) fn home_or_spill(&self, home: ReplicaId, key: &Key) -> Chosen {
        let in_flight = |id: ReplicaId| self.replicas[id.index()].in_flight;
        let goes = |id, decision, why| Chosen { target: self.target(id), decision, why };
        let (at_home, threshold) = (in_flight(home), self.settings.spill_threshold);
        if at_home < threshold {
            let cached = self.caches.standing(home, key) != Standing::Gone;
            return goes(home, Decision::Sticky, Why::Home { in_flight: at_home, threshold, cached });
        }
        match fewest_in_flight(&self.candidates, &self.replicas, home) {
            Some(fewest) if fewest != home => {
                let why = Why::Spilled { home, in_flight: at_home, threshold, there: in_flight(fewest) };
                goes(fewest, Decision::Spilled, why)
            }
            _ => goes(home, Decision::Sticky, Why::NoneLessBusy { in_flight: at_home, threshold }),
        }
    }

    /// Whether an engine that is configured has this rank.
    pub(super) fn has_rank(&self, rank: u32) -> bool {
        self.order.iter().any(|index| rank < self.engines[*index].spec.data_parallel_size)
    }

    /// The rank that the client named: in its home's engine, else in the least busy engine that has it.
    pub(super) fn pinned(&self, key: Option<Key>, rank: u32, tried: &[Attempt], now: Time) -> Option<Chosen> {
        let has_rank = |engine: &Engine| rank < engine.spec.data_parallel_size;
        // Only these can take it, so the best of them are asked, however good the others are.
        let fit = |index: usize, engine: &Engine| has_rank(engine) && !self.has_tried(tried, index);
        let home = self.home_engine(key, tried).filter(|engine| has_rank(engine));
        let engine = home.or_else(|| self.least_busy(self.best(fit), now))?;
        let replica = engine.ids().nth(rank as usize)?;
        let target = Target { rank: Some(rank), ..self.target(replica) };
        Some(Chosen { target, decision: Decision::ClientPinned, why: Why::Pinned { rank } })
    }

    /// A rank that no engine has goes to the home's engine all the same, which will say what is wrong with it.
    pub(super) fn mispinned(&self, key: Option<Key>, now: Time) -> Option<Chosen> {
        match self.home_engine(key, &[]) {
            Some(engine) => Some(self.unranked(engine)),
            None => self.unrouted(&[], now),
        }
        .map(|chosen| Chosen { why: Why::NoSuchRank, ..chosen })
    }

    pub(super) fn unrouted(&self, tried: &[Attempt], now: Time) -> Option<Chosen> {
        self.least_busy(self.usable(tried), now).map(|engine| self.unranked(engine))
    }

    fn unranked(&self, engine: &Engine) -> Chosen {
        let first = ReplicaId(engine.replicas.start);
        let index = self.engine_of(first);
        let replica = (engine.replicas.len() == 1).then_some(first);
        Chosen {
            target: Target { engine: index, replica, rank: None },
            decision: Decision::Unrouted,
            why: Why::AffinityOff,
        }
    }

    fn home_engine(&self, key: Option<Key>, tried: &[Attempt]) -> Option<&Engine> {
        let index = self.engine_of(self.usable_home(&key?)?);
        (!self.has_tried(tried, index)).then(|| &self.engines[index])
    }

    /// The home of a conversation, unless others are in a better state.
    pub(super) fn usable_home(&self, key: &Key) -> Option<ReplicaId> {
        let home = self.conversations.home(key)?;
        let health = &self.engines[self.engine_of(home)].health;
        self.best.filter(|best| health.configured && health.may_take(*best)).map(|_| home)
    }

    /// The least loaded replica, and its load.
    pub(super) fn least_loaded(&self, tried: &[Attempt], now: Time) -> Option<(ReplicaId, f64)> {
        least_loaded(&self.left(tried), &self.replicas, &self.conversations, now)
    }

    /// The replicas that are left to choose from.
    fn left(&self, tried: &[Attempt]) -> Cow<'_, [ReplicaId]> {
        match tried {
            [] => Cow::Borrowed(&self.candidates),
            _ => Cow::Owned(self.usable(tried).flat_map(Engine::ids).collect()),
        }
    }

    /// Where a conversation gets its home by load. One that has just come back and needs a rest takes it only where all
    /// others are too busy.
    pub(super) fn by_load(&self, key: &Key, tried: &[Attempt], now: Time) -> Option<Fit> {
        let left = self.left(tried);
        let displaced = self.newcomer(key).is_displaced();
        if displaced || !self.returning.is_empty() {
            let busy = |id: &ReplicaId| self.replicas[id.index()].in_flight >= self.settings.spill_threshold;
            let peers = self.peers();
            let ready = left.iter().copied().filter(|id| !self.rests(*id, peers, now) && !busy(id));
            let ready: Vec<ReplicaId> = ready.collect();
            if displaced && let Some((replica, tokens)) = self.least_held(ready.iter().copied()) {
                return Some(Fit { replica, by: Placement::LeastHeld { tokens } });
            }
            if let Some((replica, load)) = least_loaded(&ready, &self.replicas, &self.conversations, now) {
                return Some(Fit { replica, by: Placement::LeastLoad { load } });
            }
        }
        let (replica, load) = least_loaded(&left, &self.replicas, &self.conversations, now)?;
        Some(Fit { replica, by: Placement::LeastLoad { load } })
    }

    /// The replica that holds the fewest tokens, and how many. Conversations that have lost their home are many that come at
    /// once, and of very different sizes: by their number alone, one replica could get all the large ones.
    pub(super) fn least_held(&self, among: impl Iterator<Item = ReplicaId>) -> Option<(ReplicaId, u64)> {
        among
            .map(|id| (id, self.caches.held(id)))
            .min_by_key(|(id, tokens)| (*tokens, self.conversations.homed_on(*id)))
    }

    fn least_busy<'a>(&self, engines: impl Iterator<Item = &'a Engine>, now: Time) -> Option<&'a Engine> {
        engines
            .map(|engine| (busy(engine, &self.replicas, now), engine))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, engine)| engine)
    }

    /// The engines to choose from: of those not yet tried, the ones in the best state.
    pub(super) fn usable(&self, tried: &[Attempt]) -> impl Iterator<Item = &Engine> {
        self.best(move |index, _| !self.has_tried(tried, index))
    }

    /// Of the configured engines that are `fit`, those in the best state.
    fn best(&self, fit: impl Fn(usize, &Engine) -> bool) -> impl Iterator<Item = &Engine> {
        let fit = move |index: &usize| fit(*index, &self.engines[*index]);
        let best = self.order.iter().copied().filter(&fit).map(|index| self.engines[index].state()).min();
        let engines = self.order.iter().copied().filter(fit).map(|index| &self.engines[index]);
        engines.filter(move |engine| best.is_some_and(|best| engine.health.may_take(best)))
    }

    pub(super) fn engine_of(&self, replica: ReplicaId) -> usize {
        self.replicas[replica.index()].engine
    }

    /// A replica as a target; its rank is named only to an engine that has several.
    pub(super) fn target(&self, replica: ReplicaId) -> Target {
        let engine = self.engine_of(replica);
        let ranked = self.engines[engine].spec.data_parallel_size > 1;
        Target { engine, replica: Some(replica), rank: ranked.then_some(self.replicas[replica.index()].rank) }
    }
}
