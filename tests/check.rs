//! `homing check` as its user sees it: what it says of a file, where, and how it exits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Any model, one replica: what a file needs at least.
const MINIMAL: &str = "models: [{replicas: [{url: 'http://h:1'}]}]\n";

fn written(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("the folder for tests can be written");
    path
}

fn homing(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(arguments);
    command
}

fn check(path: &Path) -> Output {
    homing(&["check"]).arg(path).output().expect("homing starts")
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("homing writes UTF-8")
}

/// Asserts that the faults of `yaml` are exactly `expected`, each without the path of the file.
fn assert_faults(name: &str, yaml: impl AsRef<[u8]>, expected: &[&str]) {
    let path = written(&format!("{name}.yaml"), yaml);
    let output = check(&path);
    let prefix = format!("{}: ", path.display());
    let faults: Vec<&str> =
        text(&output.stderr).lines().map(|line| line.strip_prefix(&prefix).unwrap_or(line)).collect();
    assert_eq!(faults, expected, "faults of {name}");
    assert_eq!(output.status.code(), Some(1), "exit status for {name}");
    assert_eq!(text(&output.stdout), "", "standard output for {name}");
}

fn assert_ok(path: &Path, summary: &str) {
    let output = check(path);
    let expected = format!("{}: ok ({summary})\n", path.display());
    assert_eq!(text(&output.stderr), "", "for {}", path.display());
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_shipped_examples_check() {
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    assert_ok(&conf.join("homing.yaml"), "1 model, 5 replicas");
    assert_ok(&conf.join("engines.yaml"), "1 model, 2 replicas");
    assert_ok(&conf.join("data-parallel.yaml"), "1 model, 4 replicas");
    assert_ok(&conf.join("kubernetes.yaml"), "1 model, replicas discovered");
}

#[test]
fn sound_files_check() {
    let sound = [
        ("minimal", MINIMAL.to_owned()),
        ("byte-order-mark", format!("\u{feff}{MINIMAL}")),
        ("windows-lines", MINIMAL.replace('\n', "\r\n")),
        ("empty-sections", format!("server:\nadmin: {{}}\n{MINIMAL}")),
        ("explicit-document", format!("---\n{MINIMAL}...\n")),
        ("free-ports", format!("listen: [{{address: '127.0.0.1:0'}}, {{address: '127.0.0.1:0'}}]\n{MINIMAL}")),
        (
            "spill-above-capacity",
            "models: [{max_num_seqs: 8, spill_threshold: 64, replicas: [{url: 'http://h'}]}]".into(),
        ),
        ("no-sources", format!("session: {{sources: [], headers: [X-My-Session]}}\n{MINIMAL}")),
        ("ipv6", "listen: [{address: '[::1]:8080'}]\nmodels: [{replicas: [{url: 'http://[::1]:8101'}]}]".into()),
        ("anchors", "models: [{replicas: &r [{url: 'http://h:1'}], name: a}, {replicas: *r, name: b}]".into()),
    ];
    for (name, yaml) in sound {
        let path = written(&format!("sound-{name}.yaml"), yaml);
        let output = check(&path);
        assert_eq!(text(&output.stderr), "", "{name}");
        assert_eq!(output.status.code(), Some(0), "{name}");
    }
}

#[test]
fn every_fault_is_told_at_once_in_the_order_of_lines() {
    let yaml = "\
listen:
  - address: localhost:8080
server:
  grace: 10
  thread: 4
  access_log: xml
  limits: {body: 64 MB, connections: 1e3, header_read: -1}
models:
  - name: a
    affinity: maybe
    max_num_seqs: 99999999999999999999999999
    replicas:
      - url: ftp://h
      - [x]
    idle_forget: 30 min
    idle_forget: 30 min
  - replicas: []
";
    assert_faults(
        "all",
        yaml,
        &[
            "line 2, column 14: listen[0].address: expected an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080, \
             found \"localhost:8080\"",
            "line 4, column 10: server.grace: expected a duration from 0 s to 24 h, such as 10 min, found 10",
            "line 5, column 3: server: expected one of threads, grace, access_log, response_headers, state_file, upgrade_socket, \
             client_credentials, cors, limits, http2, found \"thread\"",
            "line 6, column 15: server.access_log: expected one of `text`, `json`, `off`, found \"xml\"",
            "line 7, column 18: server.limits.body: expected a size from 1 KiB to 1 GiB, such as 64 MiB, found \"64 MB\"",
            "line 7, column 38: server.limits.connections: expected a whole number from 1 to 1000000, such as 16384, found 1000.0",
            "line 7, column 56: server.limits.header_read: expected a duration from 100 ms to 5 min, such as 10 s, found -1",
            "line 10, column 15: models[0].affinity: expected on or off, found \"maybe\"",
            "line 11, column 19: models[0].max_num_seqs: expected a whole number from 1 to 65536, such as 256, \
             found 99999999999999999999999999",
            "line 13, column 14: models[0].replicas[0].url: expected http://HOST:PORT or https://HOST:PORT, \
             found \"ftp://h\"",
            "line 14, column 10: models[0].replicas[1]: expected a mapping, found a list",
            "line 16, column 5: models[0]: expected idle_forget once, found it again",
            "line 17, column 5: models[1].name: expected a name, since there are several models, found nothing",
            "line 17, column 5: models[1].replicas: expected a list of 1 to 1024 items, found 0",
        ],
    );
}

#[test]
fn what_stands_before_broken_yaml_is_checked_too() {
    let broken = [
        (
            "tab",
            "server:\n  threads: 0\nmodels:\n\t- name: a\n",
            "line 4, column 1: expected spaces at the start of the line, found a tab",
        ),
        (
            "open-bracket",
            "server:\n  threads: 0\nmodels: [\n",
            "line 4, column 1: expected valid YAML: did not find expected node content, while parsing a flow node",
        ),
        (
            "no-anchor",
            "server:\n  threads: 0\nmodels: *none\n",
            "line 3, column 9: expected valid YAML: unknown anchor",
        ),
        (
            "tag",
            "server:\n  threads: 0\nmodels: !mine []\n",
            "line 3, column 9: expected valid YAML: models: a tag (!) has no meaning here",
        ),
    ];
    for (name, yaml, fault) in broken {
        let threads = "line 2, column 12: server.threads: expected a whole number from 1 to 256, such as";
        let path = written(&format!("broken-{name}.yaml"), yaml);
        let output = check(&path);
        let faults: Vec<&str> = text(&output.stderr).lines().collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains(threads), "{faults:?}");
        assert_eq!(faults[1], format!("{}: {fault}", path.display()));
    }
}

#[test]
fn a_file_that_is_no_configuration_says_why() {
    let nothing = "line 1, column 1: models: expected a list of 1 to 256 items, found nothing";
    assert_faults("empty", "", &[nothing]);
    assert_faults(
        "comment",
        "# nothing yet\n",
        &["line 2, column 1: models: expected a list of 1 to 256 items, found nothing"],
    );
    assert_faults("scalar", "hello", &["line 1, column 1: expected a mapping, found \"hello\""]);
    assert_faults("list", "- a", &["line 1, column 3: expected a mapping, found a list"]);
    assert_faults("latin-1", b"models:\n  - name: caf\xe9\n", &["line 2, column 14: expected UTF-8 text"]);
    assert_faults("bell", "a: 1\nb: \u{7}\n", &["line 2, column 4: expected no control characters, found U+0007"]);
    assert_faults(
        "two-documents",
        format!("{MINIMAL}---\n{MINIMAL}"),
        &["line 3, column 1: expected one YAML document, found a second one"],
    );
    assert_faults("huge", vec![b'#'; (1 << 20) + 1], &["line 1, column 1: expected a file of at most 1 MiB"]);
    let output = check(Path::new("no-such-file.yaml"));
    assert!(text(&output.stderr).starts_with("no-such-file.yaml: cannot be read: "));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn aliases_cannot_grow_without_bound() {
    let items = "- x\n".repeat(1000);
    let aliases = "- *a\n".repeat(1000);
    let path = written("aliases.yaml", format!("a: &a\n{items}b:\n{aliases}"));
    let output = check(&path);
    let faults = text(&output.stderr);
    assert!(faults.contains("more than 100000 values"), "{faults}");
    assert_eq!(output.status.code(), Some(1));
}

/// Blocks of a line of YAML and the faults expected of it, one a line.
fn cases(table: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    table.trim().split("\n\n").filter_map(|block| {
        let mut lines = block.lines();
        Some((lines.next()?, lines.collect()))
    })
}

/// One wrong value in the first line of an otherwise sound file.
#[test]
fn wrong_values_are_named() {
    let table = include_str!("check/values.txt");
    for (index, (yaml, faults)) in cases(table).enumerate() {
        assert_faults(&format!("value-{index}"), format!("{yaml}\n{MINIMAL}"), &faults);
    }
}

/// A wrong URL after one that is sound.
#[test]
fn wrong_engines_are_named() {
    let table = include_str!("check/urls.txt");
    for (index, (url, faults)) in cases(table).enumerate() {
        let yaml = format!("models:\n- replicas:\n  - url: http://h:1\n  - url: {url}\n");
        assert_faults(&format!("url-{index}"), yaml, &faults);
    }
}

#[test]
fn models_must_be_told_apart() {
    let replicas = "replicas: [{url: 'http://h:1'}]";
    assert_faults(
        "same-names",
        format!("models:\n- name: a\n  {replicas}\n- name: a\n  {replicas}\n"),
        &["line 4, column 9: models[1].name: expected one that is not listed before, found \"a\""],
    );
    assert_faults(
        "number-as-name",
        format!("models:\n- name: 1.10\n  {replicas}\n"),
        &["line 2, column 9: models[0].name: expected text of 1 to 256 characters in quotes, found 1.1"],
    );
    assert_faults(
        "control-in-name",
        format!("models:\n- name: \"a\\tb\"\n  {replicas}\n"),
        &["line 2, column 9: models[0].name: expected text of 1 to 256 characters, found \"a\\tb\""],
    );
    assert_faults(
        "too-many-replicas",
        "models:\n- replicas:\n  - {url: 'http://a', data_parallel_size: 1024}\n  - {url: 'http://b', data_parallel_size: 1024}\n  \
         - {url: 'http://c', data_parallel_size: 1024}\n  - {url: 'http://d', data_parallel_size: 1024}\n  - {url: 'http://e'}\n",
        &["line 3, column 6: models[0].replicas: expected at most 4096 replicas, ranks counted, found 4097"],
    );
}

/// Where replicas are to be looked for; nobody looks.
#[test]
fn wrong_places_to_look_are_named() {
    let table = include_str!("check/discovery.txt");
    for (index, (replicas, faults)) in cases(table).enumerate() {
        assert_faults(&format!("discovery-{index}"), format!("models:\n- replicas: {replicas}\n"), &faults);
    }
    for (index, replicas) in ["{dns: 'no-such.host:1'}", "{file: no-such.yaml, every: 1 h}"].iter().enumerate() {
        let path = written(&format!("discovered-{index}.yaml"), format!("models: [{{replicas: {replicas}}}]\n"));
        assert_ok(&path, "1 model, replicas discovered");
    }
    let mixed = "models: [{name: a, replicas: [{url: 'http://h'}]}, {name: b, replicas: {file: f}}]";
    let path = written("mixed.yaml", mixed);
    assert_ok(&path, "2 models, 1 replica and those discovered");
}

/// One wrong setting of a model.
#[test]
fn wrong_settings_of_admission_and_recovery_are_named() {
    let cases = [
        ("admission: on", "admission: expected one of `auto`, `observe`, `off`, found \"on\""),
        ("admission: [auto]", "admission: expected a mapping, found a list"),
        ("admission: {mode: 1}", "admission.mode: expected one of `auto`, `observe`, `off`, found 1"),
        (
            "admission: {max_wait: 31 min}",
            "admission.max_wait: expected a duration from 0 s to 30 min, such as 4 min, found \"31 min\"",
        ),
        ("admission: {overdue: drop}", "admission.overdue: expected `refuse` or `admit`, found \"drop\""),
        (
            "admission: {parked_max: 1000001}",
            "admission.parked_max: expected a whole number from 0 to 1000000, such as 1024, found 1000001",
        ),
        ("admission: {rotate: 0}", "admission.rotate: expected off or a whole number from 1 to 1000, found 0"),
        (
            "admission: {rotate: auto}",
            "admission.rotate: expected off or a whole number from 1 to 1000, found \"auto\"",
        ),
        (
            "admission: {linger: 601 s}",
            "admission.linger: expected auto or a duration from 0 s to 10 min, found \"601 s\"",
        ),
        ("admission: {lingers: 1 s}", "lingers"),
        ("recovery: {pause: 1 min, pause_max: 10 s}", "recovery.pause_max: expected at least `pause`, found \"10 s\""),
        ("recovery: {failures: 0}", "recovery.failures: expected a whole number from 1 to 1000, such as 5, found 0"),
        (
            "kv_cache_tokens: auto",
            "kv_cache_tokens: expected a whole number from 1 to 1000000000, such as 200000, found \"auto\"",
        ),
    ];
    for (index, (setting, fault)) in cases.into_iter().enumerate() {
        let yaml = format!("models:\n- replicas: [{{url: 'http://h:1'}}]\n  {setting}\n");
        let output = check(&written(&format!("setting-{index}.yaml"), yaml));
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{setting}: {said}");
        assert!(said.contains(": line 3, column ") && said.contains(fault), "{setting}: {said}");
    }
}

/// Whatever is wrong with a secret, its fault repeats nothing that stands there.
#[test]
fn secrets_are_checked_and_never_shown() {
    written("empty.key", "\n");
    written("two-lines.key", "one\ntwo\n");
    written("sound.key", "sk-sound\n");
    let table = include_str!("check/secrets.txt");
    for (index, (key, faults)) in cases(table).enumerate() {
        let yaml = format!("admin:\n  token: {key}\n{MINIMAL}");
        assert_faults(&format!("secret-{index}"), yaml, &faults);
    }
    let yaml = "models: [{replicas: [{url: 'http://h', api_key: {file: sound.key}}]}]\nadmin: {token: {env: HOMING_TEST_TOKEN}}\n";
    let path = written("secrets.yaml", yaml);
    let output = homing(&["check"]).arg(&path).env("HOMING_TEST_TOKEN", "t").output().expect("homing starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// A caller or a key that is listed twice, and callers in a file beside, whose faults are told with both places.
#[test]
fn callers_must_be_told_apart() {
    let hash = |digit: char| format!("sha256:{}", digit.to_string().repeat(64));
    let caller = |name: &str, key: char| format!("- {{name: {name}, keys: ['{}']}}\n", hash(key));
    let two = |one: (&str, char), other: (&str, char)| caller(one.0, one.1) + &caller(other.0, other.1);
    let same_name = "[1].name: expected one that is not listed before, found \"a\"";
    let same_key = "[1].keys[0]: expected one that is not listed before, found something else";
    for (index, (list, fault)) in
        [(two(("a", '1'), ("a", '2')), same_name), (two(("a", '1'), ("b", '1')), same_key)].into_iter().enumerate()
    {
        let yaml = format!("{MINIMAL}callers:\n{list}");
        let output = check(&written(&format!("callers-{index}.yaml"), yaml));
        assert!(text(&output.stderr).contains(&format!(": callers{fault}")), "{}", text(&output.stderr));
        written(&format!("beside-{index}.yaml"), list);
        let path = written(
            &format!("callers-beside-{index}.yaml"),
            format!("{MINIMAL}callers: {{file: beside-{index}.yaml}}\n"),
        );
        let output = check(&path);
        let told = text(&output.stderr);
        assert!(
            told.contains(": line 2, column 17: callers.file: expected a sound list of callers, found in "),
            "{told}"
        );
        assert!(told.contains(&format!("beside-{index}.yaml: line 2, column ")) && told.contains(fault), "{told}");
    }
    let output = check(&written("callers-nowhere.yaml", format!("{MINIMAL}callers: {{file: none.yaml}}\n")));
    let told = text(&output.stderr);
    assert!(
        told.contains(": line 2, column 17: callers.file: ") && told.contains("none.yaml: cannot be read: "),
        "{told}"
    );
    written("beside-sound.yaml", two(("a", '1'), ("b", '2')));
    assert_ok(
        &written("callers-beside.yaml", format!("{MINIMAL}callers: {{file: beside-sound.yaml}}\n")),
        "1 model, 1 replica",
    );
}

/// A certificate for `h`, signed by itself, and its key.
fn pair() -> (String, String) {
    let pair = rcgen::generate_simple_self_signed(["h".to_owned()]).expect("a certificate");
    (pair.cert.pem(), pair.signing_key.serialize_pem())
}

#[test]
fn certificates_and_keys_are_read_and_checked() {
    let ((certificate, key), (_, another)) = (pair(), pair());
    written("sound.pem", &certificate);
    written("sound.pem.key", &key);
    written("another.pem.key", &another);
    written("both.pem", format!("{certificate}{key}"));
    written("empty.pem", "");
    written("broken.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    written("huge.pem", vec![b'#'; (1 << 20) + 1]);
    let sound = "\
listen:
- {address: '127.0.0.1:0', tls: {certificate: sound.pem, key: sound.pem.key}}
- {address: '127.0.0.1:0', tls: {certificate: both.pem, key: both.pem}}
models: [{tls: {ca: sound.pem}, replicas: [{url: 'https://h'}, {url: 'https://i', tls: {ca: both.pem, sni: h}}]}]
";
    assert_ok(&written("tls.yaml", sound), "1 model, 2 replicas");
    let table = include_str!("check/tls.txt");
    for (index, (tls, faults)) in cases(table).enumerate() {
        assert_faults(&format!("tls-{index}"), format!("{tls}\n{MINIMAL}"), &faults);
    }
    let table = include_str!("check/engines_tls.txt");
    for (index, (engine, faults)) in cases(table).enumerate() {
        let yaml = format!("models:\n- replicas:\n  - {engine}\n");
        assert_faults(&format!("engine-tls-{index}"), yaml, &faults);
    }
}

#[test]
fn serve_says_in_one_line_what_is_wrong_with_its_file() {
    let path = written("serve.yaml", "server: {threads: 0}\n");
    let output = homing(&["serve", "--config"]).arg(&path).output().expect("homing starts");
    let error = text(&output.stderr);
    assert!(error.starts_with(&format!("homing: {}: line 1, column 1: models: expected ", path.display())), "{error}");
    assert!(error.contains("; line 1, column 19: server.threads: expected "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn aliases_need_a_name_beside_them_and_stand_once() {
    let replicas = "replicas: [{url: 'http://h:1'}]";
    assert_faults(
        "aliases_without_a_name",
        format!("models:\n  - aliases: [a]\n    rewrite: on\n    usage_injection: on\n    {replicas}\n"),
        &[
            "line 2, column 15: models[0].aliases: expected none, since any name goes to a model without one, found a list",
            "line 3, column 14: models[0].rewrite: expected off, since the model has no name to put in place of the \
             client's, found \"on\"",
        ],
    );
    assert_faults(
        "aliases_twice",
        format!(
            "models:\n  - {{name: x, aliases: ['a*', b], {replicas}}}\n  - {{name: y, aliases: [b, 'a*', ''], rewrite: 7, \
             {replicas}}}\n"
        ),
        &[
            "line 3, column 25: models[1].aliases[0]: expected one that is not listed before, found \"b\"",
            "line 3, column 28: models[1].aliases[1]: expected one that is not listed before, found \"a*\"",
            "line 3, column 34: models[1].aliases[2]: expected text of 1 to 256 characters, found \"\"",
            "line 3, column 48: models[1].rewrite: expected on or off, found 7",
        ],
    );
    let path = written("aliases_sound.yaml", format!("models: [{{aliases: [], rewrite: off, {replicas}}}]\n"));
    assert_ok(&path, "1 model, 1 replica");
}
