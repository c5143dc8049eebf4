//! The balancer under observation: the `homing` binary as a process of its own.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde_json::Value;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// Time for the balancer to say where it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// Time between two questions whether it is idle.
const POLL: Duration = Duration::from_millis(50);

/// Lines of a log that are kept.
const KEPT_MAX: usize = 10_000;

type LogLines = Lines<BufReader<ChildStderr>>;

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
    pid: u32,
    process: Child,
    binary: PathBuf,
    file: PathBuf,
    log: Log,
    /// The process that this one took over from.
    before: Option<Child>,
}

/// What becomes of the lines that a balancer logs.
#[derive(Clone)]
pub struct Log(Option<Arc<Mutex<VecDeque<String>>>>);

impl Log {
    /// They are shown on standard error.
    pub fn shown() -> Log {
        Log(None)
    }

    /// The last ones are kept.
    pub fn keep() -> Log {
        Log(Some(Arc::default()))
    }

    /// Those that were kept and hold this text.
    pub fn lines(&self, text: &str) -> Vec<String> {
        let kept = self.0.iter().flat_map(|lines| lines.lock().iter().cloned().collect::<Vec<_>>());
        kept.filter(|line| line.contains(text)).collect()
    }

    fn take(&self, line: String) {
        let Some(kept) = &self.0 else { return eprintln!("{line}") };
        let mut kept = kept.lock();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

impl Balancer {
    /// Starts `binary` on free ports before `replicas`. Its configuration stands in `folder`.
    ///
    /// # Errors
    /// When it cannot be started or does not say in time where it listens.
    pub async fn start(binary: &Path, folder: &Path, model: &Served<'_>, replicas: &[SocketAddr]) -> io::Result<Self> {
        Self::launch(binary, folder, &configuration(model, replicas), Log::shown()).await
    }

    /// The same with a configuration of one's own, which has it listen on one address.
    ///
    /// # Errors
    /// As [`Balancer::start`].
    pub async fn launch(binary: &Path, folder: &Path, configuration: &str, log: Log) -> io::Result<Self> {
        let file = folder.join("homing.yaml");
        std::fs::write(&file, configuration)?;
        let (process, pid, mut lines) = spawn(binary, &file, &[])?;
        let addresses = tokio::time::timeout(START_MAX, addresses(&mut lines)).await;
        let (address, admin) =
            addresses.map_err(|_| io::Error::other("the balancer does not say where it listens"))??;
        follow(lines, log.clone());
        Ok(Self { address, admin, pid, process, binary: binary.to_owned(), file, log, before: None })
    }

    /// Has a new process take over, at the same addresses. The old one ends what it has in flight.
    ///
    /// # Errors
    /// When it does not.
    pub async fn upgrade(&mut self) -> io::Result<()> {
        let (process, pid, mut lines) = spawn(&self.binary, &self.file, &["--upgrade"])?;
        self.signal(Signal::SIGQUIT)?;
        let taken = tokio::time::timeout(START_MAX, addresses(&mut lines)).await;
        let taken = taken.map_err(|_| io::Error::other("the new process does not take over"))??;
        if taken != (self.address, self.admin) {
            return Err(io::Error::other(format!("the new process listens elsewhere: {taken:?}")));
        }
        follow(lines, self.log.clone());
        self.before = Some(std::mem::replace(&mut self.process, process));
        self.pid = pid;
        Ok(())
    }

    /// Waits until the process is gone that an upgrade has replaced, if one has.
    ///
    /// # Errors
    /// When it does not end in time, or not well.
    pub async fn old_ends(&mut self, time: Duration) -> Result<(), String> {
        let Some(before) = &mut self.before else { return Ok(()) };
        match tokio::time::timeout(time, before.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(ended) => Err(format!("the old process ended badly: {ended:?}")),
            Err(_) => Err("the old process has not ended".to_owned()),
        }
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends its process a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill(Pid::from_raw(self.pid.cast_signed()), signal)?)
    }

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    /// What it says of its routing if that does not come to be in time.
    pub async fn becomes_idle(&self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        loop {
            let said = match reqwest::get(format!("http://{}/routing", self.admin)).await {
                Ok(answer) => answer.text().await,
                Err(error) => Err(error),
            };
            let said = said.map_err(|error| format!("it does not say what is in flight: {error}"))?;
            let routing: Value = serde_json::from_str(&said).map_err(|error| format!("{error} in {said}"))?;
            let models = routing["models"].as_array().ok_or_else(|| format!("no models in {said}"))?;
            if models.iter().all(|model| model.pointer("/totals/in_flight") == Some(&0.into())) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(format!("something is still in flight: {said}"));
            }
            tokio::time::sleep(POLL).await;
        }
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

/// Starts a process with that configuration. Returns also its number and what it logs.
fn spawn(binary: &Path, file: &Path, arguments: &[&str]) -> io::Result<(Child, u32, LogLines)> {
    let mut process = Command::new(binary)
        .arg("serve")
        .args(arguments)
        .arg("--config")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", binary.display())))?;
    let pid = process.id().ok_or_else(|| io::Error::other("the balancer has no number"))?;
    let stderr = process.stderr.take().ok_or_else(|| io::Error::other("the balancer has no log"))?;
    Ok((process, pid, BufReader::new(stderr).lines()))
}

fn follow(mut lines: LogLines, log: Log) {
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            log.take(line);
        }
    });
}

/// Reads the two addresses from the first lines of the log.
async fn addresses(log: &mut LogLines) -> io::Result<(SocketAddr, SocketAddr)> {
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
