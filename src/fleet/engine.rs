use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use pingora::protocols::TcpKeepalive;
use pingora::upstreams::peer::HttpPeer;

use crate::config::{self, Secret};

/// Connections to an engine that stay idle this long are closed: uvicorn closes its own after 5 s, and a request sent
/// into that close is lost.
const IDLE_MAX: Duration = Duration::from_millis(3500);

/// Time to connect to an engine.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Probes of a connection on which nothing moves, so that a peer that vanished without a word is noticed in two minutes.
pub fn tcp_keepalive() -> TcpKeepalive {
    TcpKeepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(15),
        count: 4,
        #[cfg(target_os = "linux")]
        user_timeout: Duration::ZERO,
    }
}

/// Checks in a row that must fail before an engine is taken out; one good one brings it back.
const FAILURES_OUT: u32 = 3;

/// One engine of the fleet as it lives: where it is and whether it answers. What it has to do is in its model's router.
pub struct Engine {
    /// `host:port`; also the Host header that it gets.
    pub name: String,
    /// The key that requests to it carry instead of the client's.
    pub api_key: Option<Secret>,
    host: String,
    port: u16,
    address: ArcSwapOption<SocketAddr>,
    failures: AtomicU32,
    answered: AtomicBool,
    checking: AtomicBool,
}

impl Engine {
    /// An engine as configured, not yet resolved or checked.
    pub fn new(engine: &config::Engine) -> Engine {
        let (host, port) = (engine.url.host().to_owned(), engine.url.port());
        let literal = host.parse().ok();
        Engine {
            name: engine.url.name(),
            api_key: engine.api_key.clone(),
            host,
            port,
            address: ArcSwapOption::from_pointee(literal.map(|ip| SocketAddr::new(ip, port))),
            failures: AtomicU32::new(0),
            answered: AtomicBool::new(false),
            checking: AtomicBool::new(false),
        }
    }

    /// Where to connect to, with the limits that every connection to an engine has.
    ///
    /// # Errors
    /// If the host's name does not resolve.
    pub async fn peer(&self) -> std::io::Result<HttpPeer> {
        let address = match self.address.load_full() {
            Some(address) => *address,
            None => self.resolve().await?,
        };
        let mut peer = HttpPeer::new(address, false, String::new());
        peer.options.connection_timeout = Some(CONNECT_MAX);
        peer.options.total_connection_timeout = Some(CONNECT_MAX);
        peer.options.idle_timeout = Some(IDLE_MAX);
        peer.options.tcp_keepalive = Some(tcp_keepalive());
        Ok(peer)
    }

    /// Looks the host's name up and keeps the address.
    ///
    /// # Errors
    /// If the name does not resolve; the address known before is kept.
    pub async fn resolve(&self) -> std::io::Result<SocketAddr> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?.next();
        let address = found.ok_or_else(|| std::io::Error::other(format!("{} has no address", self.host)))?;
        self.address.store(Some(Arc::new(address)));
        Ok(address)
    }

    /// Whether it has ever answered a check.
    pub fn answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Notes the outcome of a check. Some(up): the engine is to be used, or not, from now on.
    pub(super) fn checked(&self, good: bool) -> Option<bool> {
        if good {
            self.answered.store(true, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
            return Some(true);
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        (failures >= FAILURES_OUT).then_some(false)
    }

    /// Begins a check unless one is still under way.
    pub(super) fn begin_check(&self) -> bool {
        !self.checking.swap(true, Ordering::Acquire)
    }

    pub(super) fn end_check(&self) {
        self.checking.store(false, Ordering::Release);
    }
}
