//! The balancer under observation: the `homing` binary as a process of its own.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// Time for the balancer to say where it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// The model that a balancer serves, and how.
pub struct Served<'a> {
    pub name: &'a str,
    pub max_num_seqs: u32,
    /// The time between two readings of the engines.
    pub scrape: Duration,
    /// How long new conversations wait for room at most; none: they do not wait.
    pub max_wait: Option<Duration>,
}

/// A running balancer. It ends when this is dropped.
pub struct Balancer {
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where metrics and routing are.
    pub admin: SocketAddr,
    process: Child,
}

impl Balancer {
    /// Starts `binary` on free ports before `replicas`. Its configuration stands in `folder`.
    ///
    /// # Errors
    /// When it cannot be started or does not say in time where it listens.
    pub async fn start(binary: &Path, folder: &Path, model: &Served<'_>, replicas: &[SocketAddr]) -> io::Result<Self> {
        let file = folder.join("homing.yaml");
        std::fs::write(&file, configuration(model, replicas))?;
        let mut process = Command::new(binary)
            .args(["serve".as_ref(), "--config".as_ref(), file.as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", binary.display())))?;
        let log = process.stderr.take().ok_or_else(|| io::Error::other("the balancer has no log"))?;
        let mut log = BufReader::new(log).lines();
        let addresses = tokio::time::timeout(START_MAX, addresses(&mut log)).await;
        let (address, admin) =
            addresses.map_err(|_| io::Error::other("the balancer does not say where it listens"))??;
        tokio::spawn(async move {
            while let Ok(Some(line)) = log.next_line().await {
                eprintln!("{line}");
            }
        });
        Ok(Self { address, admin, process })
    }

    /// Waits for its end, which nobody asked for.
    ///
    /// # Errors
    /// Always: that end.
    pub async fn ended(&mut self) -> io::Result<()> {
        let status = self.process.wait().await?;
        Err(io::Error::other(format!("the balancer ended: {status}")))
    }
}

fn configuration(model: &Served, replicas: &[SocketAddr]) -> String {
    let Served { name, max_num_seqs, scrape, max_wait } = model;
    let admission = match max_wait {
        Some(wait) => format!("{{mode: auto, max_wait: {} ms}}", wait.as_millis()),
        None => "off".to_owned(),
    };
    let urls: String = replicas.iter().map(|address| format!("      - url: http://{address}\n")).collect();
    let scrape_ms = scrape.as_millis();
    format!(
        "listen:\n  - address: 127.0.0.1:0\nadmin:\n  address: 127.0.0.1:0\nserver:\n  access_log: off\nscrape:\n  \
         interval: {scrape_ms} ms\nmodels:\n  - name: {name}\n    max_num_seqs: {max_num_seqs}\n    admission: {admission}\n    replicas:\n{urls}"
    )
}

/// Reads the two addresses from the first lines of the log.
async fn addresses(log: &mut Lines<BufReader<ChildStderr>>) -> io::Result<(SocketAddr, SocketAddr)> {
    let (mut address, mut admin) = (None, None);
    let mut said = String::new();
    while let Some(line) = log.next_line().await? {
        address = address.or(address_after(&line, "listening on http://"));
        admin = admin.or(address_after(&line, "admin on http://"));
        if let (Some(address), Some(admin)) = (address, admin) {
            return Ok((address, admin));
        }
        said = line;
    }
    Err(io::Error::other(format!("the balancer ended at its start: {said}")))
}

fn address_after(line: &str, words: &str) -> Option<SocketAddr> {
    line.split_once(words)?.1.trim().parse().ok()
}
