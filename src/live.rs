//! What a reload replaces.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::callers::Callers;
use crate::config::{ClientCredentials, Config, Secret, Server, SessionRules};
use crate::fleet::Fleet;

/// Settings and fleet, replaced together. A request keeps those that it began with.
pub struct Live {
    pub server: Server,
    pub session: SessionRules,
    /// What callers of the admin address must send; none: anyone who reaches it may ask.
    pub token: Option<Secret>,
    /// None: anyone may call.
    pub callers: Option<Callers>,
    pub fleet: Arc<Fleet>,
}

/// The one [`Live`] of the process.
pub type Current = Arc<ArcSwap<Live>>;

impl Live {
    /// What a configuration describes at the start.
    pub fn new(config: &Config) -> Live {
        Live::with(config, Fleet::new(config), None)
    }

    /// What a new configuration describes. Models that stay are the same ones, with all that they hold, and are already
    /// routed as it says.
    pub fn reconfigured(&self, config: &Config) -> Live {
        Live::with(config, self.fleet.reconfigured(config), self.callers.as_ref())
    }

    fn with(config: &Config, fleet: Fleet, before: Option<&Callers>) -> Live {
        Live {
            server: config.server.clone(),
            session: config.session.clone(),
            token: config.admin.token.clone(),
            callers: config.callers.as_ref().map(|callers| Callers::new(callers, before)),
            fleet: Arc::new(fleet),
        }
    }

    /// Whether what a client sends as its key goes on to the engines. A key of this balancer never does.
    pub fn passes_credentials(&self) -> bool {
        self.callers.is_none() && self.server.client_credentials == ClientCredentials::Pass
    }
}
