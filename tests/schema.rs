//! `homing schema`: a JSON schema that takes what `homing check` takes, and knows every setting.

use homing::config::{Config, schema};
use jsonschema::Validator;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const REFERENCE: &str = include_str!("../conf/homing.yaml");
const MINIMAL: &str = "models: [{replicas: [{url: 'http://h:1'}]}]\n";

fn validator() -> Validator {
    jsonschema::draft7::new(&schema()).expect("a valid schema of draft 7")
}

fn refused_by_schema(yaml: &str) -> Option<String> {
    let value: Value = serde_yaml::from_str(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    validator().validate(&value).err().map(|error| format!("{}: {error}", error.instance_path()))
}

fn refused_by_check(yaml: &str) -> Option<String> {
    Config::parse(Path::new("test.yaml"), yaml).err().map(|faults| faults.to_string())
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths.filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
}

#[test]
fn the_command_prints_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_homing")).arg("schema").output().expect("homing starts");
    assert_eq!(output.status.code(), Some(0));
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed, schema());
}

#[test]
fn what_is_shipped_is_valid() {
    let shipped = files("conf", "yaml");
    assert!(!shipped.is_empty());
    for path in shipped {
        let text = fs::read_to_string(&path).expect("it can be read");
        assert_eq!(refused_by_schema(&text), None, "{}", path.display());
        assert_eq!(refused_by_check(&text), None, "{}", path.display());
    }
}

/// The blocks of YAML in the documents that are whole configurations.
#[test]
fn what_the_documents_show_is_valid() {
    let mut shown = 0;
    let documents = files("docs", "md").into_iter().chain([root().join("README.md")]);
    for path in documents {
        let text = fs::read_to_string(&path).expect("it can be read");
        for block in text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            if block.contains("models:") {
                shown += 1;
                assert_eq!(refused_by_schema(block), None, "{}:\n{block}", path.display());
                assert_eq!(refused_by_check(block), None, "{}:\n{block}", path.display());
            }
        }
    }
    assert!(shown > 0);
}

/// Paths of all settings, as in `models[].name`, and those of them that have no description.
fn settings() -> (BTreeSet<String>, Vec<String>) {
    let (mut all, mut silent) = (BTreeSet::new(), Vec::new());
    walk(&schema(), "", &mut all, &mut silent);
    (all, silent)
}

fn walk(schema: &Value, path: &str, all: &mut BTreeSet<String>, silent: &mut Vec<String>) {
    let variants = schema["anyOf"].as_array().into_iter().flatten();
    variants.for_each(|variant| walk(variant, path, all, silent));
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{path}[]"), all, silent);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let is_group = inner["properties"].is_object();
        if !is_group && !inner["description"].is_string() {
            silent.push(path.clone());
        }
        walk(inner, &path, all, silent);
        all.insert(path);
    }
}

#[test]
fn every_setting_of_the_document_is_there_and_described() {
    let document = fs::read_to_string(root().join("docs/configuring.md")).expect("it can be read");
    let (all, silent) = settings();
    assert_eq!(silent, Vec::<String>::new());
    let table = document.split("## Settings").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let missing: Vec<&str> = rows.filter(|setting| !all.contains(*setting)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// Also the settings that stand in a comment there.
#[test]
fn every_setting_of_the_reference_is_there() {
    let (all, _) = settings();
    let names: BTreeSet<&str> = all.iter().filter_map(|path| path.rsplit('.').next()).collect();
    let mut seen = BTreeSet::new();
    for line in REFERENCE.lines() {
        let line = line.trim_start_matches([' ', '#', '-']);
        let Some((name, value)) = line.split_once(':') else { continue };
        let is_setting = value.is_empty() || value.starts_with(' ');
        if is_setting && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            assert!(names.contains(name), "{line}");
            seen.insert(name);
        }
    }
    assert!(seen.is_superset(&BTreeSet::from(["listen", "token", "dns", "kv_cache_tokens", "env"])), "{seen:?}");
}

#[test]
fn sound_values_are_taken_by_both() {
    let sound = [
        "server: {grace: 0, threads: 2, response_headers: off, access_log: off, limits: {body: 1024, buffered: 1GiB}}",
        "server:\nadmin: {}",
        "session: {sources: [], headers: [x-mine], agents: together}",
        "scrape: {interval: 100ms, timeout: 1 min, max_size: 8 MiB}",
    ];
    for settings in sound {
        let yaml = format!("{settings}\n{MINIMAL}");
        assert_eq!((refused_by_check(&yaml), refused_by_schema(&yaml)), (None, None), "{yaml}");
    }
    let models = [
        "affinity: yes, spill_threshold: 3, admission: observe",
        "spill_threshold: auto, admission: {mode: off, rotate: 3, linger: 0, max_wait: 1 min}",
        "admission: {rotate: off, linger: auto}, kv_cache_tokens: 1",
        "name: '1.10', max_num_seqs: 65536, admission: ~",
    ];
    for settings in models {
        let yaml = format!("models: [{{replicas: [{{url: 'http://h'}}], {settings}}}]");
        assert_eq!((refused_by_check(&yaml), refused_by_schema(&yaml)), (None, None), "{yaml}");
    }
    for replicas in ["{dns: 'h:1'}", "{dns: 'h:1', every: 1 h, data_parallel_size: 2}", "{file: f, every: 1s}"] {
        let yaml = format!("models: [{{replicas: {replicas}}}]");
        assert_eq!((refused_by_check(&yaml), refused_by_schema(&yaml)), (None, None), "{yaml}");
    }
}

#[test]
fn what_a_schema_can_refuse_is_refused_by_both() {
    let mut faulty: Vec<String> = [
        "",
        "hello",
        "models: []",
        "models: [{}]",
        "models: [{replicas: []}]",
        "models: [{replicas: [{}]}]",
        "models: [{replicas: 'http://h:1'}]",
        "models: [{replicas: {}}]",
        "models: [{replicas: {dns: 'h:1', file: f}}]",
        "models: [{replicas: {dns: 'h:1', data_parallel_size: 0}}]",
        "models: [{replicas: {dn: 'h:1'}}]",
        "models: [{replicas: {file: ''}}]",
        "models: [{replicas: {file: f, every: 10}}]",
        "models: [{replicas: [{url: 'http://h', data_parallel_size: 2000}]}]",
        "models: [{replicas: [{url: 'http://h', api_key: sk}]}]",
        "models: [{replicas: [{url: 'http://h', api_key: {}}]}]",
        "models: [{replicas: [{url: 'http://h', api_key: {file: f, env: E}}]}]",
        "models: [{name: 1.10, replicas: [{url: 'http://h'}]}]",
        "models: [{name: '', replicas: [{url: 'http://h'}]}]",
        "models: [{affinity: maybe, replicas: [{url: 'http://h'}]}]",
        "models: [{spill_threshold: 0, replicas: [{url: 'http://h'}]}]",
        "models: [{spill_threshold: never, replicas: [{url: 'http://h'}]}]",
        "models: [{admission: on, replicas: [{url: 'http://h'}]}]",
        "models: [{admission: {rotate: 0}, replicas: [{url: 'http://h'}]}]",
    ]
    .map(str::to_owned)
    .into();
    let before_models = [
        "sever: {}",
        "server: {thread: 4}",
        "server: {threads: 0}",
        "server: {threads: 1000}",
        "server: {grace: 10}",
        "server: {grace: 10 sec}",
        "server: {access_log: xml}",
        "server: {limits: {body: 64 MB}}",
        "server: {limits: {body: 1}}",
        "server: [x]",
        "listen: []",
        "listen: [{}]",
        "listen: '127.0.0.1:8080'",
        "session: {sources: [cookie]}",
        "session: {agents: none}",
    ];
    faulty.extend(before_models.iter().map(|settings| format!("{settings}\n{MINIMAL}")));
    for yaml in faulty {
        assert!(refused_by_check(&yaml).is_some(), "check takes {yaml}");
        assert!(refused_by_schema(&yaml).is_some(), "the schema takes {yaml}");
    }
}
