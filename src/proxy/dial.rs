//! Makes the connections to engines that speak HTTP/1.
//!
//! Pingora asks whoever implements its custom protocols for a new connection, and speaks HTTP/1 over what it gets where that is
//! no session of another. So its sessions and its pool stay, over a connection of ours. Pingora hides the trait from its
//! documentation.

use std::time::Duration;

use async_trait::async_trait;
use once_cell::sync::Lazy;
use pingora::Result;
use pingora::connectors::http::custom::{Connection, Connector};
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::protocols::ALPN;
use pingora::protocols::tls::CustomALPN;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::{HttpPeer, Peer};

use super::coalescing::Coalescing;

/// See the [module](self).
pub struct Dial(TransportConnector);

/// By this Pingora knows whom to ask. It is said to nobody else.
static OURS: Lazy<ALPN> = Lazy::new(|| ALPN::Custom(CustomALPN::new(b"homing".to_vec())));

impl Dial {
    pub fn new(settings: &ServerConf) -> Dial {
        Dial(TransportConnector::new(Some(ConnectorOptions::from_server_conf(settings))))
    }

    /// Has the connections to `peer` made here, if they are of HTTP/1.
    pub fn take(peer: &mut HttpPeer) {
        if peer.options.alpn == ALPN::H1 {
            peer.options.alpn = OURS.clone();
        }
    }
}

#[async_trait]
impl Connector for Dial {
    /// No protocol of ours: a new connection is all that this gives.
    type Session = ();

    async fn get_http_session<P: Peer + Send + Sync + 'static>(&self, peer: &P) -> Result<(Connection<()>, bool)> {
        let mut peer = peer.clone();
        if let Some(options) = peer.get_mut_peer_options() {
            options.alpn = ALPN::H1;
        }
        let stream = self.0.new_stream(&peer).await?;
        Ok((Connection::Stream(Box::new(Coalescing::new(stream)?)), false))
    }

    async fn reused_http_session<P: Peer + Send + Sync + 'static>(&self, _peer: &P) -> Option<()> {
        None
    }

    async fn release_http_session<P: Peer + Send + Sync + 'static>(&self, (): (), _peer: &P, _idle: Option<Duration>) {}
}
