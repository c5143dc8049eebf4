//! Forgets the series of replicas that are gone: a fleet that changes for ever would have ever more of them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use prometheus::IntCounterVec;
use prometheus::core::Collector;

/// Series of a replica that is gone stay for as long, so that what they counted last is scraped.
const KEPT: Duration = Duration::from_mins(10);

/// A replica of a model, by the names that metrics give them.
pub type Named = (String, String);

/// Since when replicas with series have been gone.
#[derive(Default)]
pub struct Gone(HashMap<Named, Instant>);

impl Gone {
    /// Removes from `families`, whose labels name a model and a replica (or an engine), the series of those that have long been gone.
    pub fn sweep(&mut self, families: &[&IntCounterVec], present: &HashSet<Named>, now: Instant) {
        let mut seen = HashSet::new();
        for family in families {
            for labels in series(family) {
                let (model, replica) = (labels.get("model"), labels.get("replica").or(labels.get("engine")));
                let replica = (model.cloned().unwrap_or_default(), replica.cloned().unwrap_or_default());
                if present.contains(&replica) {
                    continue;
                }
                let since = *self.0.entry(replica.clone()).or_insert(now);
                if now.duration_since(since) >= KEPT {
                    let labels: HashMap<&str, &str> =
                        labels.iter().map(|(label, value)| (label.as_str(), value.as_str())).collect();
                    // Another sweep cannot have removed it: there is one.
                    let _ = family.remove(&labels);
                } else {
                    seen.insert(replica);
                }
            }
        }
        self.0.retain(|replica, _| seen.contains(replica));
    }
}

/// The labels of each series.
fn series(family: &IntCounterVec) -> Vec<HashMap<String, String>> {
    let metrics = family.collect().into_iter().flat_map(|mut family| family.take_metric());
    let labels = |metric: prometheus::proto::Metric| {
        metric.get_label().iter().map(|pair| (pair.name().to_owned(), pair.value().to_owned())).collect()
    };
    metrics.map(labels).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Opts;

    #[test]
    fn only_series_of_replicas_long_gone_are_removed() {
        let opts = Opts::new("requests", "Requests.");
        let family = IntCounterVec::new(opts, &["model", "replica", "status"]).expect("a family");
        let hangs = IntCounterVec::new(Opts::new("hangs", "Hangs."), &["model", "engine"]).expect("a family");
        let named = |replica: &str| ("m".to_owned(), replica.to_owned());
        ["stays", "goes"].iter().for_each(|engine| hangs.with_label_values(&["m", engine]).inc());
        for (replica, status) in [("stays", "200"), ("goes", "200"), ("goes", "503"), ("returns", "200")] {
            family.with_label_values(&["m", replica, status]).inc();
        }
        let left = || {
            let mut left: Vec<String> = series(&family).iter().map(|labels| labels["replica"].clone()).collect();
            left.sort_unstable();
            left
        };
        let (mut gone, start) = (Gone::default(), Instant::now());
        let stays = HashSet::from([named("stays")]);
        gone.sweep(&[&family], &stays, start);
        gone.sweep(&[&family], &stays, start + KEPT / 2);
        assert_eq!(left().len(), 4, "what they counted last is still there");
        gone.sweep(&[&family], &HashSet::from([named("stays"), named("returns")]), start + KEPT / 2);
        gone.sweep(&[&family], &stays, start + KEPT);
        assert_eq!(left(), ["returns", "stays"]);
        gone.sweep(&[&family], &stays, start + 2 * KEPT);
        assert_eq!(left(), ["stays"]);
        gone.sweep(&[&hangs], &stays, start);
        gone.sweep(&[&hangs], &stays, start + KEPT);
        assert_eq!(series(&hangs).iter().map(|labels| labels["engine"].as_str()).collect::<Vec<_>>(), ["stays"]);
        assert!(gone.0.is_empty(), "nothing is kept of them");
    }
}
