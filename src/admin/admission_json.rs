//! The parts of `GET /routing` about the wait for room and about what became of caches.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::fleet::InForce;
use crate::routing::{AdmissionCounts, CacheOutcome, Overdue, Snapshot};

#[derive(Serialize)]
pub struct Admission {
    mode: &'static str,
    in_force: bool,
    why: String,
    max_wait_s: f64,
    overdue: &'static str,
    parked_max: usize,
    rotate: Option<u32>,
    linger_s: f64,
    linger_source: &'static str,
    parked: u64,
    longest_wait_s: f64,
    totals: Totals,
}

/// Since the start. Those forced are admitted too.
#[derive(Serialize)]
struct Totals {
    parked: u64,
    admitted: u64,
    forced: u64,
    left: u64,
    overdue: u64,
    full: u64,
    would_park: u64,
}

#[derive(Serialize)]
pub struct Cache {
    /// Turns by what became of their conversation's cache.
    turns: BTreeMap<&'static str, u64>,
    expected_tokens: u64,
    found_tokens: u64,
    error_tokens: u64,
}

pub fn admission(snapshot: &Snapshot) -> Admission {
    let settings = &snapshot.settings.admission;
    let InForce { in_force, why } = InForce::of(snapshot);
    let AdmissionCounts { parked, admitted, forced, left, overdue, full, would_park, .. } = snapshot.admission;
    Admission {
        mode: settings.mode.name(),
        in_force,
        why,
        max_wait_s: settings.max_wait.as_secs_f64(),
        overdue: match settings.overdue {
            Overdue::Refuse => "refuse",
            Overdue::Admit => "admit",
        },
        parked_max: settings.parked_max,
        rotate: settings.rotate,
        linger_s: snapshot.linger.as_secs_f64(),
        linger_source: if settings.linger.is_some() { "set" } else { "auto" },
        parked: snapshot.parked,
        longest_wait_s: snapshot.longest_wait.as_secs_f64(),
        totals: Totals { parked, admitted, forced, left, overdue, full, would_park },
    }
}

pub fn cache(snapshot: &Snapshot) -> Cache {
    let caches = &snapshot.caches;
    Cache {
        turns: CacheOutcome::ALL.map(|outcome| (outcome.name(), caches.of(outcome))).into(),
        expected_tokens: caches.expected_tokens,
        found_tokens: caches.found_tokens,
        error_tokens: caches.error_tokens,
    }
}
