//! What Prometheus and Grafana are given: every metric in the rules and the dashboard is one that the balancer has, and
//! promtool finds nothing to say.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use homing::config::KeyHash;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::harness::*;

const RULES: &str = include_str!("../../conf/prometheus/rules.yaml");
const RULES_TEST: &str = include_str!("../prometheus/rules_test.yaml");
const DASHBOARD: &str = include_str!("../../conf/grafana/homing.json");

/// A balancer of which something of every kind has been asked, so that each of its metrics has a value.
async fn of_everything() -> (Vec<Engine>, Balancer) {
    let mut engines: Vec<Engine> = engines::<2>().await.into();
    let mut config = json!({"server": {"state_file": "state"}});
    let caller = |name: &str| {
        let key = KeyHash::of(format!("key-of-{name}").as_bytes()).to_string();
        json!({"name": name, "keys": [key], "models": [if name == "ann" { "*" } else { "n*" }]})
    };
    config["callers"] = json!(["ann", "bob"].map(caller));
    config["models"] = json!([
        model("m", &engines, json!({"kv_cache_tokens": 100_000})),
        model("full", &engines[1..], json!({"kv_cache_tokens": 1000, "admission": {"max_wait": "0 s", "linger": "1 min"}})),
        {"name": "n", "replicas": {"file": "no-such-file.yaml"}},
    ]);
    let balancer = Balancer::start(config).await;
    let by = |ask: Ask, name: &str| ask.header("authorization", &format!("Bearer key-of-{name}"));
    let turn = || Ask::chat("m", "Hello.").session("conversation-a");
    let asks = [
        (by(turn(), "ann"), 200),
        (by(turn(), "ann"), 200),
        (by(turn(), "bob"), 403),
        (by(Ask::chat("full", "Hello.").session("conversation-a"), "ann"), 200),
        (by(Ask::chat("full", "Hello.").session("conversation-b"), "ann"), 503),
        (by(Ask::turn("/v1/messages/count_tokens", "m", "Hello."), "ann"), 200),
        (by(Ask::get("/unknown"), "ann"), 404),
        (Ask::get("/version"), 401),
        (Ask::get("/health"), 200),
        (by(Ask::post("/v1/messages", &json!({})).header("x-long", &"x".repeat(70 << 10)), "ann"), 431),
    ];
    for (ask, status) in asks {
        assert_eq!(balancer.ask(&ask).await.status, status, "{} {}", ask.method, ask.target);
    }
    engines[0].refuse();
    assert_eq!(balancer.ask(&by(turn(), "ann")).await.status, 200);
    engines[0].listen();
    assert_eq!(balancer.ask_admin(&Ask::new("POST", "/reload")).await.status, 200);
    balancer.idle().await;
    balancer.scraped().await;
    (engines, balancer)
}

async fn scrape(balancer: &Balancer) -> String {
    balancer.ask_admin(&Ask::get("/metrics")).await.text()
}

/// The names of Homing's metrics in an expression, each with the labels that are asked for behind it.
fn metrics_in(expression: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for (start, _) in expression.match_indices("homing_") {
        let before = expression[..start].chars().next_back();
        if before.is_some_and(|before| before.is_ascii_alphanumeric() || "_:".contains(before)) {
            continue;
        }
        let rest = &expression[start..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let matchers =
            rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inner, _)| inner);
        // A value may hold a comma or a sign, but no quote.
        let outside = matchers.split('"').step_by(2).collect::<Vec<_>>().join("");
        let labels = outside.split(',').map(|part| part.trim().trim_end_matches(['=', '~', '!']).to_owned());
        found.push((rest[..end].to_owned(), labels.filter(|label| !label.is_empty()).collect()));
    }
    found
}

/// Every text in a document under this name.
fn under<'a>(document: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match document {
        Value::Object(fields) => fields.iter().for_each(|(field, value)| match value {
            Value::String(text) if field == name => found.push(text),
            value => under(value, name, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| under(item, name, found)),
        _ => {}
    }
}

fn expressions() -> Vec<String> {
    let rules: Value = serde_yaml::from_str(RULES).expect("YAML");
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut found = Vec::new();
    under(&rules, "expr", &mut found);
    under(&dashboard, "expr", &mut found);
    under(&dashboard, "query", &mut found);
    assert!(found.len() > 60, "expressions are found: {}", found.len());
    found.into_iter().map(str::to_owned).collect()
}

fn alerts() -> Vec<Value> {
    let rules: Value = serde_yaml::from_str(RULES).expect("YAML");
    let all =
        rules["groups"].as_array().expect("groups").iter().flat_map(|group| group["rules"].as_array().expect("rules"));
    all.filter(|rule| rule["alert"].is_string()).cloned().collect()
}

#[tokio::test]
async fn every_metric_of_rules_and_dashboard_is_there_with_its_labels() {
    let (_engines, balancer) = of_everything().await;
    let scraped = prometheus::Samples::parse(&scrape(&balancer).await);
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in &scraped.samples {
        labels.entry(&sample.name).or_default().extend(sample.labels.keys().map(String::as_str));
    }
    for expression in expressions() {
        for (name, asked) in metrics_in(&expression) {
            let known = labels.get(name.as_str()).unwrap_or_else(|| panic!("no metric {name}, in {expression}"));
            for label in asked {
                // Prometheus itself says which balancer it scraped.
                assert!(
                    label == "instance" || known.contains(label.as_str()),
                    "{name} has no {label}, in {expression}"
                );
            }
        }
    }
}

#[test]
fn each_alert_says_what_to_do_and_has_a_case_in_which_it_fires() {
    let cases: Value = serde_yaml::from_str(RULES_TEST).expect("YAML");
    let cases = cases["tests"]
        .as_array()
        .expect("tests")
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().expect("cases"));
    let fires: BTreeSet<&str> = cases
        .filter(|case| case["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()))
        .filter_map(|case| case["alertname"].as_str())
        .collect();
    let observing = include_str!("../../docs/observing.md");
    let alerts = alerts();
    assert!(alerts.len() > 15);
    for alert in &alerts {
        let name = alert["alert"].as_str().expect("a name");
        assert!(fires.contains(name), "no case for {name}");
        assert!(observing.contains(&format!("`{name}`")), "docs/observing.md says nothing of {name}");
        let severity = alert["labels"]["severity"].as_str().unwrap_or_default();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
        for annotation in ["summary", "description"] {
            assert!(
                alert["annotations"][annotation].as_str().is_some_and(|text| text.ends_with('.')),
                "{name}: {annotation}"
            );
        }
    }
}

#[test]
fn the_dashboard_is_whole_and_its_panels_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"));
        assert!(x + w <= 24, "{panel}");
        for cell in (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column))) {
            assert!(taken.insert(cell), "{} overlaps", panel["title"]);
        }
        let described = panel["type"] == "row" || panel["description"].as_str().is_some_and(|text| !text.is_empty());
        assert!(described && panel["title"].is_string(), "{panel}");
    }
}

/// Units of Grafana; another name would be shown as it stands behind every number.
const UNITS: [&str; 6] = ["short", "percentunit", "s", "reqps", "cps", "bytes"];

/// The labels that an expression keeps, by its outermost `by`.
fn kept(expression: &str) -> Vec<&str> {
    let outermost = expression.split_once("by (").and_then(|(_, rest)| rest.split_once(')'));
    outermost
        .map_or(Vec::new(), |(labels, _)| labels.split(',').map(str::trim).filter(|label| *label != "le").collect())
}

#[test]
fn each_panel_has_a_unit_and_tells_its_series_apart() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let chosen = json!({"type": "prometheus", "uid": "${datasource}"});
    let panels = dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] != "row");
    for panel in panels {
        let title = &panel["title"];
        assert_eq!(panel["datasource"], chosen, "{title}");
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or_default();
        assert!(UNITS.contains(&unit), "{title}: {unit}");
        let mut legends = BTreeSet::new();
        for target in panel["targets"].as_array().expect("targets") {
            assert_eq!(target["datasource"], chosen, "{title}");
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            assert!(!legend.is_empty() && legends.insert(legend), "{title}: {legend}");
            for label in kept(target["expr"].as_str().expect("an expression")) {
                assert!(legend.contains(&format!("{{{{{label}}}}}")), "{title}: {legend} without {label}");
            }
        }
    }
}

#[test]
fn what_the_dashboard_asks_beside_its_panels_goes_to_the_chosen_prometheus() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let chosen = json!({"type": "prometheus", "uid": "${datasource}"});
    let (first, others) =
        dashboard["templating"]["list"].as_array().and_then(|list| list.split_first()).expect("variables");
    assert_eq!((&first["type"], &first["name"]), (&json!("datasource"), &json!("datasource")));
    for variable in others {
        assert_eq!(variable["datasource"], chosen, "{variable}");
        assert_eq!(variable["query"]["query"], variable["definition"], "{variable}");
    }
    for annotation in dashboard["annotations"]["list"].as_array().expect("annotations") {
        // Grafana runs what stands in the target, and quietly nothing where there is none.
        assert!(annotation["target"]["expr"].is_string(), "{annotation}");
        assert_eq!([&annotation["datasource"], &annotation["target"]["datasource"]], [&chosen; 2], "{annotation}");
    }
}

/// Runs promtool, which `make test-prometheus` finds or fetches.
async fn promtool(arguments: &[&str], input: &str) {
    let tool = std::env::var("PROMTOOL").unwrap_or("promtool".into());
    let mut command = Command::new(tool);
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::piped()).kill_on_drop(true);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("promtool runs");
    let mut stdin = running.stdin.take().expect("stdin is piped");
    stdin.write_all(input.as_bytes()).await.expect("promtool reads");
    drop(stdin);
    let output = within("the end of promtool", running.wait_with_output()).await.expect("its output");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

#[tokio::test]
#[ignore = "needs promtool: make test-prometheus"]
async fn promtool_finds_nothing_wrong() {
    let (_engines, balancer) = of_everything().await;
    promtool(&["check", "metrics"], &scrape(&balancer).await).await;
    promtool(&["check", "rules", "conf/prometheus/rules.yaml"], "").await;
    promtool(&["test", "rules", "tests/prometheus/rules_test.yaml"], "").await;
    // The dashboard's expressions, as rules.
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut expressions = Vec::new();
    under(&dashboard, "expr", &mut expressions);
    let rule = |(index, expression): (usize, &&str)| json!({"record": format!("panel:{index}"), "expr": expression.replace("$__rate_interval", "1m")});
    let rules: Vec<Value> = expressions.iter().enumerate().map(rule).collect();
    let file = balancer.path("dashboard.yaml");
    std::fs::write(&file, json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()).expect("a file");
    promtool(&["check", "rules", file.to_str().expect("text")], "").await;
}
