//! What a file that checks means, what a reload may change, and that no text at all breaks the reader.

use homing::config::{
    AccessLog, Agents, Bounds, ClientCredentials, Config, EngineUrl, Faults, Quantity, Replicas, Source,
    SpillThreshold, settings,
};
use homing::request::source::KeySource;
use homing::routing::{Admission, AdmissionMode, Overdue, Recovery};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::time::Duration;

const REFERENCE: &str = include_str!("../conf/homing.yaml");
const DOCUMENT: &str = include_str!("../docs/configuring.md");
const MINIMAL: &str = "models: [{replicas: [{url: 'http://h:1'}]}]\n";

fn parse(text: &str) -> Result<Config, Faults> {
    Config::parse(Path::new("test.yaml"), text)
}

fn sound(text: &str) -> Config {
    parse(text).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

#[test]
fn the_reference_states_the_defaults() {
    let reference = sound(REFERENCE);
    let defaults = sound(MINIMAL);
    assert_eq!(reference.listen, defaults.listen);
    assert_eq!(reference.admin, defaults.admin);
    assert_eq!(reference.server, defaults.server);
    assert_eq!(reference.session, defaults.session);
    assert_eq!(reference.scrape, defaults.scrape);
    assert_eq!(reference.callers, defaults.callers);
    let (stated, default) = (&reference.models[0], &defaults.models[0]);
    assert_eq!(stated.affinity, default.affinity);
    assert_eq!(stated.spill_threshold, default.spill_threshold);
    assert_eq!(stated.idle_forget, default.idle_forget);
    assert_eq!(stated.conversations_max, default.conversations_max);
    assert_eq!(stated.admission, default.admission);
    assert_eq!(stated.recovery, default.recovery);
    assert_eq!(default.recovery, Recovery::default());
    assert_eq!(stated.timeouts, default.timeouts);
    assert_eq!(default.admission, Admission::default());
}

#[test]
fn values_are_read_as_written() {
    let config = sound(
        "\
listen: [{address: '0.0.0.0:80'}, {address: '[::1]:80'}]
admin: {address: '127.0.0.1:0'}
server:
  threads: 2
  grace: 0
  access_log: off
  response_headers: no
  client_credentials: drop
  state_file: kept/state
  limits: {body: 512MiB, buffered: 1073741824, header_read: 500 ms, body_read: 2min, idle: 5 s, connections: 7}
  http2: {streams: 3, header_list: 16 KiB, window: 65536}
session: {headers: [X-Session], sources: [opening, body_user], agents: together}
scrape: {interval: 1 s, timeout: 250ms, max_size: 1 KiB}
models:
  - name: on
    affinity: OFF
    spill_threshold: 3
    max_num_seqs: 0x10
    idle_forget: 1 h
    conversations_max: 5
    http2: on
    replicas: [{url: 'http://Engine_1/', http2: off}, {url: 'https://[0:0::1]:81', data_parallel_size: 4}]
",
    );
    assert_eq!(config.listen[1].address.to_string(), "[::1]:80");
    assert_eq!(config.server.threads, 2);
    assert_eq!(config.server.grace, Duration::ZERO);
    assert_eq!(config.server.access_log, AccessLog::Off);
    assert!(!config.server.response_headers);
    assert_eq!(config.server.client_credentials, ClientCredentials::Drop);
    assert_eq!(config.server.state_file.as_deref(), Some(Path::new("kept/state")));
    let limits = &config.server.limits;
    assert_eq!((limits.body_bytes, limits.buffered_bytes), (1 << 29, 1 << 30));
    assert_eq!(limits.header_read, Duration::from_millis(500));
    assert_eq!(limits.body_read, Duration::from_secs(120));
    assert_eq!((limits.idle, limits.connections), (Duration::from_secs(5), 7));
    let http2 = &config.server.http2;
    assert_eq!((http2.streams, http2.header_list_bytes, http2.window_bytes), (3, 16 << 10, 64 << 10));
    assert_eq!(config.session.headers, ["x-session"]);
    assert_eq!(config.session.sources, [KeySource::Opening, KeySource::BodyUser]);
    assert_eq!(config.session.agents, Agents::Together);
    assert_eq!(config.scrape.timeout, Duration::from_millis(250));
    assert_eq!(config.scrape.max_bytes, 1024);
    let model = &config.models[0];
    assert_eq!(model.name.as_deref(), Some("on"));
    assert!(!model.affinity);
    assert_eq!(model.spill_threshold, SpillThreshold::Set(3));
    assert_eq!(model.max_num_seqs, Some(16));
    let replicas = model.replicas.listed();
    assert_eq!(replicas[0].url.name(), "engine_1:80");
    assert_eq!(replicas[1].url.name(), "[::1]:81");
    assert_eq!([false, true], [0, 1].map(|n| replicas[n].url.tls()));
    assert_eq!([false, true], [0, 1].map(|n| replicas[n].transport.http2));
    assert_eq!(replicas[1].url.host(), "::1");
    assert_eq!(config.replicas(), 5);
}

#[test]
fn replicas_may_be_looked_for() {
    let discovery = |replicas: &str| {
        let config = sound(&format!("listen: [{{address: '0.0.0.0:8080'}}]\nmodels: [{{replicas: {replicas}}}]"));
        assert!(config.discovers());
        match &config.models[0].replicas {
            Replicas::Discovered(discovery) => discovery.clone(),
            Replicas::Listed(_) => panic!("{replicas}"),
        }
    };
    let by_name = discovery("{dns: 'VLLM.svc:8000', every: 10 s, data_parallel_size: 4}");
    assert_eq!(by_name.every, Duration::from_secs(10));
    let Source::Dns(named) = &by_name.source else { panic!("{by_name:?}") };
    assert_eq!((named.url.name(), named.data_parallel_size), ("vllm.svc:8000".into(), 4));
    let at = |address: &str| by_name.engine_at(named, address.parse().expect("an address"));
    let found = at("fd00::1").expect("an engine");
    assert_eq!((found.url.name(), found.data_parallel_size), ("[fd00::1]:8000".into(), 4));

    let in_file = discovery("{file: replicas.yaml}");
    assert_eq!(in_file.source, Source::File("replicas.yaml".into()));
    assert_eq!(in_file.every, settings::DISCOVERY_EVERY.default);
    // Neither may lead back here.
    let own = discovery("{dns: 'balancer.svc:8080'}");
    let Source::Dns(named) = &own.source else { panic!("{own:?}") };
    assert!(own.engine_at(named, "127.0.0.1".parse().expect("an address")).is_err());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own.yaml");
    fs::write(&file, "- url: http://127.0.0.1:8080").expect("the folder for tests can be written");
    let faults = own.read(&file).expect_err("an address of this balancer").to_string();
    assert!(faults.contains("[0].url: expected an engine, not an address of this balancer"), "{faults}");
}

#[test]
fn admission_is_a_word_or_a_mapping() {
    let admission = |settings: &str| {
        let config = sound(&format!("models: [{{replicas: [{{url: 'http://h:1'}}], {settings}}}]"));
        config.models[0].admission.clone()
    };
    for (word, mode) in
        [("auto", AdmissionMode::Auto), ("observe", AdmissionMode::Observe), ("off", AdmissionMode::Off)]
    {
        let expected = Admission { mode, ..Admission::default() };
        assert_eq!(admission(&format!("admission: {word}")), expected);
        assert_eq!(admission(&format!("admission: {{mode: {word}}}")), expected);
    }
    let set = Admission {
        mode: AdmissionMode::Auto,
        kv_cache_tokens: Some(150_000),
        max_wait: Duration::ZERO,
        overdue: Overdue::Admit,
        parked_max: 0,
        rotate: Some(3),
        linger: Some(Duration::from_millis(500)),
    };
    let all = "{max_wait: 0, overdue: admit, parked_max: 0, rotate: 3, linger: 500 ms}";
    assert_eq!(admission(&format!("kv_cache_tokens: 150000, admission: {all}")), set);
    assert_eq!(admission("admission: {rotate: off, linger: auto}"), Admission::default());
}

#[test]
fn switches_are_read_in_every_spelling() {
    for (word, on) in [
        ("on", true),
        ("true", true),
        ("yes", true),
        ("On", true),
        ("'on'", true),
        ("off", false),
        ("false", false),
        ("no", false),
        ("FALSE", false),
    ] {
        let config = sound(&format!("server: {{response_headers: {word}}}\n{MINIMAL}"));
        assert_eq!(config.server.response_headers, on, "{word}");
    }
}

#[test]
fn callers_are_read_as_written() {
    let key = homing::config::KeyHash::of(b"key");
    let config = sound(&format!(
        "\
callers:
  - name: team-a
    keys: ['{key}']
  - name: team.b_2
    keys: ['{}', '{}']
    models: [a, 'qwen?-*']
    requests_per_minute: 10
    in_flight: 2
    conversations: 3
    weight: 4
models: [{{name: a, replicas: [{{url: 'http://h:1'}}]}}]
server: {{cors: {{origins: ['http://localhost:3000', 'https://chat.example']}}}}
",
        homing::config::KeyHash::of(b"one"),
        homing::config::KeyHash::of(b"two"),
    ));
    assert_eq!(config.server.origins, ["http://localhost:3000", "https://chat.example"]);
    let [open, bound] = &config.callers.expect("callers")[..] else { panic!("two callers") };
    assert!(open.may_use("a") && open.may_use("*") && open.keys[0].equals(&key));
    assert_eq!((open.requests_per_minute, open.in_flight, open.conversations, open.weight), (None, None, None, 1));
    assert!(bound.may_use("a") && bound.may_use("qwen3-") && !bound.may_use("qwen-3") && !bound.may_use("b"));
    assert_eq!(bound.keys.len(), 2);
    assert_eq!(
        (bound.requests_per_minute, bound.in_flight, bound.conversations, bound.weight),
        (Some(10), Some(2), Some(3), 4)
    );
    let shown = format!("{bound:?}");
    assert!(!shown.contains(&bound.keys[0].to_string()[7..]), "{shown}");
}

#[test]
fn an_engine_url_has_one_spelling() {
    let url = |text| EngineUrl::parse(text).map(|url| url.to_string());
    assert_eq!(url("http://H"), Ok("http://h:80".into()));
    assert_eq!(url("HTTP://h:80/"), Ok("http://h:80".into()));
    assert_eq!(url("https://H"), Ok("https://h:443".into()));
    assert_eq!(url("http://[0:0::1]:8"), Ok("http://[::1]:8".into()));
    assert!(url("").is_err());
}

#[test]
fn spans_go_to_an_http_url_or_nowhere() {
    let traces = |endpoint: &str| parse(&format!("traces: {{endpoint: '{endpoint}'}}\n{MINIMAL}"));
    assert_eq!(sound(MINIMAL).traces, None);
    let url = "http://127.0.0.1:4318/v1/traces";
    assert_eq!(traces(url).expect("it checks").traces.as_deref(), Some(url));
    for wrong in
        ["https://collector:4318/v1/traces", "127.0.0.1:4318", "http://me@collector/v1/traces", "grpc://collector"]
    {
        let faults = traces(wrong).expect_err(wrong);
        assert!(faults.iter().any(|fault| fault.message.contains("traces.endpoint: expected an http URL")), "{wrong}");
    }
}

#[test]
fn a_secret_comes_from_beside_the_file_and_hides() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("secret");
    fs::create_dir_all(&folder).expect("the folder for tests can be written");
    fs::write(folder.join("key"), " sk-hidden\r\n\n").expect("the same");
    let file = folder.join("homing.yaml");
    fs::write(&file, "models: [{replicas: [{url: 'http://h', api_key: {file: key}}]}]").expect("the same");
    let config = Config::load(&file).expect("the file is sound");
    let key = config.models[0].replicas.listed()[0].api_key.as_ref();
    assert_eq!(key.map(|key| key.expose()), Some("sk-hidden"));
    assert!(!format!("{config:?}").contains("sk-hidden"));
}

#[test]
fn only_what_is_bound_or_started_once_needs_a_restart() {
    let running = sound("server: {threads: 2}\nmodels: [{replicas: [{url: 'http://h:1'}]}]");
    let reloadable = sound(
        "\
server: {threads: 2, grace: 1 s, access_log: json, limits: {body: 1 MiB, connections: 5}}
session: {agents: together}
scrape: {interval: 1 s}
models: [{name: a, affinity: off, replicas: [{url: 'http://h:2'}]}]",
    );
    assert_eq!(running.needs_restart(&reloadable), Vec::<&str>::new());
    let bound = sound(
        "\
listen: [{address: '127.0.0.1:8081'}]
admin: {address: '127.0.0.1:9091'}
server: {threads: 3, state_file: kept, upgrade_socket: here/up.sock}
models: [{replicas: [{url: 'http://h:1'}]}]",
    );
    assert_eq!(
        running.needs_restart(&bound),
        ["listen", "admin.address", "server.threads", "server.state_file", "server.upgrade_socket"]
    );
}

/// The row of the table in docs/configuring.md: setting, default, range.
fn row(setting: &str) -> (&'static str, &'static str) {
    let start = format!("| `{setting}` |");
    let row = DOCUMENT.lines().find(|line| line.starts_with(&start));
    let row = row.unwrap_or_else(|| panic!("docs/configuring.md has no row for {setting}"));
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    (cells[2], cells[3])
}

fn assert_documented<T: Quantity>(setting: &str, bounds: Bounds<T>) {
    let (default, range) = row(setting);
    assert_eq!(default, bounds.default.show(), "default of {setting}");
    assert_eq!(range, bounds.to_string(), "range of {setting}");
}

#[test]
fn the_document_states_defaults_and_ranges() {
    assert_documented("server.grace", settings::GRACE);
    assert_documented("server.limits.body", settings::BODY);
    assert_documented("server.limits.buffered", settings::BUFFERED);
    assert_documented("server.limits.header_bytes", settings::HEADER_BYTES);
    assert_documented("server.limits.headers", settings::HEADERS);
    assert_documented("server.limits.header_read", settings::HEADER_READ);
    assert_documented("server.limits.body_read", settings::BODY_READ);
    assert_documented("server.limits.idle", settings::IDLE);
    assert_documented("server.limits.connections", settings::CONNECTIONS);
    assert_documented("server.http2.streams", settings::STREAMS);
    assert_documented("server.http2.header_list", settings::HEADER_LIST);
    assert_documented("server.http2.window", settings::WINDOW);
    assert_documented("scrape.interval", settings::SCRAPE_INTERVAL);
    assert_documented("scrape.timeout", settings::SCRAPE_TIMEOUT);
    assert_documented("scrape.max_size", settings::SCRAPE_SIZE);
    assert_documented("models[].idle_forget", settings::IDLE_FORGET);
    assert_documented("models[].conversations_max", settings::CONVERSATIONS);
    assert_documented("models[].replicas[].data_parallel_size", settings::DATA_PARALLEL_SIZE);
    assert_documented("models[].replicas.every", settings::DISCOVERY_EVERY);
    assert_documented("models[].recovery.failures", settings::FAILURES);
    assert_documented("models[].recovery.pause", settings::PAUSE);
    assert_documented("models[].recovery.pause_max", settings::PAUSE_MAX);
    assert_documented("models[].recovery.return_rate", settings::RETURN_RATE);
    assert_documented("models[].admission.max_wait", settings::MAX_WAIT);
    assert_documented("models[].timeouts.connect", settings::CONNECT);
    assert_documented("models[].timeouts.hang", settings::HANG);
    assert_documented("models[].timeouts.first_byte", settings::FIRST_BYTE);
    assert_documented("models[].timeouts.idle_stream", settings::IDLE_STREAM);
    assert_documented("models[].timeouts.total", settings::TOTAL);
    assert_documented("models[].admission.parked_max", settings::PARKED);
    assert_eq!(row("models[].admission.rotate").1, format!("off, or {}", settings::ROTATE));
    assert_eq!(row("models[].admission.linger").1, format!("auto, or {}", settings::LINGER));
    assert_documented("callers[].weight", settings::CALLER_WEIGHT);
    assert_eq!(row("callers[].requests_per_minute").1, settings::CALLER_RATE.to_string());
    assert_eq!(row("callers[].in_flight").1, settings::CALLER_IN_FLIGHT.to_string());
    assert_eq!(row("callers[].conversations").1, settings::CALLER_CONVERSATIONS.to_string());
    assert_eq!(row("models[].kv_cache_tokens").1, settings::KV_CACHE_TOKENS.to_string());
    assert_eq!(row("server.threads").1, settings::threads().to_string());
    assert_eq!(row("models[].max_num_seqs").1, settings::MAX_NUM_SEQS.to_string());
    let spill = format!("auto, or {}", settings::SPILL_THRESHOLD);
    assert_eq!(row("models[].spill_threshold").1, spill);
}

/// The settings of each mapping are those that a fault about an unknown one lists.
#[test]
fn every_setting_stands_in_the_document_and_the_reference() {
    let sections = [
        ("", "x: 1".to_owned()),
        ("listen[].", "listen: [{x: 1}]".into()),
        ("listen[].tls.", "listen: [{tls: {x: 1}}]".into()),
        ("admin.", "admin: {x: 1}".into()),
        ("server.", "server: {x: 1}".into()),
        ("server.cors.", "server: {cors: {x: 1}}".into()),
        ("server.limits.", "server: {limits: {x: 1}}".into()),
        ("callers.", "callers: {x: 1}".into()),
        ("callers[].", "callers: [{x: 1}]".into()),
        ("server.http2.", "server: {http2: {x: 1}}".into()),
        ("session.", "session: {x: 1}".into()),
        ("scrape.", "scrape: {x: 1}".into()),
        ("traces.", "traces: {x: 1}".into()),
        ("models[].", "models: [{x: 1}]".into()),
        ("models[].tls.", "models: [{tls: {x: 1}}]".into()),
        ("models[].admission.", "models: [{admission: {x: 1}}]".into()),
        ("models[].recovery.", "models: [{recovery: {x: 1}}]".into()),
        ("models[].timeouts.", "models: [{timeouts: {x: 1}}]".into()),
        ("models[].replicas[].", "models: [{replicas: [{x: 1}]}]".into()),
    ];
    for (prefix, yaml) in sections {
        let faults = parse(&yaml).expect_err("x is no setting");
        let listed = faults.iter().find_map(|fault| {
            let (_, rest) = fault.message.split_once("expected one of ")?;
            rest.strip_suffix(", found \"x\"")
        });
        for name in listed.expect("the fault lists the settings").split(", ") {
            let setting = format!("{prefix}{name}");
            let documented = DOCUMENT.contains(&format!("| `{setting}"));
            assert!(documented, "docs/configuring.md has no row for {setting}");
            assert!(REFERENCE.contains(&format!("{name}:")), "conf/homing.yaml lacks {setting}");
        }
    }
}

fn assert_answered(text: &str) {
    if let Err(faults) = parse(text) {
        assert_ne!(faults.iter().count(), 0);
        // A fault at the end of the text stands on the line after the last.
        let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() + 1;
        for fault in faults.iter() {
            let at = fault.at.expect("text was read, so there is a place");
            assert!((1..=lines).contains(&at.line) && at.column >= 1, "{fault}\n{text:?}");
            assert!(!fault.message.contains(char::is_control), "{fault:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_odd_yaml_breaks_the_reader(text in r#"([-:{}\[\],&*!|>'"%@`#~?.a1\n ]|models|listen|\n  |: |- ){0,40}"#) {
        assert_answered(&text);
    }

    #[test]
    fn quantities_are_read_as_they_are_shown(millis in 0..=86_400_000u64, bytes in (1u64 << 10)..=(1 << 30)) {
        let grace = Duration::from_millis(millis);
        let size = homing::config::Bytes(bytes);
        let yaml = format!("server: {{grace: {}, limits: {{body: {}, buffered: 1 GiB}}}}\n{MINIMAL}", grace.show(), size.show());
        let server = sound(&yaml).server;
        prop_assert_eq!(server.grace, grace);
        prop_assert_eq!(server.limits.body_bytes, bytes);
    }
}
