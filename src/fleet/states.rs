//! What the log says of the states of replicas.

use std::sync::Arc;

use log::{info, warn};

use super::{Engine, Model};
use crate::routing::{Router, Trouble};

impl Model {
    /// Has the router learn something of an engine. Where the engine's state is another from then on, the log says so (with
    /// `detail` where it has failed its checks), and those go on who need not wait any more.
    pub(super) fn learn(
        self: &Arc<Model>,
        index: usize,
        engine: &Arc<Engine>,
        detail: &str,
        learn: impl FnOnce(&mut Router) -> bool,
    ) {
        let learnt = |router: &mut Router| learn(router).then(|| router.trouble(index));
        let Some(trouble) = self.note_of(index, engine, learnt).flatten() else { return };
        self.wake();
        match trouble {
            None => info!("replica {} is up again", engine.name),
            Some(Trouble::FailsChecks) => warn!("replica {} is out: {detail}", engine.name),
            Some(trouble) => warn!("replica {} is {}: {}", engine.name, trouble.state().name(), trouble.sentence()),
        }
    }
}
