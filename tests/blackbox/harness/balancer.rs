//! The balancer as a process: started with a configuration, asked, signalled, and reaped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::ask::Ask;
use super::client::{Client, Response, ask_once};
use super::output::Output;
use super::prometheus::Samples;
use super::routing::Routing;
use super::{config, until, within};

pub struct Balancer {
    /// Where it takes requests.
    pub listen: SocketAddr,
    /// Where it shows itself.
    pub admin: SocketAddr,
    pub output: Output,
    child: Child,
    directory: Arc<TempDir>,
    environment: Vec<(String, String)>,
}

impl Balancer {
    /// Starts it with `config` and what every test needs, and waits until it listens.
    pub async fn start(config: Value) -> Balancer {
        Balancer::start_with(config, &[]).await
    }

    /// The same, with variables in its environment.
    pub async fn start_with(config: Value, environment: &[(&str, &str)]) -> Balancer {
        let directory = TempDir::new().expect("a temporary directory");
        let file = directory.path().join("homing.yaml");
        std::fs::write(&file, config::complete(&config).to_string()).expect("the configuration is written");
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Balancer::of(directory.into(), environment.iter().map(owned).collect()).await
    }

    /// Starts it anew with the configuration that this one has.
    pub async fn again(&self) -> Balancer {
        Balancer::of(self.directory.clone(), self.environment.clone()).await
    }

    async fn of(directory: Arc<TempDir>, environment: Vec<(String, String)>) -> Balancer {
        let (child, output) = serve(directory.path(), &[], &environment);
        let listen = output
            .line("address to listen on", |line| {
                address(line, "listening on http://").or(address(line, "listening on https://"))
            })
            .await;
        let admin = output.line("admin address", |line| address(line, "admin on http://")).await;
        Balancer { listen, admin, output, child, directory, environment }
    }

    /// A new process that waits for this one to hand over, at the addresses that it will have then.
    pub fn successor(&self) -> Balancer {
        let (child, output) = serve(self.directory.path(), &["--upgrade"], &self.environment);
        let (directory, environment) = (self.directory.clone(), self.environment.clone());
        Balancer { listen: self.listen, admin: self.admin, output, child, directory, environment }
    }

    /// Asks once, on a connection of its own.
    pub async fn ask(&self, ask: &Ask) -> Response {
        ask_once(self.listen, ask).await
    }

    /// Asks the admin address.
    pub async fn ask_admin(&self, ask: &Ask) -> Response {
        ask_once(self.admin, ask).await
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.listen).await
    }

    /// What `/routing/m` says.
    pub async fn routing(&self) -> Routing {
        self.routing_of("m").await
    }

    pub async fn routing_of(&self, model: &str) -> Routing {
        let response = self.ask_admin(&Ask::get(&format!("/routing/{model}"))).await;
        assert_eq!(response.status, 200, "{}", response.text());
        Routing(response.json())
    }

    /// Asks `/routing/m` until `reached` holds of it.
    pub async fn routing_when(&self, what: &str, reached: impl Fn(&Routing) -> bool) -> Routing {
        until(what, async || Some(self.routing().await).filter(|routing| reached(routing))).await
    }

    /// Waits until nothing is in flight: a client may have its whole answer a moment before the balancer notes it.
    pub async fn idle(&self) -> Routing {
        self.routing_when("nothing in flight", |routing| routing.total("in_flight") == 0).await
    }

    /// Waits until every replica of `m` was scraped.
    pub async fn scraped(&self) -> Routing {
        self.routing_when("a reading of every replica", |routing| {
            routing.replicas().iter().all(|replica| replica["reading_age_s"].is_number())
        })
        .await
    }

    pub async fn metrics(&self) -> Samples {
        let response = self.ask_admin(&Ask::get("/metrics")).await;
        assert_eq!(response.status, 200);
        Samples::parse(&response.text())
    }

    /// Waits until a sum over samples is what it should be.
    pub async fn metric_becomes(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        until(&format!("{name}{labels:?} = {value}"), async || {
            Some(self.metrics().await.sum(name, labels)).filter(|sum| *sum == value)
        })
        .await;
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Changes the file; nothing is told of it.
    pub fn write(&self, config: &Value) {
        self.write_text(&config::complete(config).to_string());
    }

    pub fn write_text(&self, text: &str) {
        std::fs::write(self.path("homing.yaml"), text).expect("the configuration is written");
    }

    /// Changes the file and has it read again.
    pub async fn reload(&self, config: &Value) -> Response {
        self.write(config);
        self.ask_admin(&Ask::new("POST", "/reload")).await
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the balancer runs")
    }

    /// Memory that it holds (`VmRSS`).
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).expect("it can be signalled");
    }

    /// Waits for its end.
    pub async fn exit(&mut self) -> ExitStatus {
        within("the balancer's exit", self.child.wait()).await.expect("its exit status")
    }
}

/// The process, with the configuration of that folder.
fn serve(directory: &Path, arguments: &[&str], environment: &[(String, String)]) -> (Child, Output) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_homing"))
        .arg("serve")
        .args(arguments)
        .arg("--config")
        .arg(directory.join("homing.yaml"))
        .env("RUST_LOG", "info")
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary starts");
    let output = Output::new();
    output.keep(child.stdout.take().expect("stdout is piped"));
    output.keep(child.stderr.take().expect("stderr is piped"));
    (child, output)
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // Reaped here, so that no test leaves a process behind.
        let _ = self.child.start_kill();
        while let Ok(None) = self.child.try_wait() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// The address that stands in a line after `before`.
pub fn address(line: &str, before: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(before)?;
    rest.split_whitespace().next()?.trim_end_matches(['/', ',', '.']).parse().ok()
}
