//! Sets the gauges of what stands in the routers, at the moment of a scrape.

use parking_lot::Mutex;
use prometheus::proto::MetricFamily;

use crate::callers::Callers;
use crate::fleet::{Fleet, Model, now};
use crate::live::Live;
use crate::metrics::METRICS;
use crate::routing::{AdmissionCounts, CacheOutcome, ReplicaSnapshot, Snapshot, State};

/// Two scrapes at once would clear each other's gauges.
static SETTING: Mutex<()> = Mutex::new(());

/// Whether a replica has answered yet.
pub fn ready(fleet: &Fleet) -> bool {
    fleet.models().iter().any(|model| model.engines().iter().any(|(_, engine)| engine.answered()))
}

/// Every metric, with the gauges of the fleet and of the callers as they stand now.
pub fn gather(live: &Live) -> Vec<MetricFamily> {
    let fleet = &live.fleet;
    let _one_at_a_time = SETTING.lock();
    METRICS.fleet.reset();
    METRICS.caller_in_flight.reset();
    for caller in live.callers.iter().flat_map(Callers::iter) {
        METRICS.caller_in_flight.with_label_values(&[caller.name()]).set(i64::from(caller.in_flight()));
    }
    METRICS.ready.set(i64::from(ready(fleet)));
    fleet.models().iter().for_each(|model| set_model(model));
    METRICS.registry.gather()
}

fn set_model(model: &Model) {
    let snapshot = model.router.lock().snapshot(now());
    let label = [model.label()];
    METRICS.fleet.model_in_flight.with_label_values(&label).set(snapshot.in_flight as i64);
    METRICS.fleet.evicted.with_label_values(&label).inc_by(snapshot.conversations_evicted);
    METRICS.fleet.stored.with_label_values(&label).set(snapshot.stored as i64);
    METRICS.fleet.stored_evicted.with_label_values(&label).inc_by(snapshot.stored_evicted);
    let limits = [
        ("places", snapshot.admission.places_dropped),
        ("caches", snapshot.caches.untracked),
        ("lost", snapshot.lost_forgotten),
        ("away", snapshot.away_forgotten),
    ];
    for (limit, count) in limits {
        METRICS.fleet.limits_hit.with_label_values(&[model.label(), limit]).inc_by(count);
    }
    set_admission(model.label(), &snapshot);
    set_caches(model.label(), &snapshot);
    for replica in &snapshot.replicas {
        set_replica(&[model.label(), &replica.name], replica);
    }
}

fn set_admission(model: &str, snapshot: &Snapshot) {
    let gauges = &METRICS.fleet;
    let AdmissionCounts { parked, admitted, forced, left, overdue, full, would_park, .. } = snapshot.admission;
    gauges.parked.with_label_values(&[model]).set(snapshot.parked as i64);
    gauges.parked_total.with_label_values(&[model]).inc_by(parked);
    gauges.would_park.with_label_values(&[model]).inc_by(would_park);
    gauges.linger.with_label_values(&[model]).set(snapshot.linger.as_secs_f64());
    // Those sent on after the longest wait are admitted too; here each stands under one outcome.
    let outcomes = [
        ("admitted", admitted.saturating_sub(forced)),
        ("forced", forced),
        ("left", left),
        ("overdue", overdue),
        ("full", full),
    ];
    for (outcome, count) in outcomes {
        gauges.park_outcomes.with_label_values(&[model, outcome]).inc_by(count);
    }
}

fn set_caches(model: &str, snapshot: &Snapshot) {
    let (gauges, caches) = (&METRICS.fleet, &snapshot.caches);
    for outcome in CacheOutcome::ALL {
        gauges.turns.with_label_values(&[model, outcome.name()]).inc_by(caches.of(outcome));
    }
    gauges.expected_tokens.with_label_values(&[model]).inc_by(caches.expected_tokens);
    gauges.found_tokens.with_label_values(&[model]).inc_by(caches.found_tokens);
    gauges.error_tokens.with_label_values(&[model]).inc_by(caches.error_tokens);
}

fn set_replica(labels: &[&str; 2], replica: &ReplicaSnapshot) {
    let gauges = &METRICS.fleet;
    gauges.in_flight.with_label_values(labels).set(i64::from(replica.in_flight));
    gauges.conversations.with_label_values(labels).set(i64::from(replica.conversations));
    gauges.load.with_label_values(labels).set(replica.load);
    gauges.up.with_label_values(labels).set(i64::from(replica.state == State::Up));
    for state in State::ALL {
        let labels = [labels[0], labels[1], state.name()];
        gauges.state.with_label_values(&labels).set(i64::from(replica.state == state));
    }
    gauges.circuit_opened.with_label_values(labels).inc_by(replica.circuit_opened);
    gauges.returning.with_label_values(labels).set(i64::from(replica.returning));
    gauges.restarts.with_label_values(labels).inc_by(replica.restarts);
    gauges.held_tokens.with_label_values(labels).set(replica.held_tokens as i64);
    if let Some(tokens) = replica.capacity_tokens {
        gauges.capacity_tokens.with_label_values(labels).set(tokens as i64);
    }
    let Some((reading, age)) = &replica.reading else { return };
    gauges.reading_age.with_label_values(labels).set(age.as_secs_f64());
    let known = [
        (&gauges.kv_cache_usage, reading.kv_cache_usage),
        (&gauges.running, reading.running.map(|count| count as f64)),
        (&gauges.waiting, reading.waiting.map(|count| count as f64)),
        (&gauges.prefix_hit_ratio, reading.prefix_hit_ratio()),
    ];
    for (gauge, value) in known {
        value.inspect(|value| gauge.with_label_values(labels).set(*value));
    }
}
