use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pingora::protocols::TcpKeepalive;
use pingora::upstreams::peer::HttpPeer;

use crate::config;

/// Connections to an engine that stay idle this long are closed: uvicorn closes its own after 5 s, and a request sent
/// into that close is lost.
const IDLE_MAX: Duration = Duration::from_millis(3500);

/// Time to connect to an engine, a TLS handshake included.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Requests at once on one HTTP/2 connection to an engine, if that allows as many.
const STREAMS_MAX: usize = 100;

/// An engine that takes nothing of a body for this long over HTTP/2 is given up: until the body is sent, Pingora does not
/// look whether the client is still there.
const WRITE_MAX: Duration = Duration::from_secs(60);

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

/// How an engine is connected to, whatever its address.
pub struct Transport {
    settings: config::Transport,
    /// The name that its certificate must bear; `None`: without TLS.
    server_name: Option<String>,
    /// Connections are shared only within a group, so that none outlives the settings that it was made with.
    group: u64,
}

impl Transport {
    /// As configured.
    pub fn new(engine: &config::Engine) -> Transport {
        static GROUPS: AtomicU64 = AtomicU64::new(1);
        Transport {
            settings: engine.transport.clone(),
            server_name: server_name(engine),
            group: GROUPS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Whether this is how `engine` is to be connected to.
    pub fn is_of(&self, engine: &config::Engine) -> bool {
        self.settings == engine.transport && self.server_name == server_name(engine)
    }

    /// The engine at `address`, with the limits that every connection to an engine has.
    pub fn peer(&self, address: SocketAddr) -> HttpPeer {
        let tls = self.server_name.is_some();
        let mut peer = HttpPeer::new(address, tls, self.server_name.clone().unwrap_or_default());
        peer.group_key = self.group;
        peer.options.connection_timeout = Some(CONNECT_MAX);
        peer.options.total_connection_timeout = Some(CONNECT_MAX);
        peer.options.idle_timeout = Some(IDLE_MAX);
        peer.options.tcp_keepalive = Some(tcp_keepalive());
        peer.options.ca = self.settings.trust.authorities.as_ref().map(|authorities| authorities.certificates());
        if self.settings.http2 {
            // Over TLS the two agree on a version; without it there is no way to ask.
            peer.options.set_http_version(2, if tls { 1 } else { 2 });
            peer.options.max_h2_streams = STREAMS_MAX;
            peer.options.write_timeout = Some(WRITE_MAX);
        }
        peer
    }
}

/// Pingora checks no certificate where the name is empty: with TLS there is always one.
fn server_name(engine: &config::Engine) -> Option<String> {
    let name = engine.transport.trust.server_name.as_deref().unwrap_or(engine.url.host());
    engine.url.tls().then(|| name.to_owned())
}
