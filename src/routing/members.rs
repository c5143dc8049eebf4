//! The engines that a router knows: which there are, what they say of themselves, whether they are in use.

use std::collections::{HashMap, HashSet};

use super::cache::CacheOutcome;
use super::health::Health;
use super::load::in_flight;
use super::replica::{Engine, Replica};
use super::{EngineSpec, Reading, Router, Settings, Time};

impl Router {
    /// Replaces the settings and the engines. An engine that stays keeps its counters, conversations and health; one
    /// that goes ends what it has in flight, and its conversations are placed anew. One that was away for a moment drains as
    /// before, and is filled gently.
    pub fn configure(&mut self, settings: Settings, engines: &[EngineSpec], now: Time) {
        self.settings = settings;
        self.set_engines(engines, now);
    }

    /// Notes what an engine's metrics say, one reading a rank in the order of ranks. Returns whether the engine has
    /// restarted, in which case its conversations are forgotten: their cache is gone.
    pub fn read(&mut self, engine: usize, readings: &[Reading], now: Time) -> bool {
        let mut restarted = false;
        for (id, reading) in self.engines[engine].ids().zip(readings) {
            let replica = &mut self.replicas[id.index()];
            restarted |= replica.reading.as_ref().is_some_and(|before| reading.restarted_since(before));
            replica.kv_usage = reading.kv_cache_usage.filter(|usage| usage.is_finite());
            replica.read_at = now;
            replica.reading = Some(Box::new(*reading));
            self.caches.read(id, reading.capacity_tokens);
        }
        self.engines[engine].in_flight_at_reading = in_flight(&self.engines[engine], &self.replicas);
        if restarted {
            self.stored.lose(engine);
            for id in self.engines[engine].ids() {
                self.replicas[id.index()].restarts += 1;
                self.lose_home(id, CacheOutcome::ReplicaRestarted);
            }
            self.comes_back(engine);
            self.learn(engine, |health| health.circuit.try_soon());
        }
        restarted
    }

    /// The engine's place in the router's list, by its name; only of those configured.
    pub fn engine(&self, name: &str) -> Option<usize> {
        self.order.iter().copied().find(|index| self.engines[*index].spec.name == name)
    }

    /// The engines configured now, as places in the router's list.
    pub fn configured(&self) -> &[usize] {
        &self.order
    }

    /// Requests in flight on an engine, over all its ranks.
    pub fn in_flight(&self, engine: usize) -> u32 {
        in_flight(&self.engines[engine], &self.replicas)
    }

    /// The name of an engine.
    pub fn engine_name(&self, engine: usize) -> &str {
        &self.engines[engine].spec.name
    }

    pub(super) fn set_engines(&mut self, specs: &[EngineSpec], now: Time) {
        let wanted: HashSet<&EngineSpec> = specs.iter().collect();
        for index in std::mem::take(&mut self.order) {
            if !wanted.contains(&self.engines[index].spec) {
                self.away.leaves(&self.engines[index].spec.name, self.drains(index), now);
                self.engines[index].health.configured = false;
                for replica in self.engines[index].ids() {
                    self.lose_home(replica, CacheOutcome::Moved);
                    self.returning.end(replica);
                }
            }
        }
        let places = self.engines.iter().enumerate();
        let known: HashMap<EngineSpec, usize> = places.map(|(index, engine)| (engine.spec.clone(), index)).collect();
        let mut free = self.free_places(&wanted);
        for spec in specs {
            let index = known.get(spec).copied().unwrap_or_else(|| {
                match free.get_mut(&spec.data_parallel_size).and_then(Vec::pop) {
                    Some(index) => self.reuse_engine(index, spec),
                    None => self.add_engine(spec),
                }
            });
            if !self.engines[index].health.configured {
                self.joins(index, now);
            }
            self.order.push(index);
        }
        self.set_candidates();
    }

    /// An engine is configured from now on that was not. If it was away for a moment, it drains as before and is filled gently.
    fn joins(&mut self, index: usize, now: Time) {
        let drains = self.away.returns(&self.engines[index].spec.name, now);
        self.engines[index].health = Health::configured(drains.unwrap_or_default());
        match drains {
            Some(_) => self.comes_back(index),
            // No try of the one before is to pass for a try of this one.
            None => self.engines[index].returns += 1,
        }
    }

    /// Places of engines that are gone for good, by their ranks.
    fn free_places(&self, wanted: &HashSet<&EngineSpec>) -> HashMap<u32, Vec<usize>> {
        let mut free: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, engine) in self.engines.iter().enumerate() {
            let gone = !engine.health.configured && in_flight(engine, &self.replicas) == 0;
            if gone && !wanted.contains(&engine.spec) {
                free.entry(engine.spec.data_parallel_size).or_default().push(index);
            }
        }
        free
    }

    pub(super) fn set_candidates(&mut self) {
        let engines = || self.order.iter().map(|index| &self.engines[*index]);
        let best = engines().map(Engine::state).min();
        let usable = engines().filter(|engine| best.is_some_and(|best| engine.health.may_take(best)));
        (self.candidates, self.best) = (usable.flat_map(Engine::ids).collect(), best);
    }

    /// Gives the place of an engine that is gone for good to another, so that a fleet that changes for ever does not grow
    /// for ever. What was decided there stays in the totals.
    fn reuse_engine(&mut self, index: usize, spec: &EngineSpec) -> usize {
        self.stored.lose(index);
        for id in self.engines[index].ids() {
            let replica = &mut self.replicas[id.index()];
            self.unranked.add(&replica.decisions);
            *replica = Replica::new(index, replica.rank);
            self.caches.forget(id);
        }
        let replicas = self.engines[index].replicas.clone();
        let returns = self.engines[index].returns;
        self.engines[index] = Engine { returns, ..Engine::new(spec, replicas) };
        index
    }

    fn add_engine(&mut self, spec: &EngineSpec) -> usize {
        let first = self.replicas.len() as u32;
        let engine = self.engines.len();
        let ranks = spec.data_parallel_size.max(1);
        self.replicas.extend((0..ranks).map(|rank| Replica::new(engine, rank)));
        self.caches.resize(self.replicas.len());
        self.engines.push(Engine::new(spec, first..first + ranks));
        engine
    }
}
