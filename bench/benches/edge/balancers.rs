//! What is compared: one worker each, no access log, connections to the engines kept open.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The first is what the others are compared to.
pub const BALANCERS: [&str; 4] = ["nginx", "HAProxy", "bare Pingora", "Homing"];

/// Time to accept a connection after the start.
const START_MAX: Duration = Duration::from_secs(10);

/// Where the programs are.
pub struct Programs {
    /// What Debian's packages of nginx and HAProxy hold, unpacked (`make setup-bench-edge`).
    pub debian: PathBuf,
    pub homing: PathBuf,
}

/// A balancer that runs. It ends when this is dropped.
pub struct Balancer {
    pub name: &'static str,
    pub address: SocketAddr,
    process: Child,
}

/// Starts one after another, each with its configuration in `folder`.
///
/// # Errors
/// When one does not start.
pub async fn start_all(programs: &Programs, folder: &Path, engines: &[SocketAddr]) -> io::Result<Vec<Balancer>> {
    let mut balancers = Vec::new();
    for name in BALANCERS {
        let address = free_address()?;
        let command = match name {
            "nginx" => nginx(programs, folder, address, engines)?,
            "HAProxy" => haproxy(programs, folder, address, engines)?,
            "bare Pingora" => bare(address, engines)?,
            _ => homing(programs, folder, address, engines)?,
        };
        balancers.push(Balancer::start(name, address, command).await?);
    }
    Ok(balancers)
}

impl Balancer {
    async fn start(name: &'static str, address: SocketAddr, mut command: Command) -> io::Result<Balancer> {
        let explain = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn().map_err(explain)?;
        let accepts = async { while TcpStream::connect(address).await.is_err() {} };
        tokio::select! {
            () = accepts => Ok(Balancer { name, address, process }),
            ended = process.wait() => Err(explain(io::Error::other(format!("it ended at its start: {}", ended?)))),
            () = tokio::time::sleep(START_MAX) => Err(explain(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Processor time that it has used, all of its threads together, in seconds.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_s(&self) -> io::Result<f64> {
        let pid = self.process.id().ok_or_else(|| io::Error::other(format!("{} has ended", self.name)))?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // After the name: the state is field 3, utime and stime are 14 and 15, in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at - 3).and_then(|ticks| ticks.parse::<f64>().ok());
        match (ticks(14), ticks(15)) {
            (Some(user), Some(system)) => Ok((user + system) / 100.0),
            _ => Err(io::Error::other("/proc/PID/stat is not as expected")),
        }
    }
}

/// A port that nobody uses: nginx and HAProxy cannot say which one they would have got.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn lines(engines: &[SocketAddr], line: impl Fn(usize, &SocketAddr) -> String) -> String {
    engines.iter().enumerate().map(|(index, engine)| line(index, engine)).collect()
}

/// Sessions are kept together by a hash of their header; bodies of the load stay in memory.
fn nginx(programs: &Programs, folder: &Path, address: SocketAddr, engines: &[SocketAddr]) -> io::Result<Command> {
    let file = folder.join("nginx.conf");
    let servers = lines(engines, |_, engine| format!("server {engine}; "));
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}; ", folder.join(kind).display()))
        .concat();
    fs::write(
        &file,
        format!(
            "worker_processes 1; daemon off; master_process off; pid {pid}; error_log stderr warn;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n  access_log off; {temporary}\n\
             client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 1000000000;\n\
             upstream engines {{ hash $http_x_session_id consistent; {servers} keepalive 256; \
             keepalive_requests 1000000000; }}\n\
             server {{ listen {address}; location / {{ proxy_pass http://engines; proxy_http_version 1.1; \
             proxy_set_header Connection ''; proxy_buffering off; proxy_read_timeout 5m; }} }}\n}}\n",
            pid = folder.join("nginx.pid").display(),
        ),
    )?;
    let mut command = Command::new(programs.debian.join("usr/sbin/nginx"));
    command.args(["-c".as_ref(), file.as_os_str(), "-e".as_ref(), "stderr".as_ref()]);
    Ok(command)
}

/// Sessions are kept together by a hash of their header; bodies pass without being read.
fn haproxy(programs: &Programs, folder: &Path, address: SocketAddr, engines: &[SocketAddr]) -> io::Result<Command> {
    let file = folder.join("haproxy.cfg");
    let servers = lines(engines, |index, engine| format!("  server engine{index} {engine}\n"));
    fs::write(
        &file,
        format!(
            "global\n  nbthread 1\n  maxconn 4096\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 5m\n  timeout server 5m\n\
             option http-keep-alive\n  option http-no-delay\n  http-reuse always\n\
             frontend edge\n  bind {address}\n  default_backend engines\n\
             backend engines\n  balance hdr(x-session-id)\n  hash-type consistent\n{servers}"
        ),
    )?;
    let mut command = Command::new(programs.debian.join("usr/sbin/haproxy"));
    command
        .env("LD_LIBRARY_PATH", programs.debian.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH)));
    command.args(["-db".as_ref(), "-f".as_ref(), file.as_os_str()]);
    Ok(command)
}

/// This very program, as a proxy.
fn bare(address: SocketAddr, engines: &[SocketAddr]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bare").arg(address.to_string()).args(engines.iter().map(SocketAddr::to_string));
    Ok(command)
}

/// All that Homing does by itself: the body is read, its model and the session are found, the router decides and learns
/// from the answer's tokens.
fn homing(programs: &Programs, folder: &Path, address: SocketAddr, engines: &[SocketAddr]) -> io::Result<Command> {
    let file = folder.join("homing.yaml");
    let replicas = lines(engines, |_, engine| format!("      - url: http://{engine}\n"));
    fs::write(
        &file,
        format!(
            "listen:\n  - address: {address}\nadmin:\n  address: 127.0.0.1:0\n\
             server:\n  threads: 1\n  access_log: off\n\
             models:\n  - name: m\n    replicas:\n{replicas}"
        ),
    )?;
    let mut command = Command::new(&programs.homing);
    command.env("RUST_LOG", "error").args(["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
    Ok(command)
}
