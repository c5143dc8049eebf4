//! The configuration: one YAML file, checked as a whole before any of it is used.
//!
//! `yaml` makes a tree of the text, `place` reads single settings from it and notes faults, `check` and `model` know which
//! settings there are, and [`settings`] which values they may have. `schema` is made by running `check` over no file at
//! all, while `outline` notes what it asks for. `docs/configuring.md` describes each for the operator.

mod alias;
mod bounds;
mod callers;
mod check;
mod discovery;
mod engine_url;
mod fault;
mod file;
mod model;
mod outline;
mod place;
mod schema;
mod secret;
pub mod settings;
mod tls;
mod yaml;

pub use alias::Alias;
pub use bounds::{Bounds, Bytes, Quantity};
pub use callers::{Caller, KeyHash};
pub use discovery::{Discovery, Source};
pub use engine_url::EngineUrl;
pub use fault::{Fault, Faults, Position};
pub use model::{Engine, Model, Replicas, SpillThreshold, Timeouts, Transport};
pub use schema::schema;
pub use secret::{SECRET_MAX, Secret};
pub use tls::{Authorities, Identity, Trust};

use crate::request::source::KeySource;
use http::{HeaderName, HeaderValue};
use place::Place;
use serde::Deserialize;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest configuration file, in bytes.
pub const FILE_MAX: usize = 1 << 20;

/// A configuration in which every value is within its range and no two settings contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// At least one, no two of them overlapping.
    pub listen: Vec<Listen>,
    pub admin: Admin,
    pub server: Server,
    pub session: SessionRules,
    pub scrape: Scrape,
    /// Where spans are sent: a collector's address for OTLP over HTTP. `None`: nowhere.
    pub traces: Option<String>,
    /// `None`: anyone may call.
    pub callers: Option<Vec<Caller>>,
    /// At least one; names differ, and a nameless one stands alone.
    pub models: Vec<Model>,
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    pub address: SocketAddr,
    /// `None`: without TLS.
    pub tls: Option<Identity>,
}

/// Where metrics, health and reload are served. On an address that others can reach there is a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    pub address: SocketAddr,
    pub token: Option<Secret>,
}

/// How the balancer serves its clients, whatever the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Threads that serve clients.
    pub threads: usize,
    /// How long requests in flight may take to finish after the signal to stop.
    pub grace: Duration,
    pub access_log: AccessLog,
    /// Whether answers carry `x-homing-replica` and `x-homing-decision`.
    pub response_headers: bool,
    /// Where what the routers know is kept over a restart; `None`: nowhere.
    pub state_file: Option<PathBuf>,
    /// Where an old and a new process meet at an upgrade; `None`: in a folder of the system's for temporary files.
    pub upgrade_socket: Option<PathBuf>,
    pub client_credentials: ClientCredentials,
    /// Whose pages may call from a browser: `*` or origins.
    pub origins: Vec<HeaderValue>,
    pub limits: Limits,
    pub http2: Http2,
}

/// How a line of the access log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessLog {
    Text,
    Json,
    Off,
}

/// What becomes of the client's `authorization` and `x-api-key` on the way to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientCredentials {
    Pass,
    Drop,
}

/// What one client may take of the balancer; each has a counter of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request's body.
    pub body_bytes: u64,
    /// Bytes of all bodies held at once.
    pub buffered_bytes: u64,
    /// Bytes of a request's head: its first line and its headers.
    pub header_bytes: u64,
    /// Headers of a request.
    pub headers: usize,
    /// Time for all headers of a request to arrive; a TLS handshake before them is within it.
    pub header_read: Duration,
    /// Time for the whole body to arrive.
    pub body_read: Duration,
    /// How long a connection without a request stays open.
    pub idle: Duration,
    /// Client connections open at once.
    pub connections: usize,
}

/// What a client may do on one HTTP/2 connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Requests at once.
    pub streams: u32,
    /// Bytes of one request's headers.
    pub header_list_bytes: u64,
    /// Bytes of bodies that may be on their way unread, on one stream and on all of them.
    pub window_bytes: u64,
}

/// How requests are told to belong to one conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRules {
    /// The operator's own headers, asked before all sources.
    pub headers: Vec<HeaderName>,
    /// In the order they are asked; what is not listed is off.
    pub sources: Vec<KeySource>,
    pub agents: Agents,
}

/// Whether the agents of one session are conversations of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agents {
    Separate,
    Together,
}

/// How the metrics of engines are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrape {
    pub interval: Duration,
    pub timeout: Duration,
    /// Bytes of one engine's answer.
    pub max_bytes: u64,
}

impl Config {
    /// Reads and checks a file, and the key files and environment variables it names.
    ///
    /// # Errors
    /// Every fault in the file.
    pub fn load(path: &Path) -> Result<Config, Faults> {
        Config::parse(path, &read_text(path)?)
    }

    /// Checks a file's text. Faults name `path`, and relative paths in the text start from its folder.
    ///
    /// # Errors
    /// Every fault in the text.
    pub fn parse(path: &Path, text: &str) -> Result<Config, Faults> {
        checked(path, text, check::config)
    }

    /// Reads the admin address and its token from a file, whatever else stands there: for who only asks the balancer that
    /// it configures, and may not have its keys and certificates at hand.
    ///
    /// # Errors
    /// Every fault in these.
    pub fn load_admin(path: &Path) -> Result<Admin, Faults> {
        checked(path, &read_text(path)?, |root, folder| check::admin(&root.alone("admin"), &mut Vec::new(), folder))
    }

    /// The settings in which `new` differs and which this process cannot change while it runs: sockets are bound and
    /// threads are started once. Everything else takes effect on reload.
    pub fn needs_restart(&self, new: &Config) -> Vec<&'static str> {
        let mut settings = Vec::new();
        let bound = |config: &Config| -> Vec<_> {
            config.listen.iter().map(|listen| (listen.address, listen.tls.is_some())).collect()
        };
        if bound(self) != bound(new) {
            settings.push("listen");
        }
        if self.admin.address != new.admin.address {
            settings.push("admin.address");
        }
        if self.server.threads != new.server.threads {
            settings.push("server.threads");
        }
        if self.server.state_file != new.server.state_file {
            settings.push("server.state_file");
        }
        if self.traces != new.traces {
            settings.push("traces.endpoint");
        }
        if self.server.upgrade_socket != new.server.upgrade_socket {
            settings.push("server.upgrade_socket");
        }
        settings
    }

    /// The addresses at which others than this machine may call without a key.
    pub fn open_to_anyone(&self) -> Vec<SocketAddr> {
        let addresses = self.listen.iter().map(|listen| listen.address);
        addresses.filter(|address| self.callers.is_none() && !address.ip().is_loopback()).collect()
    }

    /// Replicas that are listed, over all models; each rank of an engine is one.
    pub fn replicas(&self) -> usize {
        let listed = self.models.iter().flat_map(|model| model.replicas.listed());
        listed.map(|engine| engine.data_parallel_size as usize).sum()
    }

    /// Whether the replicas of any model are discovered.
    pub fn discovers(&self) -> bool {
        self.models.iter().any(|model| matches!(model.replicas, Replicas::Discovered(_)))
    }
}

fn read_text(path: &Path) -> Result<String, Faults> {
    let bytes = file::read(path, FILE_MAX as u64 + 1)
        .map_err(|error| Faults::one(path, None, format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
        Faults::one(path, Some(Position::after(&valid)), "expected UTF-8 text")
    })
}

/// What `read` makes of a text, which it gets as a tree, with the folder that relative paths start from.
fn checked<T>(path: &Path, text: &str, read: impl FnOnce(&Place, &Path) -> T) -> Result<T, Faults> {
    if text.len() > FILE_MAX {
        let most = Bytes(FILE_MAX as u64).show();
        let message = format!("expected a file of at most {most}");
        return Err(Faults::one(path, Some(Position::START), message));
    }
    let (tree, broken) = yaml::read(text);
    let faults = RefCell::new(Vec::new());
    let folder = path.parent().unwrap_or(Path::new(""));
    let value = read(&Place::root(&tree, broken.is_some(), &faults), folder);
    let faults: Vec<Fault> = faults.into_inner().into_iter().chain(broken).collect();
    if faults.is_empty() { Ok(value) } else { Err(Faults::new(path, faults)) }
}
