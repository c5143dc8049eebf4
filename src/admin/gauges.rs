//! Sets the gauges of what stands in the routers, at the moment of a scrape.

use parking_lot::Mutex;

use crate::fleet::{Fleet, Model, now};
use crate::metrics::METRICS;
use crate::routing::{ReplicaSnapshot, State};

/// Two scrapes at once would clear each other's gauges.
static SETTING: Mutex<()> = Mutex::new(());

/// Whether a replica has answered yet.
pub fn ready(fleet: &Fleet) -> bool {
    fleet.models().iter().any(|model| model.engines().iter().any(|(_, engine)| engine.answered()))
}

/// Sets every gauge of the fleet anew.
pub fn set(fleet: &Fleet) {
    let _one_at_a_time = SETTING.lock();
    METRICS.fleet.reset();
    METRICS.ready.set(i64::from(ready(fleet)));
    fleet.models().iter().for_each(|model| set_model(model));
}

fn set_model(model: &Model) {
    let snapshot = model.router.lock().snapshot(now());
    let label = [model.label()];
    METRICS.fleet.model_in_flight.with_label_values(&label).set(snapshot.in_flight as i64);
    METRICS.fleet.evicted.with_label_values(&label).inc_by(snapshot.conversations_evicted);
    for replica in &snapshot.replicas {
        set_replica(&[model.label(), &replica.name], replica);
    }
}

fn set_replica(labels: &[&str; 2], replica: &ReplicaSnapshot) {
    let gauges = &METRICS.fleet;
    gauges.in_flight.with_label_values(labels).set(i64::from(replica.in_flight));
    gauges.conversations.with_label_values(labels).set(i64::from(replica.conversations));
    gauges.load.with_label_values(labels).set(replica.load);
    gauges.up.with_label_values(labels).set(i64::from(replica.state == State::Up));
    gauges.restarts.with_label_values(labels).inc_by(replica.restarts);
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
