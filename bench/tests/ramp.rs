//! `homing-bench ramp`, as people and scripts use it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn ramp(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homing-bench")).arg("ramp").args(args).output().unwrap()
}

#[test]
fn results_are_written_as_json_and_as_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, plots) = (path("results.json"), path("plots"));
    let args = ["--arms", "off,affinity", "--tiers", "4,8", "--seeds", "2", "--json", &json, "--plot", &plots];
    let output = ramp(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&results["profile"], &results["load"]), (&"a4000-qwen3-4b".into(), &"published".into()));
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8, "two arms, two tiers, two seeds");
    let fields = [
        "arm",
        "sessions",
        "seed",
        "sessions_per_h",
        "output_tokens_per_min",
        "ttfb_p50_s",
        "ttfb_p95_s",
        "ttfb_mean_s",
        "replicas_busy",
        "prefix_hit_ratio",
        "prefix_hit_ratio_vllm",
        "stayed_ratio",
        "session_mean_s",
        "session_p95_s",
        "session_wait_mean_s",
        "completed_mean_s",
        "completed_p95_s",
        "completed_wait_mean_s",
    ];
    for row in rows {
        let row = row.as_object().unwrap();
        assert_eq!(row.len(), fields.len());
        for field in fields {
            // vLLM's balancer has no homes to stay at.
            let may_be_none = field == "stayed_ratio" && row["arm"] == "off";
            assert!(row.contains_key(field) && (may_be_none || !row[field].is_null()), "{field}: {row:?}");
        }
    }
    for picture in ["ttfb-p50", "ttfb-p95", "hits", "throughput", "busy", "session"] {
        let svg = std::fs::read_to_string(Path::new(&plots).join(format!("{picture}.svg"))).unwrap();
        assert!(svg.contains("<svg") && svg.contains("affinity") && svg.contains("off"), "{picture}");
    }
}

#[test]
fn the_table_stands_beside_the_published_figures() {
    let output = ramp(&["--arms", "off,affinity", "--tiers", "4"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("## off → affinity"), "{text}");
    assert!(text.contains("| published | 180 → 240 | 5886 → 6744 | 2.05 → 0.38 | 3.50 → 2.84 |"), "{text}");
    // Those are of the published load on equal replicas only.
    for other in [["--replicas", "5"], ["--speeds", "0.5,1,1,1"]] {
        let output = ramp(&[["--arms", "off,affinity", "--tiers", "4"].as_slice(), &other].concat());
        assert!(output.status.success() && !String::from_utf8(output.stdout).unwrap().contains("published"));
    }
}

#[test]
fn what_cannot_be_run_says_why() {
    let cases = [
        (["--load", "no-such-load"], "farm"),
        (["--profile", "no-such-profile"], "a4000-qwen3-4b"),
        (["--arms", "best"], "affinity"),
        (["--tiers", "0"], "1..=4096"),
        (["--speeds", "0.5,1"], "2 figures for 4 replicas"),
        (["--speeds", "0.5,1,1,none"], "none"),
        (["--told-capacity", "most"], "unknown"),
        (["--json", "no-such-folder/results.json"], "no-such-folder"),
    ];
    let live =
        [(["--live", "--speeds=0.5,1,1,1"], "--speeds"), (["--live", "--told-capacity=unknown"], "--told-capacity")];
    for (args, named) in cases.into_iter().chain(live) {
        let output = ramp(&args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(named), "{args:?}: {error}");
    }
}
