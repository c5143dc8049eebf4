use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Response, StatusCode};

use crate::config::{self, Config, Secret, settings};
use crate::fleet::bearer;

/// The longest that an answer may take: a saved request of many megabytes has to be sent first.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest answer: what `/routing` says of thousands of replicas.
const ANSWER_MAX: u64 = 256 << 20;

/// The variable that may hold the admin token.
const TOKEN_VARIABLE: &str = "HOMING_ADMIN_TOKEN";

/// Where the balancer is that is asked.
#[derive(Args)]
pub struct Whereabouts {
    /// The configuration of the balancer: its admin address and token are asked for
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// Its admin address, if not http://127.0.0.1:9090; the token, where one is needed, from HOMING_ADMIN_TOKEN
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// A file that holds the token
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    token_file: Option<PathBuf>,
}

/// The admin address of a running balancer.
pub struct Admin {
    url: String,
    token: Option<Secret>,
    agent: Agent,
}

impl Whereabouts {
    /// The admin address that they lead to.
    ///
    /// # Errors
    /// If a file cannot be read, or names no address that can be asked.
    pub fn admin(&self) -> Result<Admin, String> {
        if let Some(file) = &self.config {
            let config::Admin { address, token } = Config::load_admin(file).map_err(|faults| faults.to_string())?;
            if address.port() == 0 {
                return Err(format!(
                    "{}: admin.address has any free port: name the one in use with --admin",
                    file.display()
                ));
            }
            return Ok(Admin::new(format!("http://{}", reachable(address)), token));
        }
        let url = self.admin.clone().unwrap_or_else(|| format!("http://{}", settings::ADMIN_ADDRESS));
        let url = url.trim_end_matches('/').to_owned();
        if !url.starts_with("http://") {
            return Err(format!("--admin: expected http://HOST:PORT, found `{url}`"));
        }
        let wrong =
            |what: &str, (expected, found): (String, String)| format!("{what}: expected {expected}, found {found}");
        let token = match &self.token_file {
            Some(file) => Some(Secret::from_file(file).map_err(|fault| wrong(&file.display().to_string(), fault))?),
            None if std::env::var_os(TOKEN_VARIABLE).is_none() => None,
            None => Some(Secret::from_environment(TOKEN_VARIABLE).map_err(|fault| wrong(TOKEN_VARIABLE, fault))?),
        };
        Ok(Admin::new(url, token))
    }
}

/// An address that is bound to every one of this machine's is asked at its own.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Admin {
    fn new(url: String, token: Option<Secret>) -> Admin {
        let agent = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            // It is this machine, or one beside it.
            .proxy(None)
            .build();
        Admin { url, token, agent: agent.into() }
    }

    /// What stands at a path.
    ///
    /// # Errors
    /// What went wrong and what to do, for the person who asked.
    pub fn get(&self, path: &str) -> Result<Value, String> {
        let request = self.agent.get(format!("{}{path}", self.url));
        self.answer(match &self.token {
            Some(token) => request.header("authorization", bearer(token)).call(),
            None => request.call(),
        })
    }

    /// What a path answers to these bytes.
    ///
    /// # Errors
    /// As [`Admin::get`].
    pub fn post(&self, path: &str, bytes: &[u8]) -> Result<Value, String> {
        let request = self.agent.post(format!("{}{path}", self.url));
        self.answer(match &self.token {
            Some(token) => request.header("authorization", bearer(token)).send(bytes),
            None => request.send(bytes),
        })
    }

    fn answer(&self, answer: Result<Response<ureq::Body>, ureq::Error>) -> Result<Value, String> {
        let url = &self.url;
        let mut answer = answer.map_err(|error| match error {
            ureq::Error::Io(error) if is_cut_off(&error) => {
                format!(
                    "homing: {url} did not take all that was sent: {error}. Is it more than `server.limits.body` of its \
                     configuration?"
                )
            }
            error => format!(
                "homing: nothing answers at {url}: {}. Is Homing running there? Its admin address is `admin.address` \
                 of its configuration: name that with --config FILE, or the address with --admin URL",
                match error {
                    // Without the word that ureq puts before it.
                    ureq::Error::Io(error) => error.to_string(),
                    error => error.to_string(),
                }
            ),
        })?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Err(format!(
                "homing: {url} asks for another token: the one of `admin.token`. Give it with --config FILE, \
                 --token-file FILE or in {TOKEN_VARIABLE}"
            ));
        }
        let text = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_string();
        let text = text.map_err(|error| format!("homing: the answer of {url} broke off: {error}"))?;
        let mut value: Value =
            serde_json::from_str(&text).map_err(|_| format!("homing: what answers at {url} is no Homing"))?;
        make_printable(&mut value);
        match value["error"].as_str() {
            Some(error) => Err(format!("homing: {url} answers {}: {error}", answer.status().as_u16())),
            None => Ok(value),
        }
    }
}

/// Whether the other side closed the connection while it was sent something.
fn is_cut_off(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Takes from what is shown all that a terminal would obey: it may not be Homing that answers.
fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(char::is_control) => {
            *text = text.replace(char::is_control, "\u{fffd}");
        }
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => fields.values_mut().for_each(make_printable),
        _ => {}
    }
}
