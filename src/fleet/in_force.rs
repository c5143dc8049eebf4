//! What the operator is told of admission without asking: which of it is in force and why, and what is likely wrong.

use std::collections::BTreeSet;

use log::{info, warn};
use parking_lot::Mutex;

use super::{Model, now};
use crate::routing::{AdmissionMode, Advice, CapacitySource, ReplicaSnapshot, Snapshot};

/// Whether new conversations wait for room, and why or why not.
pub struct InForce {
    pub in_force: bool,
    pub why: String,
}

impl InForce {
    /// As it stands now.
    pub fn of(snapshot: &Snapshot) -> InForce {
        let mode = snapshot.settings.admission.mode;
        let in_force = snapshot.settings.affinity && mode == AdmissionMode::Auto;
        let why = match mode {
            AdmissionMode::Off => "off as configured".into(),
            _ if !snapshot.settings.affinity => "off because affinity is off".into(),
            AdmissionMode::Observe => format!("only observes, {}", capacity(&snapshot.replicas)),
            AdmissionMode::Auto => format!("in force, {}", capacity(&snapshot.replicas)),
        };
        InForce { in_force, why }
    }
}

/// Where the capacity of the replicas comes from, in words.
fn capacity(replicas: &[ReplicaSnapshot]) -> String {
    let word = |replica: &ReplicaSnapshot| match (replica.capacity_source, replica.capacity_tokens) {
        (CapacitySource::Set, _) => "set",
        (CapacitySource::Engine, _) => "from the engine",
        (CapacitySource::Learned, Some(_)) => "learned",
        (CapacitySource::Learned, None) => "not known yet",
    };
    let mut words: Vec<&str> = replicas.iter().map(word).collect();
    words.sort_unstable();
    words.dedup();
    if words.is_empty() {
        words.push("not known yet");
    }
    format!("capacity {}", words.join(" or "))
}

/// What the log has said of a model last, so that it says each thing once.
#[derive(Default)]
pub struct Said(Mutex<Last>);

#[derive(Default)]
struct Last {
    admission: Option<String>,
    advice: Option<Advice>,
    drained: BTreeSet<String>,
}

impl Model {
    /// Logs what has changed in how admission stands, advice that is new, and replicas that have drained.
    pub fn tell(&self) {
        let snapshot = self.router.lock().snapshot(now());
        let why = InForce::of(&snapshot).why;
        let mut last = self.said.0.lock();
        if last.admission.as_ref() != Some(&why) {
            info!("model {}: admission {why}", self.label());
            last.admission = Some(why);
        }
        if last.advice != snapshot.advice {
            last.advice = snapshot.advice;
            snapshot.advice.inspect(|advice| warn!("model {}: {}", self.label(), advice.sentence()));
        }
        let drained: BTreeSet<String> =
            snapshot.replicas.into_iter().filter(|replica| replica.drained).map(|replica| replica.name).collect();
        drained
            .difference(&last.drained)
            .for_each(|name| info!("replica {name} is drained: nothing is in flight there"));
        last.drained = drained;
    }
}
