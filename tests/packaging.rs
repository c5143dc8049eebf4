//! The unit for systemd and the container file: what they start is what the binary takes, and their limits go with its defaults.

use std::path::Path;
use std::process::Command;

use homing::config::Config;

const UNIT: &str = include_str!("../conf/homing.service");
const CONTAINER: &str = include_str!("../conf/Containerfile");
const OPERATING: &str = include_str!("../docs/operating.md");
const MANIFEST: &str = include_str!("../Cargo.toml");

const INSTALLED: &str = "/usr/local/bin/homing";
const CONFIGURATION: &str = "/etc/homing/homing.yaml";

/// The values of a setting of the unit, in order.
fn unit(setting: &str) -> Vec<&'static str> {
    UNIT.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('=')).collect()
}

/// What stands behind an instruction of the container file, at each place where it stands.
fn container(instruction: &str) -> Vec<&'static str> {
    CONTAINER.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ')).collect()
}

/// The arguments of each call of the installed binary.
fn calls(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let calls = lines.flat_map(|line| line.split(INSTALLED).skip(1)).filter(|rest| rest.starts_with(' '));
    calls.map(|rest| rest.split_whitespace().take_while(|word| *word != "&").map(String::from).collect()).collect()
}

/// The words in the JSON list of an instruction.
fn words(list: &str) -> Vec<String> {
    serde_json::from_str(list).unwrap_or_else(|error| panic!("{list}: {error}"))
}

/// Calls the binary with a configuration that there is not: that, and nothing before it, must be what it misses.
fn takes(arguments: &[String]) {
    assert!(arguments.iter().any(|argument| argument == CONFIGURATION), "{arguments:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("homing.yaml");
    let arguments =
        arguments.iter().map(|word| if word == CONFIGURATION { missing.as_os_str() } else { word.as_ref() });
    let output = Command::new(env!("CARGO_BIN_EXE_homing")).args(arguments.clone()).output().expect("homing starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {said}", arguments.collect::<Vec<_>>());
    assert!(said.contains(&*missing.to_string_lossy()), "{said}");
}

#[test]
fn the_binary_takes_the_commands_of_the_unit() {
    let calls = calls(UNIT);
    assert_eq!(calls.len(), 2, "serve and check: {calls:?}");
    calls.iter().for_each(|call| takes(call));
}

#[test]
fn the_binary_takes_the_commands_that_the_documents_give_the_unit() {
    let calls = calls(OPERATING);
    assert_eq!(calls.len(), 2, "check and serve --upgrade: {calls:?}");
    calls.iter().for_each(|call| takes(call));
}

#[test]
fn the_binary_takes_the_command_of_the_container() {
    let (start, arguments) = (words(container("ENTRYPOINT")[0]), words(container("CMD")[0]));
    assert_eq!(start, [INSTALLED]);
    takes(&arguments);
}

#[test]
fn the_limits_of_the_unit_go_with_the_defaults() {
    let config =
        Config::parse(Path::new("homing.yaml"), "models: [{replicas: [{url: 'http://engine:1'}]}]").expect("it checks");
    let stop = humantime::parse_duration(unit("TimeoutStopSec")[0]).expect("a duration");
    assert!(stop > config.server.grace, "systemd would cut off what is in flight");
    let files: usize = unit("LimitNOFILE")[0].parse().expect("a number");
    assert!(files > 2 * config.server.limits.connections, "two for each connection, and some more");
}

#[test]
fn the_image_is_built_with_a_compiler_that_will_do_and_runs_where_it_was_linked() {
    let [builds, runs] = container("FROM")[..] else { panic!("two stages") };
    let needs = MANIFEST.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
    assert!(builds.starts_with(&format!("rust:{}-", needs.trim_matches('"'))), "{builds}");
    // The C library of the one must be that of the other.
    assert!(builds.contains("bookworm") && runs.contains("debian12"), "{builds}; {runs}");
    assert!(container("RUN").contains(&"cargo build --release --locked --bin homing"));
    assert_eq!(container("COPY")[1], format!("--from=build /source/target/release/homing {INSTALLED}"));
}

#[test]
fn the_image_runs_as_a_user_without_rights() {
    let (user, group) = container("USER")[0].split_once(':').expect("a user and a group");
    // Kubernetes knows only of a number that it is not root's.
    assert!(user.parse::<u32>().is_ok_and(|user| user > 0) && group.parse::<u32>().is_ok_and(|group| group > 0));
}
