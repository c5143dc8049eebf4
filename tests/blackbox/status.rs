//! `homing status`: how a running balancer stands, in a terminal.

use serde_json::{Value, json};

use crate::harness::terminal::run;
use crate::harness::*;

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[tokio::test]
async fn it_says_what_routing_says_in_eighty_columns() {
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({"max_num_seqs": 32, "kv_cache_tokens": 1000}))).await;
    for _ in 0..3 {
        assert_eq!(balancer.ask(&Ask::chat("m", "Hello.").session("conversation-a")).await.status, 200);
    }
    balancer.idle().await;
    balancer.scraped().await;
    let status = balancer.command("status", &[], None).await;
    assert!(status.ok && status.stderr.is_empty(), "{status:?}");
    let text = &status.stdout;
    for said in [
        "m\n",
        "affinity on, spill threshold 8 (auto), in flight 0,",
        "sticky 100.0\u{a0}%",
        "admission in force, capacity set",
        "requests 3 since ",
        "conversations 1 of at most 8,192",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert!(!text.contains('\x1b'), "no colour where nobody looks: {text:?}");
    assert!(widest(text) <= 80, "{text}");
    let row = |engine: &Engine| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(&engine.name())).expect("a row");
        line.split_whitespace().map(str::to_owned).collect()
    };
    let held = balancer.routing().await.of(&engines[0], "held_tokens");
    let held = format!("{:.0}%", held as f64 / 10.0);
    assert_eq!(row(&engines[0])[1..], ["up", "0", "0", "0", "0%", &held, "1", "2", "0"]);
    assert_eq!(row(&engines[1])[1..], ["up", "0", "0", "0", "0%", "0%", "0", "0", "0"]);
    let starts: Vec<usize> = engines
        .iter()
        .map(|engine| {
            let line = text.lines().find(|line| line.starts_with(&engine.name())).expect("a row");
            line.find(" up ").expect("its state")
        })
        .collect();
    assert_eq!(starts[0], starts[1], "columns are aligned: {text}");
}

#[tokio::test]
async fn long_names_are_shortened_and_the_json_has_them_whole() {
    let engine = Engine::start().await;
    let long = format!("{}.default.svc.cluster.local", "a-replica-with-a-long-name".repeat(2));
    let mut config = one_model([&engine], json!({}));
    let other = json!({"url": format!("http://{long}:8000"), "data_parallel_size": 4});
    config["models"][0]["replicas"] = json!([{"url": engine.url()}, other]);
    let balancer = Balancer::start(config).await;
    let status = balancer.command("status", &[], None).await;
    assert!(status.ok && widest(&status.stdout) <= 80, "{}", status.stdout);
    assert!(status.stdout.contains("a-replica-") && status.stdout.contains(":8000#3 "), "{}", status.stdout);
    let status = balancer.command("status", &["--json"], None).await;
    let said: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!(said["models"][0]["replicas"][4]["replica"], format!("{long}:8000#3"));
}

#[tokio::test]
async fn the_configuration_says_where_and_with_which_token() {
    let engine = Engine::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let [token, wrong] = ["token", "wrong"].map(|name| folder.path().join(name));
    std::fs::write(&token, "the-token\n").expect("a file");
    std::fs::write(&wrong, "another").expect("a file");
    let mut config = one_model([&engine], json!({}));
    config["admin"] = json!({"address": "127.0.0.1:0", "token": {"file": token}});
    let balancer = Balancer::start(config).await;
    // Nothing but the admin address and its token is read: the rest may be out of reach here.
    let elsewhere = folder.path().join("homing.yaml");
    let admin = json!({"address": balancer.admin, "token": {"file": "token"}});
    std::fs::write(&elsewhere, json!({"admin": admin, "models": "not looked at"}).to_string()).expect("a file");
    let url = format!("http://{}", balancer.admin);
    let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let good = [
        (vec!["--config".into(), path(&elsewhere)], None),
        (vec!["--admin".into(), url.clone(), "--token-file".into(), path(&token)], None),
        (vec!["--admin".into(), url.clone()], Some(("HOMING_ADMIN_TOKEN", "the-token"))),
    ];
    for (arguments, variable) in &good {
        let all: Vec<&str> = ["status"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let status = run(&all, variable.as_slice()).await;
        assert!(status.ok && status.stdout.starts_with("m\n"), "{all:?}: {status:?}");
    }
    let (url, wrong) = (url.as_str(), path(&wrong));
    for arguments in [vec!["status", "--admin", url], vec!["status", "--admin", url, "--token-file", &wrong]] {
        let status = run(&arguments, &[]).await;
        assert!(!status.ok && status.stderr.contains("admin.token"), "{status:?}");
        assert!(!status.stderr.contains("another") || !status.stderr.contains("the-token"), "{status:?}");
    }
}

#[tokio::test]
async fn where_nothing_or_something_else_answers_it_says_so() {
    // Bound and not listening: it refuses, and nobody else gets the port.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let url = format!("http://{}", socket.local_addr().expect("its address"));
    let status = run(&["status", "--admin", &url], &[]).await;
    assert!(!status.ok && status.stdout.is_empty(), "{status:?}");
    for said in [format!("nothing answers at {url}").as_str(), "--config FILE", "--admin URL"] {
        assert!(status.stderr.contains(said), "{said} in {status:?}");
    }
    let engine = Engine::start().await;
    let status = run(&["status", "--admin", &engine.url()], &[]).await;
    assert!(!status.ok && status.stderr.contains("is no Homing"), "{status:?}");
    for url in ["127.0.0.1:9090", "https://127.0.0.1:9090"] {
        let status = run(&["status", "--admin", url], &[]).await;
        assert!(!status.ok && status.stderr.contains("expected http://HOST:PORT"), "{status:?}");
    }
}

/// One that is out, with the reason, and a balancer that goes away while it is watched.
#[tokio::test]
async fn watching_goes_on_and_says_what_changes() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let engines = engines::<2>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let admin = format!("http://{}", balancer.admin);
    let mut watching = tokio::process::Command::new(env!("CARGO_BIN_EXE_homing"))
        .args(["status", "--watch", "--admin", &admin])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(watching.stdout.take().expect("stdout is piped")).lines();
    let mut line = async |what: &str, wanted: &str| {
        within(what, async {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains(wanted) {
                    return;
                }
            }
            panic!("it ended before {what}");
        })
        .await;
    };
    line("a replica that is up", " up ").await;
    engines[1].answers_all_probes(vllm::error("500 Internal Server Error"));
    line("a replica that is out", " out ").await;
    drop(balancer);
    line("a balancer that is gone", "nothing answers at").await;
    watching.kill().await.expect("it ends");
}

/// Whatever answers there, the terminal is not made to obey it.
#[tokio::test]
async fn what_is_shown_has_no_control_characters() {
    let engines = engines::<1>().await;
    let balancer = Balancer::start(one_model(&engines, json!({}))).await;
    let mut routing = balancer.ask_admin(&Ask::get("/routing")).await.json();
    routing["models"][0]["model"] = json!("\u{1b}[31mred\u{7}");
    routing["models"][0]["since"] = json!(u64::MAX);
    let other = Engine::start().await;
    let refusal = json!({"error": "no\u{1b}[31m"});
    for (status, answer, said) in [("200 OK", routing, "red"), ("404 Not Found", refusal, "404: no")] {
        other.answers(move |_| Answer::json(status, &answer));
        let shown = run(&["status", "--admin", &other.url()], &[]).await;
        let text = shown.stdout + &shown.stderr;
        assert!(text.contains(said), "{text}");
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text:?}");
    }
}
