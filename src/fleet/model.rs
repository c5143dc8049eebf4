use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::discoverer::Failing;
use super::in_force::Said;
use super::parking::Waits;
use super::saved::Kept;
use super::states::Changed;
use super::{Engine, now};
use crate::config::{self, Discovery, Replicas};
use crate::history::History;
use crate::routing::{AdmissionMode, Ask, EngineSpec, Foreseen, Key, Router, Settings, Target, auto_spill_threshold};

/// What a nameless model is called in metrics, logs and JSON: every model name goes there.
pub const ANY_MODEL: &str = "*";

/// How many names of engines a line of the log shows.
const NAMES_SHOWN: usize = 16;

/// A model that clients name, with its replicas and the router over them.
pub struct Model {
    /// Its name, or none if any name goes there.
    pub name: Option<String>,
    /// Decisions and the counts that they rest on, together under one lock: a burst sees every count at once.
    pub router: Mutex<Router>,
    /// What it did in the last hour and day.
    pub history: Mutex<History>,
    pub(super) waits: Waits,
    pub(super) said: Said,
    pub(super) failing: Failing,
    pub(super) kept: Kept,
    /// Changed under the router's lock alone, as are the two below.
    settings: ArcSwap<config::Model>,
    /// The engines as they were listed, or found last.
    known: ArcSwap<Vec<config::Engine>>,
    /// By the router's index of engines.
    engines: ArcSwap<Vec<Arc<Engine>>>,
}

impl Model {
    pub(super) fn new(settings: &config::Model) -> Model {
        let model = Model {
            name: settings.name.clone(),
            router: Mutex::new(Router::new(routing_settings(settings), &[])),
            history: Mutex::new(History::default()),
            waits: Waits::default(),
            said: Said::default(),
            failing: Failing::default(),
            kept: Kept::default(),
            settings: ArcSwap::from_pointee(settings.clone()),
            known: ArcSwap::default(),
            engines: ArcSwap::default(),
        };
        let drains = model.set(&mut model.router.lock(), settings);
        drains.log();
        model
    }

    pub(super) fn configure(self: &Arc<Model>, settings: &config::Model) {
        let drains = self.set(&mut self.router.lock(), settings);
        drains.log();
        self.wake();
    }

    /// Takes the engines that a look for them has found. Says what changed; none: nothing did, or the configuration has
    /// meanwhile come to look elsewhere.
    pub(super) fn discovered(self: &Arc<Model>, by: &Discovery, engines: Vec<config::Engine>) -> Option<Change> {
        let mut router = self.router.lock();
        let settings = self.settings();
        let asked = matches!(&settings.replicas, Replicas::Discovered(discovery) if discovery == by);
        if !asked || *self.known.load_full() == engines {
            return None;
        }
        let change = Change::between(&self.known.load(), &engines);
        self.known.store(Arc::new(engines));
        let drains = self.set(&mut router, &settings);
        drop(router);
        drains.log();
        self.wake();
        Some(change)
    }

    /// Puts settings and engines into force. Engines that are looked for stay those known until others are found. All under
    /// one lock: no request gets the index of an engine that is not in its place yet. What is to be logged is, once that is
    /// released.
    fn set(&self, router: &mut Router, settings: &config::Model) -> Changed {
        self.settings.store(Arc::new(settings.clone()));
        if let Replicas::Listed(engines) = &settings.replicas {
            self.known.store(Arc::new(engines.clone()));
        }
        let known = self.known.load();
        router.configure(routing_settings(settings), &known.iter().map(spec).collect::<Vec<_>>(), now());
        let mut drains = Changed::default();
        for (index, engine) in router.configured().to_vec().into_iter().zip(known.iter()) {
            if router.configure_draining(index, engine.draining) {
                drains.note(router.engine_name(index), router.trouble(index));
            }
        }
        self.set_engines(router, &known);
        self.kept.put_back(router);
        drains
    }

    /// The model is served no more: those who wait for room go on as they are, since nobody looks after them from now on.
    pub(super) fn retire(self: &Arc<Model>) {
        let mut settings = self.settings().as_ref().clone();
        settings.admission.mode = AdmissionMode::Off;
        self.configure(&settings);
    }

    /// Whether it has requests in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.router.lock().snapshot(now()).in_flight > 0
    }

    /// Puts new engines at the places that the router gave them. Those that stay keep what is known of them.
    fn set_engines(&self, router: &mut Router, known: &[config::Engine]) {
        let mut all = self.engines.load().as_ref().clone();
        for (index, engine) in router.configured().to_vec().into_iter().zip(known) {
            match all.get_mut(index) {
                Some(there) if there.is(engine) => there.set_api_key(engine.api_key.clone()),
                Some(place) => {
                    // Whether it hangs is known of the one before alone, which nobody looks at any more.
                    router.set_suspect(index, None);
                    *place = Arc::new(Engine::in_place_of(place, engine));
                }
                None => all.push(Arc::new(Engine::new(engine))),
            }
        }
        self.engines.store(Arc::new(all));
    }

    /// The name shown to people and machines.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(ANY_MODEL)
    }

    /// Its settings as configured.
    pub fn settings(&self) -> Arc<config::Model> {
        self.settings.load_full()
    }

    /// Whether it is known where that is which is kept under this key.
    pub fn knows(&self, key: &Key) -> bool {
        self.router.lock().knows(key)
    }

    /// What would become of a turn if it came now. None: the model has no engine.
    pub fn foresee(&self, ask: &Ask) -> Option<Foreseen> {
        self.router.lock().foresee(ask, now())
    }

    /// The same of a request that is no turn.
    pub fn foresee_follower(&self, ask: &Ask) -> Option<Foreseen> {
        self.router.lock().foresee_follower(ask, now())
    }

    /// The engine that a request was sent to.
    pub fn engine(&self, target: &Target) -> Arc<Engine> {
        self.engines.load()[target.engine].clone()
    }

    /// Has the router note something of an engine. None: its index is another engine's by now, since nothing was left of it.
    pub(super) fn note_of<T>(
        &self,
        index: usize,
        engine: &Arc<Engine>,
        note: impl FnOnce(&mut Router) -> T,
    ) -> Option<T> {
        let mut router = self.router.lock();
        let is_there = self.engines.load().get(index).is_some_and(|there| Arc::ptr_eq(there, engine));
        is_there.then(|| note(&mut router))
    }

    /// The engines configured now, each with its index in the router.
    pub fn engines(&self) -> Vec<(usize, Arc<Engine>)> {
        let router = self.router.lock();
        let engines = self.engines.load();
        router.configured().iter().map(|index| (*index, engines[*index].clone())).collect()
    }

    /// Those of them of which an answer can be expected.
    pub fn engines_serving(&self) -> Vec<Arc<Engine>> {
        let router = self.router.lock();
        let engines = self.engines.load();
        router.configured().iter().filter(|index| router.serves(**index)).map(|index| engines[*index].clone()).collect()
    }
}

fn routing_settings(settings: &config::Model) -> Settings {
    let spill_threshold = match settings.spill_threshold {
        config::SpillThreshold::Auto => auto_spill_threshold(settings.max_num_seqs),
        config::SpillThreshold::Set(threshold) => threshold,
    };
    Settings {
        affinity: settings.affinity,
        spill_threshold,
        idle_forget: settings.idle_forget,
        conversations_max: settings.conversations_max,
        admission: settings.admission.clone(),
        recovery: settings.recovery.clone(),
    }
}

fn spec(engine: &config::Engine) -> EngineSpec {
    EngineSpec { name: engine.url.name(), data_parallel_size: engine.data_parallel_size }
}

/// How the replicas that were found differ from those before.
pub(super) struct Change {
    joined: Vec<String>,
    left: Vec<String>,
    engines: usize,
}

impl Change {
    fn between(before: &[config::Engine], after: &[config::Engine]) -> Change {
        let beyond = |some: &[config::Engine], others: &[config::Engine]| {
            let others: HashSet<EngineSpec> = others.iter().map(spec).collect();
            some.iter().map(spec).filter(|engine| !others.contains(engine)).map(|engine| engine.name).collect()
        };
        Change { joined: beyond(after, before), left: beyond(before, after), engines: after.len() }
    }
}

/// In a sentence for the log, with the first of many names.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "engines found: {}", self.engines)?;
        for (verb, names) in [("joined", &self.joined), ("left", &self.left)] {
            if let Some((first, more)) = names.split_first() {
                write!(f, "; {verb}: {first}")?;
                more.iter().take(NAMES_SHOWN - 1).try_for_each(|name| write!(f, ", {name}"))?;
            }
            if names.len() > NAMES_SHOWN {
                write!(f, " and {} more", names.len() - NAMES_SHOWN)?;
            }
        }
        Ok(())
    }
}
