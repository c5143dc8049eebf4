//! How it starts and how it ends.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::harness::*;

/// "As soon as nothing is in flight": far below the grace period and Pingora's own waits, far above what it takes.
const SOON: Duration = Duration::from_secs(3);

async fn exits_soon(balancer: &mut Balancer) {
    let from = Instant::now();
    assert!(balancer.exit().await.success());
    assert!(from.elapsed() < SOON, "it took {:?} to exit", from.elapsed());
}

#[tokio::test]
async fn what_is_in_flight_finishes_and_then_it_exits() {
    let engine = Engine::start().await;
    let mut balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let gate = Gate::shut();
    engine.holds(&gate);
    let mut clients = Vec::new();
    for path in ask::DIALECTS {
        let mut client = balancer.client().await;
        client.send(&Ask::turn(path, "m", "Hello.").streamed()).await;
        let head = client.head().await;
        client.piece().await;
        clients.push((client, Some(head)));
        let mut client = balancer.client().await;
        client.send(&Ask::turn(path, "m", "Hello.")).await;
        clients.push((client, None));
    }
    engine.saw_turns(clients.len()).await;
    balancer.signal(Signal::SIGTERM);
    until("new connections refused", async || TcpStream::connect(balancer.listen).await.err()).await;
    gate.open();
    for (mut client, head) in clients {
        let head = match head {
            Some(head) => head,
            None => client.head().await,
        };
        let text = client.rest(head, "POST").await.text();
        assert!(["Done.", "[DONE]", "message_stop"].iter().any(|end| text.contains(end)), "{text}");
    }
    exits_soon(&mut balancer).await;
    // Not before each of them stands in the log.
    let access = |line: &str| line.contains("decision=").then_some(());
    balancer.output.count("the access log", 4, access).await;
}

#[tokio::test]
async fn a_body_on_its_way_in_is_awaited_too() {
    let engine = Engine::start().await;
    let mut balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let ask = Ask::chat("m", &"x".repeat(100_000));
    let mut client = balancer.client().await;
    client.send_bytes(&ask.head_bytes()).await;
    client.send_bytes(&ask.body_bytes()[..50_000]).await;
    balancer.metric_becomes("homing_buffered_bytes", &[], 50_000.0).await;
    balancer.signal(Signal::SIGTERM);
    until("new connections refused", async || TcpStream::connect(balancer.listen).await.err()).await;
    client.send_bytes(&ask.body_bytes()[50_000..]).await;
    assert_eq!(client.response("POST").await.status, 200);
    assert!(engine.last().body == ask.body);
    exits_soon(&mut balancer).await;
}

#[tokio::test]
async fn idle_connections_do_not_keep_it() {
    let engine = Engine::start().await;
    let mut balancer = Balancer::start(one_model([&engine], json!({}))).await;
    let mut clients = [balancer.client().await, balancer.client().await];
    assert_eq!(clients[0].ask(&Ask::chat("m", "Hello.")).await.status, 200);
    balancer.signal(Signal::SIGTERM);
    exits_soon(&mut balancer).await;
}

#[tokio::test]
async fn the_grace_period_ends_what_does_not_end() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({}));
    config["server"] = json!({"grace": "500 ms"});
    let mut balancer = Balancer::start(config).await;
    engine.holds(&Gate::shut());
    let mut client = balancer.client().await;
    client.send(&Ask::chat("m", "Hello.").streamed()).await;
    client.head().await;
    balancer.signal(Signal::SIGTERM);
    exits_soon(&mut balancer).await;
    within("the end of the stream", client.wire.closed()).await;
    engine.saw("an ended request", |seen| seen.left == 1).await;
}

#[tokio::test]
async fn it_listens_on_each_address() {
    let engine = Engine::start().await;
    let mut config = one_model([&engine], json!({}));
    config["listen"] = json!([{"address": "127.0.0.1:0"}, {"address": "127.0.0.2:0"}]);
    let balancer = Balancer::start(config).await;
    let listens = |line: &str| balancer::address(line, "listening on http://");
    for address in balancer.output.count("addresses", 2, listens).await {
        assert_eq!(client::ask_once(address, &Ask::chat("m", "Hello.")).await.status, 200, "{address}");
    }
}

/// What went wrong at the start is one sentence and an exit status.
#[tokio::test]
async fn a_start_that_fails_says_why_in_a_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let replica = json!([{"replicas": [{"url": "http://127.0.0.1:1"}]}]);
    let cases: [(Value, &str); 6] = [
        (json!({"listen": [{"address": address}], "models": replica}), &address),
        (json!({"admin": {"address": address}, "models": replica}), &address),
        (json!({"models": []}), "line 1"),
        (json!({"server": {"state_file": "/nowhere/state"}, "models": replica}), "/nowhere/state"),
        (json!({"models": replica, "modles": 1}), "line 1"),
        (
            json!({"models": [{"replicas": [{"url": "http://127.0.0.1:1", "api_key": {"env": "HOMING_NO_SUCH"}}]}]}),
            "api_key.env",
        ),
    ];
    for (config, named) in cases {
        let file = tempfile::NamedTempFile::new().expect("a file for the configuration");
        std::fs::write(file.path(), config::complete(&config).to_string()).expect("it is written");
        let (failed, said) = serve(file.path()).await;
        assert!(failed, "{config}");
        assert!(said.contains(named), "{config}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{config}: {said}");
    }
    let (failed, said) = serve("no-such-file.yaml".as_ref()).await;
    assert!(failed && said.contains("no-such-file.yaml") && said.trim_end().lines().count() == 1, "{said}");
}

/// Whether it fails, and what it says.
async fn serve(file: &std::path::Path) -> (bool, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_homing"))
        .args(["serve", "--config"])
        .arg(file)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let run = within("its exit", run).await.expect("the binary runs");
    (!run.status.success(), String::from_utf8_lossy(&run.stderr).into_owned())
}

/// Whoever signals twice does not want to wait for the grace period.
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    for second in [Signal::SIGTERM, Signal::SIGINT] {
        let engine = Engine::start().await;
        let mut balancer = Balancer::start(one_model([&engine], json!({}))).await;
        engine.holds(&Gate::shut());
        let mut client = balancer.client().await;
        client.send(&Ask::chat("m", "Hello.").streamed()).await;
        client.head().await;
        balancer.signal(Signal::SIGTERM);
        balancer.output.line("the shutdown", |line| line.contains("shutting down").then_some(())).await;
        // The wait for the second signal begins with the shutdown: it is sent until it is heard.
        let exit = async {
            loop {
                balancer.signal(second);
                if let Ok(status) = tokio::time::timeout(Duration::from_millis(100), balancer.exit()).await {
                    return status;
                }
            }
        };
        assert!(within("the exit", exit).await.success());
    }
}
