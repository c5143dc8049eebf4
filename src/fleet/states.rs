//! What becomes known of the states of replicas, and what the log says of it.

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
        if let Some(trouble) = self.note_of(index, engine, learnt).flatten() {
            self.wake();
            log(&engine.name, trouble, detail);
        }
    }

    /// Tells an engine to drain, or no longer to. Says what is in flight there; none: no engine has this name.
    pub fn set_draining(self: &Arc<Model>, name: &str, draining: bool) -> Option<u32> {
        let (index, engine) = self.engines().into_iter().find(|(_, engine)| engine.name == name)?;
        self.learn(index, &engine, "", |router| router.set_draining(index, draining));
        self.note_of(index, &engine, |router| router.in_flight(index))
    }
}

/// Engines whose states are others from now on.
#[must_use]
#[derive(Default)]
pub(super) struct Changed(Vec<(String, Option<Trouble>)>);

impl Changed {
    pub fn note(&mut self, name: &str, trouble: Option<Trouble>) {
        self.0.push((name.to_owned(), trouble));
    }

    /// Logs them. Not to be called under a router's lock: whoever reads the log may be slow.
    pub fn log(&self) {
        self.0.iter().for_each(|(name, trouble)| log(name, *trouble, ""));
    }
}

/// Logs the state that an engine is in from now on.
fn log(name: &str, trouble: Option<Trouble>, detail: &str) {
    match trouble {
        None => info!("replica {name} is up again"),
        Some(Trouble::ToldToDrain) => info!("replica {name} is draining: its conversations move at their next turn"),
        Some(Trouble::FailsChecks) => warn!("replica {name} is out: {detail}"),
        Some(trouble) => warn!("replica {name} is {}: {}", trouble.state().name(), trouble.sentence()),
    }
}
