use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::Engine;
use super::in_force::Said;
use super::parking::Waits;
use crate::config;
use crate::routing::{AdmissionMode, EngineSpec, Router, Settings, Target, auto_spill_threshold};

/// What a nameless model is called in metrics, logs and JSON: every model name goes there.
pub const ANY_MODEL: &str = "*";

/// A model that clients name, with its replicas and the router over them.
pub struct Model {
    /// Its name, or none if any name goes there.
    pub name: Option<String>,
    /// Decisions and the counts that they rest on, together under one lock: a burst sees every count at once.
    pub router: Mutex<Router>,
    pub(super) waits: Waits,
    pub(super) said: Said,
    settings: ArcSwap<config::Model>,
    /// By the router's index of engines.
    engines: ArcSwap<Vec<Arc<Engine>>>,
}

impl Model {
    fn new(settings: &config::Model) -> Model {
        let model = Model {
            name: settings.name.clone(),
            router: Mutex::new(Router::new(routing_settings(settings), &specs(settings))),
            waits: Waits::default(),
            said: Said::default(),
            settings: ArcSwap::from_pointee(settings.clone()),
            engines: ArcSwap::default(),
        };
        model.set_engines(&model.router.lock(), settings);
        model
    }

    fn configure(self: &Arc<Model>, settings: &config::Model) {
        self.settings.store(Arc::new(settings.clone()));
        // Under one lock: no request gets the index of an engine that is not in its place yet.
        let mut router = self.router.lock();
        router.configure(routing_settings(settings), &specs(settings));
        self.set_engines(&router, settings);
        drop(router);
        self.wake();
    }

    /// The model is served no more: those who wait for room go on as they are, since nobody looks after them from now on.
    fn retire(self: &Arc<Model>) {
        let mut settings = self.settings().as_ref().clone();
        settings.admission.mode = AdmissionMode::Off;
        self.configure(&settings);
    }

    /// Puts new engines at the places that the router gave them. Those that stay keep what is known of them.
    fn set_engines(&self, router: &Router, settings: &config::Model) {
        let mut all = self.engines.load().as_ref().clone();
        for (index, engine) in router.configured().iter().zip(&settings.replicas) {
            match all.get_mut(*index) {
                Some(known) if known.is(engine) => known.set_api_key(engine.api_key.clone()),
                Some(place) => *place = Arc::new(Engine::new(engine)),
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

    /// The engine that a request was sent to.
    pub fn engine(&self, target: &Target) -> Arc<Engine> {
        self.engines.load()[target.engine].clone()
    }

    /// The engines configured now, each with its index in the router.
    pub fn engines(&self) -> Vec<(usize, Arc<Engine>)> {
        let router = self.router.lock();
        let engines = self.engines.load();
        router.configured().iter().map(|index| (*index, engines[*index].clone())).collect()
    }

    /// Those of them that are in use.
    pub fn engines_up(&self) -> Vec<Arc<Engine>> {
        let router = self.router.lock();
        let engines = self.engines.load();
        router.configured().iter().filter(|index| router.is_up(**index)).map(|index| engines[*index].clone()).collect()
    }
}

/// Every model that is served.
pub struct Fleet {
    models: Vec<Arc<Model>>,
}

impl Fleet {
    /// The fleet that a configuration describes.
    pub fn new(config: &config::Config) -> Fleet {
        Fleet { models: config.models.iter().map(|model| Arc::new(Model::new(model))).collect() }
    }

    /// The fleet that a new configuration describes. Models that stay are the same ones, with all that they hold.
    pub fn reconfigured(&self, config: &config::Config) -> Fleet {
        let known = |settings: &config::Model| self.models.iter().find(|model| model.name == settings.name);
        let models = config.models.iter().map(|settings| match known(settings) {
            Some(model) => {
                model.configure(settings);
                model.clone()
            }
            None => Arc::new(Model::new(settings)),
        });
        let models: Vec<Arc<Model>> = models.collect();
        let gone = self.models.iter().filter(|model| !models.iter().any(|stays| Arc::ptr_eq(stays, model)));
        gone.for_each(|model| model.retire());
        Fleet { models }
    }

    /// The models, in the order of the configuration.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// The model that a client means by `name`.
    pub fn named(&self, name: &str) -> Option<&Arc<Model>> {
        self.models.iter().find(|model| model.name.as_deref().is_none_or(|own| own == name))
    }

    /// The only model, where there is just one.
    pub fn only(&self) -> Option<&Arc<Model>> {
        match self.models.as_slice() {
            [model] => Some(model),
            _ => None,
        }
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
    }
}

fn specs(settings: &config::Model) -> Vec<EngineSpec> {
    let spec =
        |engine: &config::Engine| EngineSpec { name: engine.url.name(), data_parallel_size: engine.data_parallel_size };
    settings.replicas.iter().map(spec).collect()
}
