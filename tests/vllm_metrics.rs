//! The metrics text: what counts, what is passed over.

use homing::fleet::vllm_metrics::{RankMetrics, parse};

/// The one rank of a text.
fn rank(text: &str) -> RankMetrics {
    let metrics = parse(text);
    assert_eq!(metrics.ranks.len(), 1, "{text}");
    metrics.ranks[&0].clone()
}

#[test]
fn values_are_read_as_prometheus_writes_them() {
    for (value, expected) in [
        ("3", Some(3)),
        ("3.0", Some(3)),
        ("3e2", Some(300)),
        ("1.795e+03", Some(1795)),
        ("  3 1795961820000", Some(3)),
        ("NaN", None),
        ("+Inf", None),
        ("-Inf", None),
        ("-1", None),
        ("three", None),
        ("", None),
    ] {
        let text = format!(
            "vllm:num_preemptions_total{{engine=\"0\"}} 0\nvllm:num_requests_running{{engine=\"0\"}} {value}\n"
        );
        assert_eq!(rank(&text).running, expected, "{value:?}");
    }
}

#[test]
fn labels_are_matched_by_name_in_any_order_and_with_escapes() {
    for labels in [
        r#"{engine="0",model_name="m"}"#,
        r#"{model_name="m",engine="0"}"#,
        r#"{model_name="a\"b,engine=\"7\"}\\",engine="0"}"#,
        r#"{ model_name="m", engine="0", }"#,
        r#"{not_engine="7",engine="0"}"#,
        r#"{model_name="engine=",engine="0"}"#,
        r#"{model_name="m"}"#,
        "",
    ] {
        assert_eq!(rank(&format!("vllm:num_requests_waiting{labels} 5")).waiting, Some(5), "{labels}");
    }
}

#[test]
fn models_of_one_engine_are_added_up_but_shares_are_not() {
    let rank = rank(
        "vllm:num_requests_running{engine=\"0\",model_name=\"base\"} 3\n\
         vllm:num_requests_running{engine=\"0\",model_name=\"lora\"} 4\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"base\"} 0.5\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"lora\"} 0.5\n",
    );
    assert_eq!((rank.running, rank.kv_cache_usage), (Some(7), Some(0.5)));
}

#[test]
fn old_names_count_where_the_new_ones_are_missing_and_never_twice() {
    let old = "vllm:gpu_cache_usage_perc{engine=\"0\"} 0.25\n\
               vllm:gpu_prefix_cache_queries_total{engine=\"0\"} 100\n\
               vllm:gpu_prefix_cache_hits_total{engine=\"0\"} 40\n";
    let both = format!("{old}{}", old.replace("gpu_cache", "kv_cache").replace("gpu_prefix", "prefix"));
    for text in [old, &both] {
        let rank = rank(text);
        assert_eq!((rank.kv_cache_usage, rank.prefix_queries, rank.prefix_hits), (Some(0.25), Some(100), Some(40)));
    }
}

#[test]
fn sleep_is_what_the_awake_state_says() {
    let text = |awake: u8| {
        format!(
            "vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"awake\"}} {awake}.0\n\
             vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"weights_offloaded\"}} {}.0\n",
            1 - awake
        )
    };
    assert_eq!(rank(&text(1)).asleep, Some(false));
    assert_eq!(rank(&text(0)).asleep, Some(true));
    assert_eq!(rank("vllm:num_requests_running 1").asleep, None);
}

#[test]
fn capacity_needs_numbers_that_fit() {
    for (labels, expected) in [
        (r#"block_size="16",num_gpu_blocks="100""#, Some(1600)),
        (r#"block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="1500""#, Some(1500)),
        (r#"block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="None""#, Some(1600)),
        (r#"block_size="None",num_gpu_blocks="100""#, None),
        (r#"num_gpu_blocks="100""#, None),
        (r#"block_size="18446744073709551615",num_gpu_blocks="2""#, None),
    ] {
        assert_eq!(
            rank(&format!("vllm:cache_config_info{{engine=\"0\",{labels}}} 1.0")).capacity_tokens,
            expected,
            "{labels}"
        );
    }
}

#[test]
fn what_is_not_vllm_is_told_apart() {
    for text in [
        "",
        "<html>not metrics</html>",
        "process_start_time_seconds 1.0\npython_info{version=\"3\"} 1.0\n",
        "sglang:num_running_reqs{model_name=\"m\"} 1.0\n",
        "# HELP vllm:num_requests_running only a comment\n",
        "vllm:num_requests_running{engine=\"0\n",
    ] {
        assert!(!parse(text).is_vllm(), "{text}");
    }
    assert!(parse("vllm:num_requests_running{engine=\"3\"} 0\n").is_vllm());
}

#[test]
fn ranks_that_no_engine_has_are_passed_over() {
    let text: String = (0..3000).map(|rank| format!("vllm:num_requests_running{{engine=\"{rank}\"}} 1\n")).collect();
    assert_eq!(parse(&text).ranks.len(), 1024);
    assert!(
        !parse("vllm:num_requests_running{engine=\"-1\"} 1\nvllm:num_requests_running{engine=\"x\"} 1\n").is_vllm()
    );
}
