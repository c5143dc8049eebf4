//! What a reload replaces.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::{Config, Secret, Server, SessionRules};
use crate::fleet::Fleet;

/// Settings and fleet, replaced together. A request keeps those that it began with.
pub struct Live {
    pub server: Server,
    pub session: SessionRules,
    /// What callers of the admin address must send; none: anyone who reaches it may ask.
    pub token: Option<Secret>,
    pub fleet: Arc<Fleet>,
}

/// The one [`Live`] of the process.
pub type Current = Arc<ArcSwap<Live>>;

impl Live {
    /// What a configuration describes at the start.
    pub fn new(config: &Config) -> Live {
        Live::with(config, Fleet::new(config))
    }

    /// What a new configuration describes. Models that stay are the same ones, with all that they hold, and are already
    /// routed as it says.
    pub fn reconfigured(&self, config: &Config) -> Live {
        Live::with(config, self.fleet.reconfigured(config))
    }

    fn with(config: &Config, fleet: Fleet) -> Live {
        Live {
            server: config.server.clone(),
            session: config.session.clone(),
            token: config.admin.token.clone(),
            fleet: Arc::new(fleet),
        }
    }
}
