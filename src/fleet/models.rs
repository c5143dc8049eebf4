use std::sync::Arc;

use super::Model;
use crate::config;

/// Every model that is served.
pub struct Fleet {
    models: Vec<Arc<Model>>,
    /// Models that were removed and still have requests in flight: one that is added again meanwhile goes on as it was.
    removed: Vec<Arc<Model>>,
}

impl Fleet {
    /// The fleet that a configuration describes.
    pub fn new(config: &config::Config) -> Fleet {
        Fleet { models: config.models.iter().map(|model| Arc::new(Model::new(model))).collect(), removed: Vec::new() }
    }

    /// The fleet that a new configuration describes. Models that stay are the same ones, with all that they hold.
    pub fn reconfigured(&self, config: &config::Config) -> Fleet {
        let known = |settings: &config::Model| {
            self.models.iter().chain(&self.removed).find(|model| model.name == settings.name)
        };
        let models = config.models.iter().map(|settings| match known(settings) {
            Some(model) => {
                model.configure(settings);
                model.clone()
            }
            None => Arc::new(Model::new(settings)),
        });
        let models: Vec<Arc<Model>> = models.collect();
        let served = |model: &&Arc<Model>| models.iter().any(|stays| Arc::ptr_eq(stays, model));
        self.models.iter().filter(|model| !served(model)).for_each(|model| model.retire());
        let gone = self.models.iter().chain(&self.removed).filter(|model| !served(model));
        let removed = gone.filter(|model| model.is_busy()).cloned().collect();
        Fleet { models, removed }
    }

    /// The models, in the order of the configuration.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// The model that a client means by `name`: the one called so, else the first with an alias that is this very name, else
    /// the first with a pattern for it.
    pub fn named(&self, name: &str) -> Option<&Arc<Model>> {
        let called = |model: &&Arc<Model>| model.name.as_deref().is_none_or(|own| own == name);
        let with = |fits: &dyn Fn(&config::Alias) -> bool| {
            self.models.iter().find(|model| model.settings().aliases.iter().any(fits))
        };
        self.models
            .iter()
            .find(called)
            .or_else(|| with(&|alias| alias.name() == Some(name)))
            .or_else(|| with(&|alias| alias.matches(name)))
    }

    /// The only model, where there is just one.
    pub fn only(&self) -> Option<&Arc<Model>> {
        match self.models.as_slice() {
            [model] => Some(model),
            _ => None,
        }
    }
}
