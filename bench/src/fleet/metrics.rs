//! `/metrics` under vLLM's names and labels, in Prometheus' text format.
//!
//! Of vLLM 0.32's families those are left out that a model without weights, adapters or images has nothing to say in.
//! Times are the engine's own: with a fleet that runs faster than real time they are not those of the clock.

use std::fmt::Write;

use super::process::Process;
use super::stats::{Histogram, Stats};

/// Grows a page family by family, one sample an engine.
struct Page<'a> {
    text: String,
    model: &'a str,
    ranks: &'a [Stats],
}

impl Page<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One sample; `labels` are written before those every sample has.
    fn sample(&mut self, name: &str, rank: usize, labels: &str, value: f64) {
        let model = self.model;
        _ = writeln!(
            self.text,
            "{name}{{engine=\"{rank}\",model_name=\"{model}\"{labels}}} {value:?}"
        );
    }

    fn each(&mut self, name: &str, kind: &str, help: &str, value: impl Fn(&Stats) -> f64) {
        self.each_by(name, kind, help, &[("", &value)]);
    }

    /// A family that splits its value by a further label.
    fn each_by(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        split: &[(&str, &dyn Fn(&Stats) -> f64)],
    ) {
        self.family(name, kind, help);
        for (rank, stats) in self.ranks.iter().enumerate() {
            for (labels, value) in split {
                self.sample(name, rank, labels, value(stats));
            }
        }
    }

    fn histogram(&mut self, name: &str, help: &str, of: impl Fn(&Stats) -> &Histogram) {
        self.family(name, "histogram", help);
        for (rank, stats) in self.ranks.iter().enumerate() {
            let histogram = of(stats);
            let bounds = histogram
                .bounds
                .iter()
                .map(|bound| format!("{bound:?}"))
                .chain(["+Inf".to_owned()]);
            let mut below = 0;
            for (bound, count) in bounds.zip(&histogram.counts) {
                below += count;
                self.sample(
                    &format!("{name}_bucket"),
                    rank,
                    &format!(",le=\"{bound}\""),
                    below as f64,
                );
            }
            self.sample(&format!("{name}_count"), rank, "", below as f64);
            self.sample(&format!("{name}_sum"), rank, "", histogram.sum);
        }
    }
}

/// The page of one replica, with a sample for each of its ranks.
pub fn render(process: &Process) -> String {
    let ranks: Vec<_> = process.ranks.iter().map(|rank| rank.stats()).collect();
    let mut page = Page {
        text: String::new(),
        model: &process.model,
        ranks: &ranks,
    };
    let start = "process_start_time_seconds";
    page.family(
        start,
        "gauge",
        "Start time of the process since unix epoch in seconds.",
    );
    _ = writeln!(page.text, "{start} {:?}", process.started_unix_s);
    gauges(&mut page);
    counters(&mut page);
    histograms(&mut page);
    cache_config(&mut page, process);
    page.text
}

fn gauges(page: &mut Page) {
    page.each(
        "vllm:num_requests_running",
        "gauge",
        "Number of requests in model execution batches.",
        |s| s.engine.running.into(),
    );
    page.each(
        "vllm:num_requests_waiting",
        "gauge",
        "Number of requests waiting to be processed.",
        |s| s.engine.waiting.into(),
    );
    let by_reason: [(&str, &dyn Fn(&Stats) -> f64); 2] = [
        (",reason=\"capacity\"", &|s| s.engine.waiting.into()),
        (",reason=\"deferred\"", &|_| 0.0),
    ];
    let help = "Number of waiting requests by reason.";
    page.each_by(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        help,
        &by_reason,
    );
    let states: [(&str, &dyn Fn(&Stats) -> f64); 3] = [
        (",sleep_state=\"awake\"", &|_| 1.0),
        (",sleep_state=\"weights_offloaded\"", &|_| 0.0),
        (",sleep_state=\"discard_all\"", &|_| 0.0),
    ];
    page.each_by(
        "vllm:engine_sleep_state",
        "gauge",
        "Engine sleep state.",
        &states,
    );
    let help = "KV-cache usage. 1 means 100 percent usage.";
    page.each("vllm:kv_cache_usage_perc", "gauge", help, |s| {
        s.engine.kv_usage
    });
}

fn counters(page: &mut Page) {
    let counter = "counter";
    let help = "Prefix cache queries, in terms of number of queried tokens.";
    page.each("vllm:prefix_cache_queries_total", counter, help, |s| {
        s.engine.prefix_cache.queries as f64
    });
    let help = "Prefix cache hits, in terms of number of cached tokens.";
    page.each("vllm:prefix_cache_hits_total", counter, help, |s| {
        s.engine.prefix_cache.hits as f64
    });
    let help = "Cumulative number of preemption from the engine.";
    page.each("vllm:num_preemptions_total", counter, help, |s| {
        s.engine.preemptions as f64
    });
    let help = "Number of prefill tokens processed.";
    page.each("vllm:prompt_tokens_total", counter, help, |s| {
        s.engine.prompt_tokens as f64
    });
    let cached = |s: &Stats| s.engine.prompt_tokens_cached as f64;
    let by_source: [(&str, &dyn Fn(&Stats) -> f64); 3] = [
        (",source=\"local_compute\"", &|s| {
            (s.engine.prompt_tokens - s.engine.prompt_tokens_cached) as f64
        }),
        (",source=\"local_cache_hit\"", &cached),
        (",source=\"external_kv_transfer\"", &|_| 0.0),
    ];
    let help = "Number of prompt tokens by source.";
    page.each_by(
        "vllm:prompt_tokens_by_source_total",
        counter,
        help,
        &by_source,
    );
    let help = "Number of cached prompt tokens (local + external).";
    page.each("vllm:prompt_tokens_cached_total", counter, help, cached);
    let help = "Number of generation tokens processed.";
    page.each("vllm:generation_tokens_total", counter, help, |s| {
        s.engine.generation_tokens as f64
    });
    let by_end: [(&str, &dyn Fn(&Stats) -> f64); 4] = [
        (",finished_reason=\"stop\"", &|s| s.stopped as f64),
        (",finished_reason=\"length\"", &|s| s.length as f64),
        (",finished_reason=\"abort\"", &|s| s.aborted as f64),
        (",finished_reason=\"error\"", &|_| 0.0),
    ];
    let help = "Count of successfully processed requests.";
    page.each_by("vllm:request_success_total", counter, help, &by_end);
}

fn histograms(page: &mut Page) {
    page.histogram(
        "vllm:request_prompt_tokens",
        "Number of prefill tokens processed.",
        |s| &s.prompt_tokens,
    );
    page.histogram(
        "vllm:request_generation_tokens",
        "Number of generation tokens processed.",
        |s| &s.generation_tokens,
    );
    let help = "Histogram of number of tokens per engine_step.";
    page.histogram("vllm:iteration_tokens_total", help, |s| &s.step_tokens);
    let help = "Histogram of the max_tokens request parameter.";
    page.histogram("vllm:request_params_max_tokens", help, |s| &s.max_tokens);
    let help = "Histogram of time to first token in seconds.";
    page.histogram("vllm:time_to_first_token_seconds", help, |s| {
        &s.first_token_s
    });
    let help = "Histogram of inter-token latency in seconds.";
    page.histogram("vllm:inter_token_latency_seconds", help, |s| {
        &s.inter_token_s
    });
    let help = "Histogram of time_per_output_token_seconds per request.";
    page.histogram("vllm:request_time_per_output_token_seconds", help, |s| {
        &s.time_per_token_s
    });
    let help = "Histogram of e2e request latency in seconds.";
    page.histogram("vllm:e2e_request_latency_seconds", help, |s| &s.e2e_s);
    let help = "Histogram of time spent in WAITING phase for request.";
    page.histogram("vllm:request_queue_time_seconds", help, |s| &s.queue_s);
    let help = "Histogram of time spent in RUNNING phase for request.";
    page.histogram("vllm:request_inference_time_seconds", help, |s| {
        &s.inference_s
    });
    let help = "Histogram of time spent in PREFILL phase for request.";
    page.histogram("vllm:request_prefill_time_seconds", help, |s| &s.prefill_s);
    let help = "Histogram of time spent in DECODE phase for request.";
    page.histogram("vllm:request_decode_time_seconds", help, |s| &s.decode_s);
    let help = "Histogram of the number of preemptions per request.";
    page.histogram("vllm:request_num_preemptions", help, |s| &s.preemptions);
    let help = "Histogram of new KV tokens computed during prefill (excluding cached tokens).";
    page.histogram("vllm:request_prefill_kv_computed_tokens", help, |s| {
        &s.computed_tokens
    });
}

fn cache_config(page: &mut Page, process: &Process) {
    let name = "vllm:cache_config_info";
    page.family(name, "gauge", "Information of the LLMEngine CacheConfig");
    let engine = &process.profile.engine;
    let (block_size, blocks) = (engine.block_size, engine.num_blocks());
    let size_tokens = block_size * blocks;
    let concurrency = f64::from(size_tokens) / f64::from(engine.max_model_len);
    for rank in 0..process.ranks.len() {
        _ = writeln!(
            page.text,
            "{name}{{block_size=\"{block_size}\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"{rank}\",\
             gpu_memory_utilization=\"0.9\",kv_cache_max_concurrency=\"{concurrency:?}\",\
             kv_cache_size_tokens=\"{size_tokens}\",num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",\
             num_gpu_blocks_override=\"None\",prefix_caching_hash_algo=\"sha256\",sliding_window=\"None\"}} 1.0"
        );
    }
}
