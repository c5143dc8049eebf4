//! Which replica has which fault when.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tokio::sync::watch::Receiver;

use crate::fleet::{Fault, Fleet};

/// Replicas with a fault at once at most. A request is tried on three, so one of them is always well.
const AT_ONCE_MAX: usize = 2;

/// A process that is told to end takes a moment, and what it cut off is noticed a moment later.
const AFTERMATH: Duration = Duration::from_millis(500);

/// One fault of one replica.
#[derive(Clone, Debug)]
struct Played {
    replica: usize,
    fault: Fault,
    from: Instant,
    until: Option<Instant>,
}

/// Every fault so far.
pub struct FaultLog {
    replicas: Vec<String>,
    began: Instant,
    played: Mutex<Vec<Played>>,
}

impl FaultLog {
    /// None has been played.
    pub fn new(replicas: &[SocketAddr]) -> FaultLog {
        let replicas = replicas.iter().map(SocketAddr::to_string).collect();
        FaultLog { replicas, began: Instant::now(), played: Mutex::default() }
    }

    /// Whether this replica's process ended, or was ending, at some time since `from`.
    pub fn died_since(&self, replica: &str, from: Instant) -> bool {
        self.since(from).iter().any(|played| self.replicas[played.replica] == replica && cuts(&played.fault))
    }

    /// Every fault at some time since `from`, for a person.
    pub fn shown_since(&self, from: Instant) -> String {
        let second = |at: Instant| at.saturating_duration_since(self.began).as_secs_f64();
        let show = |played: &Played| {
            let until = played.until.map_or("now".to_owned(), |until| format!("{:.2} s", second(until)));
            format!("{} {:?} {:.2} s to {until}", self.replicas[played.replica], played.fault, second(played.from))
        };
        self.since(from).iter().map(show).collect::<Vec<_>>().join("; ")
    }

    /// Seconds since the start.
    pub fn second(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn since(&self, from: Instant) -> Vec<Played> {
        let over = |played: &Played| played.until.is_some_and(|until| until + AFTERMATH < from);
        self.played.lock().iter().filter(|played| !over(played)).cloned().collect()
    }

    fn begin(&self, replica: usize, fault: Fault) {
        self.played.lock().push(Played { replica, fault, from: Instant::now(), until: None });
    }

    fn end(&self, replica: usize) {
        let mut played = self.played.lock();
        let open = played.iter_mut().find(|played| played.replica == replica && played.until.is_none());
        open.into_iter().for_each(|played| played.until = Some(Instant::now()));
    }
}

/// Whether connections break off: a replica that is dead breaks them off when it is replaced, too.
fn cuts(fault: &Fault) -> bool {
    matches!(fault, Fault::Die | Fault::Restart { .. } | Fault::EngineDead)
}

/// Plays faults until it is stopped, then has all be well. Returns how often each was played.
pub async fn play(
    fleet: Arc<Fleet>,
    log: Arc<FaultLog>,
    seed: u64,
    mut stopped: Receiver<bool>,
) -> BTreeMap<&'static str, u32> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut counts = BTreeMap::new();
    // The replicas that have a fault, and until when.
    let mut ailing: Vec<(usize, tokio::time::Instant)> = Vec::new();
    loop {
        let pause = Duration::from_millis(rng.random_range(200..1200));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopped.changed() => break,
        }
        let now = tokio::time::Instant::now();
        for (replica, _) in ailing.extract_if(.., |(_, until)| *until <= now) {
            fleet.set_fault(replica, Fault::Ok);
            log.end(replica);
        }
        let well: Vec<usize> =
            (0..fleet.replicas().len()).filter(|one| ailing.iter().all(|(it, _)| it != one)).collect();
        if ailing.len() < AT_ONCE_MAX {
            let (replica, (name, fault)) = (well[rng.random_range(0..well.len())], any_fault(&mut rng));
            *counts.entry(name).or_default() += 1;
            log.begin(replica, fault.clone());
            fleet.set_fault(replica, fault);
            ailing.push((replica, now + Duration::from_millis(rng.random_range(300..5000))));
        }
    }
    for (replica, _) in ailing {
        fleet.set_fault(replica, Fault::Ok);
        log.end(replica);
    }
    counts
}

fn any_fault(rng: &mut Pcg64) -> (&'static str, Fault) {
    match rng.random_range(0..9) {
        0 => ("refuse", Fault::Refuse),
        1 => ("hang", Fault::Hang),
        2 => ("stall", Fault::Stall { after_tokens: rng.random_range(0..4) }),
        3 => ("engine_dead", Fault::EngineDead),
        4 => ("die", Fault::Die),
        5 => ("restart", Fault::Restart { down_s: rng.random_range(0.0..2.0) }),
        6 => ("slow", Fault::Slow { factor: rng.random_range(2.0..20.0) }),
        7 => ("stale_metrics", Fault::StaleMetrics),
        _ => ("starting", Fault::Starting),
    }
}
