//! An engine's metrics: what is no series of vLLM changes nothing, and what is one counts.

use homing::fleet::vllm_metrics::parse;
use proptest::prelude::*;

use super::harness::{Fuzzer, files};

#[test]
fn only_the_series_of_vllm_count_and_all_of_them() {
    Fuzzer { name: "metrics", seeds: seeds(), words: WORDS }.run(|input| {
        let text = input.text();
        let read = parse(&text);
        for rank in read.ranks.values() {
            prop_assert!(rank.kv_cache_usage.is_none_or(|usage| (0.0..=1.0).contains(&usage)));
        }
        let series = |line: &&str| line.starts_with("vllm:") || line.starts_with("process_start_time_seconds");
        let alone: String =
            text.lines().filter(series).map(|line| format!("{line}\n# a comment 1\nother 2\n")).collect();
        prop_assert_eq!(&parse(&alone), &read);
        let running = |text: &str| parse(text).ranks.get(&7).and_then(|rank| rank.running);
        let before = running(&text).unwrap_or(0);
        let more =
            format!("{text}\nvllm:num_requests_running{{model_name=\"}} \\\" engine=\\\"3\",engine=\"7\"}} 5.0\n");
        // Above 2^52 a count has no exact neighbours.
        prop_assume!(before < 1 << 52);
        prop_assert_eq!(running(&more), Some(before + 5));
        Ok(())
    });
}

const WORDS: &[&str] = &[
    "\n",
    "\r\n",
    " ",
    "\t",
    "{",
    "}",
    "\"",
    "\\",
    "\\\"",
    "=",
    ",",
    "NaN",
    "+Inf",
    "-1",
    "1e308",
    "18446744073709551616",
    "é",
    "# HELP x\n",
    "vllm:num_requests_running{engine=\"7\"} 3\n",
    "vllm:num_requests_running 2\n",
    "engine=\"7\"",
    "engine=\"1024\"",
    "vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n",
    "vllm:gpu_cache_usage_perc 0.2\n",
    "vllm:cache_config_info{num_gpu_blocks=\"10\",block_size=\"16\"} 1\n",
    "process_start_time_seconds 5\n",
    "vllm:engine_sleep_state{sleep_state=\"awake\"} 0\n",
];

/// The captures without the histograms, which are most of them.
fn seeds() -> Vec<Vec<u8>> {
    let shortened = |page: &[u8]| {
        let text = String::from_utf8_lossy(page);
        let histogram = |line: &str| ["_bucket", "_sum", "_count", "_created"].iter().any(|end| line.contains(end));
        let series =
            text.lines().filter(|line| (line.starts_with("vllm:") || line.starts_with("process")) && !histogram(line));
        series.map(|line| format!("{line}\n")).collect::<String>().into_bytes()
    };
    files("samples/metrics").iter().map(|(_, page)| shortened(page)).collect()
}
