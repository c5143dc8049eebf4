//! Replicas that are not listed: in a file that changes, behind a name.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::*;

/// A file of replicas.
struct File {
    path: PathBuf,
    _folder: TempDir,
}

impl File {
    fn of<'a>(engines: impl IntoIterator<Item = &'a Engine>) -> File {
        let folder = TempDir::new().expect("a temporary directory");
        let file = File { path: folder.path().join("replicas.yaml"), _folder: folder };
        file.lists(engines);
        file
    }

    fn lists<'a>(&self, engines: impl IntoIterator<Item = &'a Engine>) {
        self.holds(listing(engines));
    }

    fn holds(&self, content: impl AsRef<[u8]>) {
        put(&self.path, content);
    }

    /// A configuration whose model `m` takes its replicas from here.
    fn config(&self, more: Value) -> Value {
        found_by(json!({"file": self.path, "every": "100 ms"}), more)
    }
}

/// All at once, as an operator should.
fn put(path: &Path, content: impl AsRef<[u8]>) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content).expect("the file is written");
    std::fs::rename(beside, path).expect("it takes its place");
}

fn listing<'a>(engines: impl IntoIterator<Item = &'a Engine>) -> String {
    engines.into_iter().map(|engine| format!("- url: {}\n", engine.url())).collect()
}

/// A configuration whose model `m` has its replicas found.
fn found_by(replicas: Value, more: Value) -> Value {
    let mut config = one_model([], more);
    config["models"][0]["replicas"] = replicas;
    config
}

fn turn(id: &str) -> Ask {
    Ask::chat("m", "Hello.").session(id)
}

async fn replicas_become(balancer: &Balancer, engines: &[&Engine]) -> routing::Routing {
    let names: Vec<String> = engines.iter().map(|engine| engine.name()).collect();
    balancer.routing_when(&format!("replicas {names:?}"), |routing| routing.names() == names).await
}

const FAILURES: &str = "homing_discovery_failures_total";

async fn failures(balancer: &Balancer) -> f64 {
    balancer.metrics().await.sum(FAILURES, &[("model", "m")])
}

async fn more_failures(balancer: &Balancer, more: f64) {
    let before = failures(balancer).await;
    until("more failures", async || (failures(balancer).await >= before + more).then_some(())).await;
}

#[tokio::test]
async fn replicas_in_a_file_come_and_go() {
    let engines = engines::<3>().await;
    let [stays, goes, comes] = &engines;
    let file = File::of([stays, goes]);
    let balancer = Balancer::start(file.config(json!({}))).await;
    // Nobody is refused because the file was not read yet.
    balancer.ask(&turn("conversation-a")).await.is("placed").from(stays);
    balancer.ask(&turn("conversation-b")).await.is("placed").from(goes);
    let gate = Gate::shut();
    [stays, goes].iter().for_each(|engine| engine.holds(&gate));
    let mut streams = Vec::new();
    for id in ["conversation-a", "conversation-b"] {
        let mut client = balancer.client().await;
        client.send(&turn(id).streamed()).await;
        let head = client.head().await;
        client.piece().await;
        streams.push((client, head));
    }

    file.lists([stays, comes]);
    let routing = replicas_become(&balancer, &[stays, comes, goes]).await;
    assert_eq!(routing.state(goes), "draining");
    let told = format!("model m: engines found: 2; joined: {}; left: {}", comes.name(), goes.name());
    balancer.output.line(&told, |line| line.ends_with(&told).then_some(())).await;
    assert_eq!((routing.of(stays, "placed"), routing.of(stays, "sticky"), routing.of(stays, "in_flight")), (1, 1, 1));
    assert_eq!((routing.of(stays, "conversations"), routing.of(comes, "conversations")), (1, 0));
    gate.open();
    for (mut client, head) in streams {
        assert!(client.rest(head, "POST").await.text().ends_with("[DONE]\n\n"));
    }
    let routing = balancer.idle().await;
    assert_eq!(routing.names(), [stays.name(), comes.name()]);
    balancer.ask(&turn("conversation-a")).await.is("sticky").from(stays);
    balancer.ask(&turn("conversation-b")).await.is("placed").from(comes);
    assert_eq!(goes.turns(), 2);

    file.lists(&engines);
    replicas_become(&balancer, &[stays, goes, comes]).await;
    balancer.ask(&turn("conversation-b")).await.is("sticky").from(comes);
    // The quickest takes a new one, and the one that came back is not always that; but it holds the least.
    within("a new conversation where one came back", async {
        for n in 0.. {
            if balancer.ask(&turn(&format!("newcomer-{n}"))).await.is("placed").replica() == goes.name() {
                return;
            }
        }
    })
    .await;
    assert_eq!(failures(&balancer).await, 0.0);
}

#[tokio::test]
async fn what_a_file_says_of_a_replica_holds() {
    let engine = Engine::start().await;
    let file = File::of([]);
    put(&file.path.with_file_name("key"), "first-key");
    let listed = |size: u32| {
        format!("- {{url: '{}', data_parallel_size: {size}, api_key: {{file: key}}}} # beside it\n", engine.url())
    };
    file.holds(listed(2));
    let balancer = Balancer::start(file.config(json!({}))).await;
    let rank = |rank: u32| format!("{}#{rank}", engine.name());
    balancer.ask(&turn("conversation-a")).await.is("placed");
    assert_eq!(balancer.routing().await.names(), [rank(0), rank(1)]);
    assert_eq!(engine.last().header("authorization"), Some("Bearer first-key"));
    put(&file.path.with_file_name("key"), "second-key");
    until("the second key", async || {
        balancer.ask(&turn("conversation-a")).await.is("sticky");
        (engine.last().header("authorization") == Some("Bearer second-key")).then_some(())
    })
    .await;
    file.holds(listed(1));
    replicas_become(&balancer, &[&engine]).await;
}

#[tokio::test]
async fn a_file_that_is_wrong_or_gone_changes_nothing() {
    let engines = engines::<2>().await;
    let file = File::of(&engines);
    let balancer = Balancer::start(file.config(json!({}))).await;
    balancer.ask(&turn("conversation-a")).await.is("placed");
    let url = engines[0].url();
    let wrong = [
        (String::new(), "expected a list of 1 to 1024 items, found nothing"),
        ("[]".into(), "expected a list of 1 to 1024 items, found 0"),
        (format!("- url: {url}\n- url: ftp://h\n"), "line 2, column 8: [1].url: expected"),
        (format!("- url: {url}\n- url: {url}\n"), "line 2, column 8: [1].url: expected one that is not listed before"),
        (format!("- url: {url}\n- {{"), "expected valid YAML"),
        (format!("- {{url: '{url}', api_key: {{env: HOMING_NO_SUCH_KEY}}}}"), "expected a variable of the environment"),
        (format!("- {{url: '{url}', data_parallel_size: 1024}}\n") + &ranks_beyond(), "at most 4096 replicas"),
    ];
    let said = |what: &'static str| move |line: &str| line.contains(what).then(|| line.to_owned());
    for (content, why) in wrong {
        file.holds(&content);
        let line = balancer.output.line(why, said(why)).await;
        assert!(line.contains("model m") && line.contains("replicas.yaml"), "{line}");
        more_failures(&balancer, 3.0).await;
        let lines = balancer.output.lines();
        assert_eq!(lines.iter().filter(|line| line.contains(why)).count(), 1, "said once: {why}");
        assert_eq!(balancer.routing().await.names(), [engines[0].name(), engines[1].name()], "{content}");
        balancer.ask(&turn("conversation-a")).await.is("sticky");
    }
    std::fs::remove_file(&file.path).expect("the file is removed");
    balancer.output.line("that it is gone", said("cannot be read")).await;
    balancer.ask(&turn("conversation-a")).await.is("sticky");

    file.lists([&engines[0]]);
    balancer.output.line("that all is well again", said("works again")).await;
    replicas_become(&balancer, &[&engines[0]]).await;
    let before = failures(&balancer).await;
    file.lists(&engines);
    replicas_become(&balancer, &[&engines[0], &engines[1]]).await;
    assert_eq!(failures(&balancer).await, before);
}

fn ranks_beyond() -> String {
    (0..4).map(|n| format!("- {{url: 'http://h{n}', data_parallel_size: 1024}}\n")).collect()
}

#[tokio::test]
async fn it_starts_before_there_is_a_replica() {
    let engine = Engine::start().await;
    // A relative path starts at the configuration.
    let balancer = Balancer::start(found_by(json!({"file": "replicas.yaml", "every": "100 ms"}), json!({}))).await;
    let answer = balancer.ask(&turn("conversation-a")).await;
    assert_eq!((answer.status, answer.header("x-homing-error")), (503, Some("no_replica")));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(balancer.ask_admin(&Ask::get("/healthz")).await.status, 200);
    assert_eq!(balancer.ask_admin(&Ask::get("/readyz")).await.status, 503);
    assert_eq!(balancer.ask(&Ask::get("/health")).await.status, 503);
    let models = balancer.ask(&Ask::get("/v1/models")).await;
    assert_eq!((models.status, models.json()["data"].as_array().map(Vec::len)), (200, Some(0)));

    put(&balancer.path("replicas.yaml"), listing([&engine]));
    replicas_become(&balancer, &[&engine]).await;
    balancer.ask(&turn("conversation-a")).await.is("placed").from(&engine);
    until("ready", async || (balancer.ask_admin(&Ask::get("/readyz")).await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn a_name_is_every_address_of_it() {
    let engine = Engine::start().await;
    let key = tempfile::NamedTempFile::new().expect("a file for the key");
    std::fs::write(key.path(), "sk-name").expect("the key is written");
    let replicas = |size: u32| {
        json!({"dns": engine.name().replace("127.0.0.1", "localhost"), "every": "100 ms", "data_parallel_size": size,
            "api_key": {"file": key.path()}})
    };
    let balancer = Balancer::start(found_by(replicas(1), json!({}))).await;
    balancer.ask(&turn("conversation-a")).await.is("placed").from(&engine);
    assert_eq!(engine.last().header("authorization"), Some("Bearer sk-name"));
    assert_eq!(balancer.scraped().await.names(), [engine.name()], "named by its address");
    assert_eq!(balancer.reload(&found_by(replicas(2), json!({}))).await.status, 200);
    balancer.routing_when("two ranks", |routing| routing.names().len() == 2).await;
    assert_eq!(failures(&balancer).await, 0.0);
}

/// Each of its addresses is a replica, those of another family than the others aside, and it is looked up again and again.
#[tokio::test]
async fn a_name_may_get_addresses_and_lose_some() {
    let engine = Engine::start().await;
    let port = engine.address.port();
    let names = Names::new(&["127.0.0.1"]);
    let environment = names.environment();
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let config = found_by(json!({"dns": format!("replicas.test:{port}"), "every": "100 ms"}), json!({}));
    let balancer = Balancer::start_with(config, &environment).await;
    balancer.ask(&turn("conversation-a")).await.is("placed").from(&engine);
    for addresses in [&["127.0.0.3", "::1", "127.0.0.1", "127.0.0.2"][..], &["127.0.0.1", "127.0.0.3"], &["127.0.0.1"]]
    {
        names.resolves_to(addresses);
        let mut expected: Vec<String> =
            addresses.iter().filter(|ip| **ip != "::1").map(|ip| format!("{ip}:{port}")).collect();
        expected.sort();
        balancer.routing_when(&format!("replicas {expected:?}"), |routing| routing.names() == expected).await;
        balancer.ask(&turn("conversation-a")).await.is("sticky").from(&engine);
    }
    names.resolves_to(&[]);
    balancer.output.line("that it does not resolve", |line| line.contains("replicas.test").then_some(())).await;
    balancer.ask(&turn("conversation-a")).await.is("sticky").from(&engine);
}

#[tokio::test]
async fn a_name_without_an_address_leaves_what_was_there() {
    let engine = Engine::start().await;
    let nowhere = || found_by(json!({"dns": "replicas.invalid:8000", "every": "100 ms"}), json!({}));
    let balancer = Balancer::start(nowhere()).await;
    balancer.output.line("that it does not resolve", |line| line.contains("replicas.invalid").then_some(())).await;
    assert_eq!(balancer.ask(&turn("conversation-a")).await.status, 503);
    assert_eq!(balancer.reload(&one_model([&engine], json!({}))).await.status, 200);
    balancer.ask(&turn("conversation-a")).await.is("placed").from(&engine);
    assert_eq!(balancer.reload(&nowhere()).await.status, 200);
    more_failures(&balancer, 1.0).await;
    balancer.ask(&turn("conversation-a")).await.is("sticky").from(&engine);
}

#[tokio::test]
async fn a_reload_keeps_what_was_found_and_looks_where_it_says() {
    let engines = engines::<3>().await;
    let [a, b, c] = &engines;
    let (first, second) = (File::of([a, b]), File::of([b, c]));
    let balancer = Balancer::start(first.config(json!({}))).await;
    for id in ["conversation-a", "conversation-b"] {
        balancer.ask(&turn(id)).await.is("placed");
    }
    // Other settings, the same file; and in the same moment a file that is broken.
    first.holds("- {");
    more_failures(&balancer, 1.0).await;
    balancer.write(&first.config(json!({"spill_threshold": 7})));
    balancer.signal(Signal::SIGHUP);
    let routing = balancer.routing_when("the new setting", |routing| routing.0["spill_threshold"] == 7).await;
    assert_eq!(routing.names(), [a.name(), b.name()]);
    balancer.ask(&turn("conversation-a")).await.is("sticky").from(a);

    assert_eq!(balancer.reload(&second.config(json!({}))).await.status, 200);
    replicas_become(&balancer, &[b, c]).await;
    balancer.ask(&turn("conversation-b")).await.is("sticky").from(b);
    // Nobody looks at the first any more.
    first.lists([a]);
    second.lists([c, b]);
    replicas_become(&balancer, &[c, b]).await;

    assert_eq!(balancer.reload(&one_model([a, b], json!({}))).await.status, 200);
    assert_eq!(balancer.routing().await.names(), [a.name(), b.name()]);
    second.lists([c]);
    balancer.ask(&turn("conversation-b")).await.is("sticky").from(b);
    assert_eq!(balancer.reload(&second.config(json!({}))).await.status, 200);
    replicas_become(&balancer, &[c]).await;
}

const CHANGES: usize = 30;

#[tokio::test]
async fn changes_under_load_lose_nothing() {
    let engines = engines::<3>().await;
    let file = File::of(&engines[..2]);
    let balancer = Balancer::start(file.config(json!({"spill_threshold": 1000}))).await;
    let callers = Callers::start(&balancer, &engines[..2]);
    for n in 0..CHANGES {
        let present = if n % 2 == 0 { 3 } else { 2 };
        file.lists(&engines[..present]);
        if n % 3 == 0 {
            balancer.signal(Signal::SIGHUP);
        }
        let state = |routing: &routing::Routing| {
            let third = engines[2].name();
            let row = routing.replicas().iter().find(|row| row["replica"] == third.as_str());
            row.is_some_and(|row| row["state"] != "draining")
        };
        balancer.routing_when("the change", |routing| state(routing) == (present == 3)).await;
        callers.go_on().await;
    }
    callers.end(&balancer, &engines).await;
}
