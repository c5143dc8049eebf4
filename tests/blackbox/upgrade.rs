//! A new process takes over from a running one, and no client notices.

use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::vllm::{USAGE, turn, turn_held};
use crate::harness::*;

const CONVERSATIONS: usize = 120;

/// Clients that connect as fast as they can.
const EAGER: usize = 3;

fn config(engines: &[Engine]) -> Value {
    let mut config = one_model(engines, json!({"admission": "off"}));
    config["server"] = json!({"upgrade_socket": "upgrade/socket"});
    config
}

fn ask(conversation: &str) -> Ask {
    Ask::chat("m", "Hello.").session(&format!("conversation-{conversation}"))
}

async fn turns(balancer: &Balancer) -> Vec<Response> {
    let mut answers = Vec::new();
    for conversation in 0..CONVERSATIONS {
        answers.push(balancer.ask(&ask(&conversation.to_string())).await);
    }
    answers
}

/// Turns with this header are answered when `gate` opens.
fn hold(engines: &[Engine], gate: &Gate) {
    for engine in engines {
        let gate = gate.clone();
        engine.answers(move |request| match request.header("x-held") {
            Some(_) => turn_held(request, USAGE, &gate),
            None => turn(request, USAGE),
        });
    }
}

/// Starts a new process and has `old` hand over to it; that then only ends what it has.
async fn upgrade(old: &Balancer) -> Balancer {
    let new = old.successor();
    old.signal(Signal::SIGQUIT);
    new.output.line("address", |line| line.contains("admin on http://").then_some(())).await;
    new
}

/// Asks again and again, on a new connection each time or on one for as long as that goes. Ends with the answers counted.
fn eager(balancer: &Balancer, name: String, keeps: bool, stop: Arc<AtomicBool>) -> JoinHandle<(usize, usize)> {
    let address = balancer.listen;
    tokio::spawn(async move {
        let (mut answers, mut told_to_close) = (0, 0);
        let mut client = Client::connect(address).await;
        while !stop.load(Ordering::Relaxed) {
            let answer = client.ask(&ask(&name)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            answers += 1;
            let closes = answer.header("connection") == Some("close");
            told_to_close += usize::from(closes);
            if closes || !keeps {
                client = Client::connect(address).await;
            }
        }
        (answers, told_to_close)
    })
}

#[tokio::test]
async fn no_turn_and_no_conversation_is_lost() {
    let engines = engines::<3>().await;
    let gate = Gate::shut();
    hold(&engines, &gate);
    let mut old = Balancer::start(config(&engines)).await;
    let homes: Vec<String> = turns(&old).await.iter().map(|answer| answer.is("placed").replica().to_owned()).collect();
    // What is in flight: streams that have begun, answers that have not, over HTTP/1 and HTTP/2.
    let mut held = Vec::new();
    for path in ask::DIALECTS {
        for streamed in [true, false] {
            let turn = Ask::turn(path, "m", "Hello.").header("x-held", "1").session(&format!("held-{path}-{streamed}"));
            let mut client = old.client().await;
            client.send(&if streamed { turn.clone().streamed() } else { turn.clone() }).await;
            let head = if streamed { Some(client.head().await) } else { None };
            held.push((turn, client, head));
        }
    }
    let mut h2 = H2Client::connect(old.listen).await;
    h2.ask(&ask("h2")).await;
    let h2_held = h2.send(&ask("h2").header("x-held", "1").streamed()).await;
    old.routing_when("what is held in flight", |routing| routing.total("in_flight") >= 5).await;
    let stop = Arc::new(AtomicBool::new(false));
    let eager: Vec<_> = (0..2 * EAGER).map(|n| eager(&old, format!("eager-{n}"), n % 2 == 0, stop.clone())).collect();

    let new = upgrade(&old).await;

    // It is the new process that answers now, and knows where everyone lives.
    for (answer, home) in turns(&new).await.iter().zip(&homes) {
        assert_eq!(answer.is("sticky").replica(), home);
    }
    assert!(new.routing().await.total("sticky") >= CONVERSATIONS as u64);
    // The old one ends what it has.
    gate.open();
    for (turn, mut client, head) in held {
        let begun = head.is_some();
        let head = match head {
            Some(head) => head,
            None => client.head().await,
        };
        assert_eq!(head.header("connection").is_some_and(|value| value == "close"), !begun, "{head:?}");
        let text = client.rest(head, "POST").await.text();
        assert!(text.contains("Done.") || text.ends_with("[DONE]\n\n"), "{text}");
        within("the end of the connection", client.wire.closed()).await;
        // What was in flight when the two parted is at home in the new one all the same.
        new.ask(&turn).await.is("sticky");
    }
    assert_eq!(h2_held.response().await.expect("a whole answer").status, 200);
    within("the end of the connection", h2.connection).await.expect("no panic").expect("a good end");
    assert!(old.exit().await.success());
    let stopped = |line: &str| line.contains("stopped: nothing was cut off").then_some(());
    old.output.line("the end", stopped).await;
    stop.store(true, Ordering::Relaxed);
    for (n, eager) in eager.into_iter().enumerate() {
        let (answers, told_to_close) =
            within("an eager client", eager).await.expect("no connection was refused or cut");
        assert!(answers > 2, "{answers}");
        // One that keeps its connection learns from an answer that it is to connect anew.
        assert!(told_to_close > 0 || n % 2 == 1, "{n}: {told_to_close}");
    }
}

/// An upgrade of the upgraded, with a state file, which is the new one's from then on.
#[tokio::test]
async fn it_can_be_done_again_and_the_state_file_goes_along() {
    let engines = engines::<2>().await;
    let gate = Gate::shut();
    hold(&engines, &gate);
    let mut config = config(&engines);
    config["server"]["state_file"] = json!("state");
    let mut first = Balancer::start(config).await;
    turns(&first).await;
    let mut held = first.client().await;
    held.send(&ask("held").header("x-held", "1").streamed()).await;
    let head = held.head().await;
    let mut second = upgrade(&first).await;
    turns(&second).await.iter().for_each(|answer| _ = answer.is("sticky"));
    second.ask(&ask("later")).await.is("placed");
    let mut third = upgrade(&second).await;
    assert!(second.exit().await.success());
    third.signal(Signal::SIGTERM);
    assert!(third.exit().await.success());
    // The first ends last, and leaves the file alone.
    gate.open();
    held.rest(head, "POST").await;
    assert!(first.exit().await.success());
    let last = first.again().await;
    turns(&last).await.iter().for_each(|answer| _ = answer.is("sticky"));
    last.ask(&ask("later")).await.is("sticky");
}

/// Whether the upgrade of the running process to this one fails, and what it says.
async fn refused(old: &Balancer, what: &str) {
    let mut new = old.successor();
    assert!(!new.exit().await.success());
    new.output.line(what, |line| (line.starts_with("homing: ") && line.contains(what)).then_some(())).await;
}

async fn says(balancer: &Balancer, what: &str) {
    let line = |line: &str| (line.contains("this process serves on") && line.contains(what)).then_some(());
    balancer.output.line(what, line).await;
    balancer.ask(&ask("after")).await;
}

#[tokio::test]
async fn an_upgrade_that_fails_is_a_sentence_and_the_old_process_serves_on() {
    let engines = engines::<1>().await;
    let balancer = Balancer::start(config(&engines)).await;
    let place = balancer.path("upgrade/socket");
    // Nobody there.
    balancer.signal(Signal::SIGQUIT);
    says(&balancer, "start one with --upgrade").await;
    // A new process that is killed leaves its socket behind, and the next finds it stale.
    let waiting = balancer.successor();
    until("the socket", async || place.exists().then_some(())).await;
    waiting.output.line("the wait", |line| line.contains("send it SIGQUIT").then_some(())).await;
    refused(&balancer, "another process waits there already").await;
    waiting.signal(Signal::SIGKILL);
    drop(waiting);
    assert!(place.exists());
    // One of another version, on either side.
    let new = balancer.successor();
    new.output.line("the wait", |line| line.contains("send it SIGQUIT").then_some(())).await;
    let mut other = UnixStream::connect(&place).unwrap();
    other.write_all(b"homing\0u\x63\0\0\0").unwrap();
    let what = "of versions that cannot hand over";
    new.output.line(what, |line| (line.starts_with("homing: ") && line.contains(what)).then_some(())).await;
    drop((new, other));
    let _ = std::fs::remove_file(&place);
    let listener = UnixListener::bind(&place).unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"homing\0u\x63\0\0\0").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    balancer.signal(Signal::SIGQUIT);
    says(&balancer, what).await;
    other.join().unwrap();
    std::fs::remove_file(&place).unwrap();
    // One that cannot set itself up.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut broken = config(&engines);
    broken["listen"] = json!([{"address": "127.0.0.1:0"}, {"address": taken.local_addr().unwrap()}]);
    balancer.write(&broken);
    balancer.signal(Signal::SIGQUIT);
    refused(&balancer, "cannot listen on").await;
    says(&balancer, "the other process gave up").await;
    // A folder that others may enter.
    balancer.write(&config(&engines));
    std::fs::set_permissions(place.parent().unwrap(), std::fs::Permissions::from_mode(0o755)).unwrap();
    refused(&balancer, "mode 0700").await;
    // And then one that works.
    std::fs::set_permissions(place.parent().unwrap(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let new = upgrade(&balancer).await;
    new.ask(&ask("after")).await.is("sticky");
}

/// Whichever of the two signals is heeded first: the old process ends, and the new one serves.
#[tokio::test]
async fn one_process_goes_on_when_the_old_one_is_told_to_end_too() {
    let engines = engines::<1>().await;
    let mut old = Balancer::start(config(&engines)).await;
    old.ask(&ask("a")).await.is("placed");
    // Some during the hand-over, some before and after it.
    for pause_ms in [0, 0, 0, 1, 2, 5, 10, 20, 40] {
        let new = old.successor();
        new.output.line("the wait", |line| line.contains("send it SIGQUIT").then_some(())).await;
        old.signal(Signal::SIGQUIT);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        old.signal(Signal::SIGTERM);
        new.output.line("address", |line| line.contains("admin on http://").then_some(())).await;
        assert!(old.exit().await.success());
        new.ask(&ask("a")).await.is("sticky");
        old = new;
    }
    // Both at once, in whichever order they are heeded: a process that is stopped is woken by neither.
    let new = old.successor();
    new.output.line("the wait", |line| line.contains("send it SIGQUIT").then_some(())).await;
    for signal in [Signal::SIGSTOP, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGCONT] {
        old.signal(signal);
    }
    assert!(old.exit().await.success());
    new.ask(&ask("a")).await.is("sticky");
}

/// A SIGHUP, as from a terminal that closes or a reload by all processes' name, is none of a process that waits.
#[tokio::test]
async fn a_process_that_waits_heeds_no_hangup() {
    let engines = engines::<1>().await;
    let old = Balancer::start(config(&engines)).await;
    let new = old.successor();
    new.output.line("the wait", |line| line.contains("send it SIGQUIT").then_some(())).await;
    new.signal(Signal::SIGHUP);
    old.signal(Signal::SIGQUIT);
    new.output.line("address", |line| line.contains("admin on http://").then_some(())).await;
    new.ask(&ask("a")).await.is("placed");
    // From now on it does as told.
    new.signal(Signal::SIGHUP);
    new.metric_becomes("homing_reloads_total", &[("outcome", "ok")], 1.0).await;
}

#[tokio::test]
async fn a_hand_over_that_panics_is_told_of_and_can_be_done_again() {
    let engines = engines::<1>().await;
    let rehearsed = [("HOMING_REHEARSE_PANIC", "hand-over")];
    let balancer = Balancer::start_with(config(&engines), &rehearsed).await;
    balancer.ask(&ask("a")).await.is("placed");
    balancer.signal(Signal::SIGQUIT);
    says(&balancer, "ended by the panic at").await;
    let new = upgrade(&balancer).await;
    new.ask(&ask("a")).await.is("sticky");
}

/// A process that is told to end while it hands over refuses connections soon, as any that ends: it waits no longer than for
/// the first word of the other.
#[tokio::test]
async fn an_end_during_a_hand_over_closes_the_sockets() {
    let engines = engines::<1>().await;
    let balancer = Balancer::start(config(&engines)).await;
    let gate = Gate::shut();
    engines[0].holds(&gate);
    let answer = ask_all(balancer.listen, [ask("in flight")]).remove(0);
    engines[0].saw("the request", |seen| !seen.requests.is_empty()).await;
    // A new process that says nothing.
    let place = balancer.path("upgrade/socket");
    std::fs::DirBuilder::new().mode(0o700).create(place.parent().unwrap()).unwrap();
    let silent = tokio::net::UnixListener::bind(&place).unwrap();
    balancer.signal(Signal::SIGQUIT);
    let (connection, _) = within("the old process", silent.accept()).await.unwrap();
    balancer.signal(Signal::SIGTERM);
    let connect = async || tokio::net::TcpStream::connect(balancer.listen).await;
    until("a refusal", async || connect().await.is_err().then_some(())).await;
    let ends =
        |line: &str| (line.contains("this process ends") && line.contains("did not go on in time")).then_some(());
    balancer.output.line("the end of the hand-over", ends).await;
    drop(connection);
    gate.open();
    assert_eq!(within("the answer", answer).await.unwrap().status, 200);
}

/// As systemd hears it, whose unit says `Type=notify` and `NotifyAccess=all`.
#[tokio::test]
async fn systemd_is_told_which_process_serves() {
    let engines = engines::<1>().await;
    let folder = tempfile::TempDir::new().unwrap();
    let place = folder.path().join("notify");
    let systemd = tokio::net::UnixDatagram::bind(&place).unwrap();
    let environment = [("NOTIFY_SOCKET", place.to_str().unwrap())];
    let hears = async || {
        let mut message = [0; 512];
        let length = within("a word to systemd", systemd.recv(&mut message)).await.unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let old = Balancer::start_with(config(&engines), &environment).await;
    assert_eq!(hears().await, format!("READY=1\nMAINPID={}\n", old.pid()));
    let new = upgrade(&old).await;
    assert_eq!(hears().await, format!("READY=1\nMAINPID={}\n", new.pid()));
}

/// Listeners may change with an upgrade: new ones are opened, those that are gone are closed once the old process ends.
#[tokio::test]
async fn the_new_process_has_the_listeners_of_its_own_configuration() {
    let engines = engines::<1>().await;
    let mut both = config(&engines);
    both["listen"] = json!([{"address": "127.0.0.1:0"}, {"address": "127.0.0.2:0"}]);
    let mut old = Balancer::start(both).await;
    let listens = |line: &str| balancer::address(line, "listening on http://");
    let addresses = old.output.count("addresses", 2, listens).await;
    let mut other = config(&engines);
    other["listen"] = json!([{"address": "127.0.0.3:0"}, {"address": "127.0.0.1:0"}]);
    old.write(&other);
    let new = upgrade(&old).await;
    assert!(old.exit().await.success());
    let now = new.output.count("addresses", 2, listens).await;
    assert_eq!(now[1], addresses[0], "the one that both have is the same");
    for address in now {
        assert_eq!(client::ask_once(address, &ask("x")).await.status, 200);
    }
    assert!(tokio::net::TcpStream::connect(addresses[1]).await.is_err());
}
