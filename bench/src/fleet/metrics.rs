//! `/metrics` under vLLM's names and labels, in Prometheus' text format.
//!
//! Of vLLM 0.32's families those are left out that a model without weights, adapters or images has nothing to say in.
//! Times are the engine's own: with a fleet that runs faster than real time they are not those of the clock.

use std::fmt::Write;

use super::process::Process;
use super::stats::{Histogram, Stats};

/// Where a sample's value comes from.
type Value = fn(&Stats) -> f64;

/// A gauge or counter. Each value has its own labels, those besides the engine and the model.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    values: &'static [(&'static str, Value)],
}

const FAMILIES: &[Family] = &[
    Family {
        name: "vllm:num_requests_running",
        kind: "gauge",
        help: "Number of requests in model execution batches.",
        values: &[("", |s| s.engine.running.into())],
    },
    Family {
        name: "vllm:num_requests_waiting",
        kind: "gauge",
        help: "Number of requests waiting to be processed.",
        values: &[("", |s| s.engine.waiting.into())],
    },
    Family {
        name: "vllm:num_requests_waiting_by_reason",
        kind: "gauge",
        help: "Number of waiting requests by reason.",
        values: &[(",reason=\"capacity\"", |s| s.engine.waiting.into()), (",reason=\"deferred\"", |_| 0.0)],
    },
    Family {
        name: "vllm:engine_sleep_state",
        kind: "gauge",
        help: "Engine sleep state.",
        values: &[
            (",sleep_state=\"awake\"", |_| 1.0),
            (",sleep_state=\"weights_offloaded\"", |_| 0.0),
            (",sleep_state=\"discard_all\"", |_| 0.0),
        ],
    },
    Family {
        name: "vllm:kv_cache_usage_perc",
        kind: "gauge",
        help: "KV-cache usage. 1 means 100 percent usage.",
        values: &[("", |s| s.engine.kv_usage)],
    },
    Family {
        name: "vllm:prefix_cache_queries_total",
        kind: "counter",
        help: "Prefix cache queries, in terms of number of queried tokens.",
        values: &[("", |s| s.engine.prefix_cache.queries as f64)],
    },
    Family {
        name: "vllm:prefix_cache_hits_total",
        kind: "counter",
        help: "Prefix cache hits, in terms of number of cached tokens.",
        values: &[("", |s| s.engine.prefix_cache.hits as f64)],
    },
    Family {
        name: "vllm:num_preemptions_total",
        kind: "counter",
        help: "Cumulative number of preemption from the engine.",
        values: &[("", |s| s.engine.preemptions as f64)],
    },
    Family {
        name: "vllm:prompt_tokens_total",
        kind: "counter",
        help: "Number of prefill tokens processed.",
        values: &[("", |s| s.engine.prompt_tokens as f64)],
    },
    Family {
        name: "vllm:prompt_tokens_by_source_total",
        kind: "counter",
        help: "Number of prompt tokens by source.",
        values: &[
            (",source=\"local_compute\"", |s| (s.engine.prompt_tokens - s.engine.prompt_tokens_cached) as f64),
            (",source=\"local_cache_hit\"", |s| s.engine.prompt_tokens_cached as f64),
            (",source=\"external_kv_transfer\"", |_| 0.0),
        ],
    },
    Family {
        name: "vllm:prompt_tokens_cached_total",
        kind: "counter",
        help: "Number of cached prompt tokens (local + external).",
        values: &[("", |s| s.engine.prompt_tokens_cached as f64)],
    },
    Family {
        name: "vllm:generation_tokens_total",
        kind: "counter",
        help: "Number of generation tokens processed.",
        values: &[("", |s| s.engine.generation_tokens as f64)],
    },
    Family {
        name: "vllm:request_success_total",
        kind: "counter",
        help: "Count of successfully processed requests.",
        values: &[
            (",finished_reason=\"stop\"", |s| s.stopped as f64),
            (",finished_reason=\"length\"", |s| s.length as f64),
            (",finished_reason=\"abort\"", |s| s.aborted as f64),
            (",finished_reason=\"error\"", |_| 0.0),
        ],
    },
];

/// A histogram's name, help, and where it is kept.
type HistogramFamily = (&'static str, &'static str, fn(&Stats) -> &Histogram);

const HISTOGRAMS: &[HistogramFamily] = &[
    ("vllm:request_prompt_tokens", "Number of prefill tokens processed.", |s| &s.prompt_tokens),
    ("vllm:request_generation_tokens", "Number of generation tokens processed.", |s| &s.generation_tokens),
    ("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", |s| &s.step_tokens),
    ("vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", |s| &s.max_tokens),
    ("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", |s| &s.first_token_s),
    ("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", |s| &s.inter_token_s),
    ("vllm:request_time_per_output_token_seconds", "Histogram of time per output token per request.", |s| {
        &s.time_per_token_s
    }),
    ("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", |s| &s.e2e_s),
    ("vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", |s| &s.queue_s),
    ("vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", |s| {
        &s.inference_s
    }),
    ("vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", |s| &s.prefill_s),
    ("vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", |s| &s.decode_s),
    ("vllm:request_num_preemptions", "Histogram of the number of preemptions per request.", |s| &s.preemptions),
    ("vllm:request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill.", |s| {
        &s.computed_tokens
    }),
];

/// The page of one replica, with a sample of every family for each of its ranks.
pub fn render(process: &Process) -> String {
    let ranks: Vec<_> = process.ranks.iter().map(|rank| rank.stats()).collect();
    let mut page = Page { text: String::new(), model: &process.model };
    page.start_time(process.started_unix_s);
    for family in FAMILIES {
        page.head(family.name, family.kind, family.help);
        for (rank, stats) in ranks.iter().enumerate() {
            for (labels, value) in family.values {
                page.sample(family.name, rank, labels, value(stats));
            }
        }
    }
    for (name, help, of) in HISTOGRAMS {
        page.head(name, "histogram", help);
        ranks.iter().enumerate().for_each(|(rank, stats)| page.histogram(name, rank, of(stats)));
    }
    page.cache_config(process);
    page.text
}

struct Page<'a> {
    text: String,
    model: &'a str,
}

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, rank: usize, labels: &str, value: f64) {
        let model = self.model;
        _ = writeln!(self.text, "{name}{{engine=\"{rank}\",model_name=\"{model}\"{labels}}} {value:?}");
    }

    fn histogram(&mut self, name: &str, rank: usize, histogram: &Histogram) {
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}")).chain(["+Inf".to_owned()]);
        let mut below = 0;
        for (bound, count) in bounds.zip(&histogram.counts) {
            below += count;
            self.sample(&format!("{name}_bucket"), rank, &format!(",le=\"{bound}\""), below as f64);
        }
        self.sample(&format!("{name}_count"), rank, "", below as f64);
        self.sample(&format!("{name}_sum"), rank, "", histogram.sum);
    }

    fn start_time(&mut self, unix_s: f64) {
        let name = "process_start_time_seconds";
        self.head(name, "gauge", "Start time of the process since unix epoch in seconds.");
        _ = writeln!(self.text, "{name} {unix_s:?}");
    }

    fn cache_config(&mut self, process: &Process) {
        let name = "vllm:cache_config_info";
        self.head(name, "gauge", "Information of the LLMEngine CacheConfig");
        let engine = &process.profile.engine;
        let (block_size, blocks) = (engine.block_size, engine.num_blocks());
        let size_tokens = block_size * blocks;
        let concurrency = f64::from(size_tokens) / f64::from(engine.max_model_len);
        for rank in 0..process.ranks.len() {
            _ = writeln!(
                self.text,
                "{name}{{block_size=\"{block_size}\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",\
                 engine=\"{rank}\",gpu_memory_utilization=\"0.9\",kv_cache_max_concurrency=\"{concurrency:?}\",\
                 kv_cache_size_tokens=\"{size_tokens}\",num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",\
                 num_gpu_blocks_override=\"None\",prefix_caching_hash_algo=\"sha256\",sliding_window=\"None\"}} 1.0"
            );
        }
    }
}
