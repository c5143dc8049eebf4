//! What the balancer counts, as Prometheus metrics. No label holds anything that a client controls.

mod fleet;

use once_cell::sync::Lazy;
use prometheus::{
    Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

pub use fleet::FleetGauges;

/// The process's metrics.
pub static METRICS: Lazy<Metrics> = Lazy::new(Metrics::new);

/// Bounds of the time histograms, in seconds: a cached turn answers in tenths, a 100k-token prefill in minutes.
const SECONDS: [f64; 14] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// See [`METRICS`].
pub struct Metrics {
    pub registry: Registry,
    pub requests: IntCounterVec,
    pub follow_requests: IntCounterVec,
    pub local_requests: IntCounterVec,
    pub own_errors: IntCounterVec,
    pub time_to_first_byte: HistogramVec,
    pub duration: HistogramVec,
    pub parked_seconds: HistogramVec,
    pub prompt_tokens: IntCounterVec,
    pub completion_tokens: IntCounterVec,
    pub retries: IntCounterVec,
    pub stream_errors: IntCounterVec,
    pub hangs: IntCounterVec,
    pub reloads: IntCounterVec,
    pub last_reload_successful: IntGauge,
    pub state_writes: IntCounterVec,
    pub caller_requests: IntCounterVec,
    pub caller_tokens: IntCounterVec,
    pub caller_refused: IntCounterVec,
    pub caller_in_flight: IntGaugeVec,
    pub discovery_failures: IntCounterVec,
    pub limits_hit: IntCounterVec,
    pub spans: IntCounterVec,
    pub panics: IntCounter,
    pub tls_handshakes: IntCounterVec,
    pub connections: IntGauge,
    pub buffered_bytes: IntGauge,
    pub ready: IntGauge,
    pub fleet: FleetGauges,
}

impl Metrics {
    fn new() -> Metrics {
        let make = Maker(Registry::new());
        let build = make.int_gauges("homing_build_info", "1, with the version that runs.", &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let start = make.gauge("homing_start_time_seconds", "When this process began to serve, since 1970.");
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        start.set(since_1970.map_or(0.0, |time| time.as_secs_f64()));
        let last_reload_successful = make.int_gauge(
            "homing_last_reload_successful",
            "1 if the configuration that was last told to be loaded is in force, 0 if it was refused.",
        );
        last_reload_successful.set(1);
        Metrics {
            requests: make.counters(
                "homing_requests_total",
                "Requests routed that have ended, by the replica that was asked last and the decision that came first.",
                &["model", "replica", "decision", "status"],
            ),
            follow_requests: make.counters(
                "homing_follow_requests_total",
                "Requests sent after their conversation that generate nothing (counting tokens, rendering).",
                &["model", "replica", "status"],
            ),
            local_requests: make.counters(
                "homing_local_requests_total",
                "Requests answered by the balancer itself.",
                &["path"],
            ),
            own_errors: make.counters("homing_errors_total", "The balancer's own errors, by their code.", &["code"]),
            time_to_first_byte: make.seconds(
                "homing_time_to_first_byte_seconds",
                "From the request's header to the first byte of the answer's body.",
            ),
            duration: make.seconds("homing_request_duration_seconds", "From the request's header to its end."),
            parked_seconds: make.seconds(
                "homing_parked_seconds",
                "How long requests waited for room that had to, whatever ended the wait.",
            ),
            prompt_tokens: make.counters(
                "homing_prompt_tokens_total",
                "Prompt tokens as the engines reported them; unmeasured: it did not say how many were cached.",
                &["model", "source"],
            ),
            completion_tokens: make.counters("homing_completion_tokens_total", "Generated tokens.", &["model"]),
            retries: make.counters(
                "homing_retries_total",
                "Tries on another replica, by the one that failed and what it did.",
                &["model", "replica", "reason"],
            ),
            stream_errors: make.counters(
                "homing_stream_errors_total",
                "Streams in which the engine sent an error that the client read.",
                &["model", "replica"],
            ),
            hangs: make.counters(
                "homing_hangs_total",
                "Times that an engine did nothing for those who waited for it.",
                &["model", "engine"],
            ),
            last_reload_successful,
            reloads: make.outcomes("homing_reloads_total", "Configuration reloads.", &["ok", "refused"]),
            state_writes: make.outcomes(
                "homing_state_writes_total",
                "Times that the state file was to be written.",
                &["ok", "failed"],
            ),
            caller_requests: make.counters(
                "homing_caller_requests_total",
                "Requests of a caller that have ended.",
                &["caller", "status"],
            ),
            caller_tokens: make.counters(
                "homing_caller_tokens_total",
                "Tokens of a caller's requests, as the engines reported them.",
                &["caller", "kind"],
            ),
            caller_refused: make.counters(
                "homing_caller_refused_total",
                "Requests of a caller that were refused, by what it may not or not now.",
                &["caller", "reason"],
            ),
            caller_in_flight: make.int_gauges(
                "homing_caller_in_flight",
                "Requests of a caller, those that wait for room included.",
                &["caller"],
            ),
            discovery_failures: make.counters(
                "homing_discovery_failures_total",
                "Looks for a model's replicas that found none, after which those known stay.",
                &["model"],
            ),
            spans: make.outcomes(
                "homing_spans_total",
                "Spans for the collector of traces; dropped: too many waited; failed: it did not take them.",
                &["sent", "dropped", "failed"],
            ),
            limits_hit: make.counters("homing_limits_hit_total", "Times that a limit was reached.", &["limit"]),
            panics: make
                .counter("homing_panics_total", "Faults of the balancer's own that ended what they happened in."),
            tls_handshakes: make.counters(
                "homing_tls_handshakes_total",
                "TLS handshakes with clients, by their outcome.",
                &["outcome"],
            ),
            connections: make.int_gauge("homing_connections", "Client connections open."),
            buffered_bytes: make.int_gauge("homing_buffered_bytes", "Bytes of request bodies held now."),
            ready: make.int_gauge("homing_ready", "1 once a replica has answered."),
            fleet: FleetGauges::new(&make),
            registry: make.0,
        }
    }
}

impl Metrics {
    /// The counters whose labels name a model and a replica, or an engine.
    pub fn by_replica(&self) -> [&IntCounterVec; 5] {
        [&self.requests, &self.follow_requests, &self.retries, &self.stream_errors, &self.hangs]
    }
}

/// Makes metrics and registers them. Names and labels are constants of this folder: a fault in one shows at the first
/// start.
struct Maker(Registry);

impl Maker {
    fn register<C: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let metric = made.expect("the name and labels of a metric are valid");
        self.0.register(Box::new(metric.clone())).expect("a metric is registered once");
        metric
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::new(name, help))
    }

    /// Counters of what is rare, by its outcome: at 0 from the start, so that the first of a kind is an increase.
    fn outcomes(&self, name: &str, help: &str, outcomes: &[&str]) -> IntCounterVec {
        let counters = self.counters(name, help, &["outcome"]);
        outcomes.iter().for_each(|outcome| drop(counters.with_label_values(&[outcome])));
        counters
    }

    fn int_gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.register(GaugeVec::new(Opts::new(name, help), labels))
    }

    fn int_gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::new(name, help))
    }

    fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.register(Gauge::new(name, help))
    }

    fn seconds(&self, name: &str, help: &str) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        self.register(HistogramVec::new(options, &["model"]))
    }
}
