//! The listeners as clients meet them: with TLS or without, and HTTP/1.1 or HTTP/2 on either.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora::Result;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::l4::stream::Stream as TcpStream;
use pingora::protocols::{ALPN, Ssl, Stream};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use tokio::io::AsyncReadExt;

use crate::config::{Identity, Listen};
use crate::metrics::METRICS;

/// What a client sends first that speaks HTTP/2 without asking (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Every listener of the process.
pub struct Listeners(Vec<Listener>);

struct Listener {
    /// As in the file; port 0 stands for any.
    configured: SocketAddr,
    bound: SocketAddr,
    tls: Option<Tls>,
}

/// How the next connection is shaken hands with.
struct Tls(ArcSwap<Acceptor>);

/// What a connection turned out to speak.
pub enum Opened {
    Http1(Stream),
    Http2(Stream),
}

impl Listeners {
    /// Those of `listen`, bound to the addresses of `bound`, in the same order.
    ///
    /// # Errors
    /// If rustls refuses its own settings.
    pub fn new(listen: &[Listen], bound: &[SocketAddr]) -> Result<Listeners, String> {
        let listener = |(listen, bound): (&Listen, &SocketAddr)| {
            let tls = listen.tls.as_ref().map(Tls::new).transpose()?;
            Ok(Listener { configured: listen.address, bound: *bound, tls })
        };
        let all: Result<_, rustls::Error> = listen.iter().zip(bound).map(listener).collect();
        all.map(Listeners).map_err(|error| format!("TLS cannot be set up: {error}"))
    }

    /// `https` or `http`, for each.
    pub fn schemes(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|listener| if listener.tls.is_some() { "https" } else { "http" })
    }

    /// Shows the certificates of `listen` to new connections, and asks for those of clients as it says. A listener that is not
    /// there any more, or has no TLS there, keeps its own: it stays until a restart.
    pub fn renew(&self, listen: &[Listen]) {
        for (index, listener) in self.0.iter().enumerate() {
            let same = |listen: &&Listen| listen.address == listener.configured;
            let found = listen.get(index).filter(same).or_else(|| listen.iter().find(same));
            if let (Some(tls), Some(identity)) = (&listener.tls, found.and_then(|listen| listen.tls.as_ref()))
                && let Err(error) = tls.renew(identity)
            {
                log::error!("TLS of {} stays as it was: {error}", listener.bound);
            }
        }
    }

    /// Whether connections like this one begin with a TLS handshake; `None` if it came to none of these listeners.
    fn tls(&self, stream: &Stream) -> Option<Option<&Tls>> {
        let digest = stream.get_socket_digest()?;
        let local = digest.local_addr()?.as_inet()?;
        let is_its = |listener: &&Listener| {
            let bound = listener.bound;
            let any = bound.ip().is_unspecified() && bound.is_ipv4() == local.is_ipv4();
            bound.port() == local.port() && (bound.ip() == local.ip() || any)
        };
        self.0.iter().find(is_its).map(|listener| listener.tls.as_ref())
    }

    /// Whether a connection may be answered before a handshake.
    pub fn is_plain(&self, stream: &Stream) -> bool {
        matches!(self.tls(stream), Some(None))
    }

    /// Shakes hands where the listener asks for it, and finds out which protocol the client speaks. `None`: nothing can
    /// be said to it.
    pub async fn open(&self, stream: Stream) -> Option<Opened> {
        let tls = self.tls(&stream)?;
        let mut stream = *stream.into_any().downcast::<TcpStream>().ok()?;
        let Some(tls) = tls else {
            return match begins_with_preface(&mut stream).await.ok()? {
                true => Some(Opened::Http2(Box::new(stream))),
                false => Some(Opened::Http1(Box::new(stream))),
            };
        };
        // Its future is large, and every connection without TLS would keep room for it.
        let acceptor = tls.0.load_full();
        let shaken = Box::pin(acceptor.tls_handshake(stream)).await;
        METRICS.tls_handshakes.with_label_values(&[outcome(&shaken)]).inc();
        let stream = shaken.inspect_err(|error| log::debug!("a TLS handshake failed: {error}")).ok()?;
        match stream.selected_alpn_proto() {
            Some(ALPN::H2) => Some(Opened::Http2(Box::new(stream))),
            _ => Some(Opened::Http1(Box::new(stream))),
        }
    }
}

impl Tls {
    fn new(identity: &Identity) -> Result<Tls, rustls::Error> {
        Ok(Tls(ArcSwap::from_pointee(acceptor(identity)?)))
    }

    fn renew(&self, identity: &Identity) -> Result<(), rustls::Error> {
        self.0.store(Arc::new(acceptor(identity)?));
        Ok(())
    }
}

/// Made anew for each identity: none resumes a session with a client whose certificate would not do any more.
fn acceptor(identity: &Identity) -> Result<Acceptor, rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?;
    let config = match identity.client_verifier() {
        Some(verifier) => config.with_client_cert_verifier(verifier),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified_key())));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Acceptor::from_server_config(Arc::new(config)))
}

/// What became of a handshake, for the metrics.
fn outcome<T>(shaken: &Result<T>) -> &'static str {
    let Err(error) = shaken else { return "ok" };
    // Pingora keeps of rustls's errors only the words.
    let words = error.context.as_ref().map_or("", |words| words.as_str());
    match ["peer sent no certificates", "invalid peer certificate"].iter().any(|why| words.contains(why)) {
        true => "client_refused",
        false => "failed",
    }
}

/// Reads no further than it takes to tell, and puts back what it read. Pingora's own peek waits for as many bytes as the
/// preface has, and a short request has fewer.
async fn begins_with_preface(stream: &mut TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    let mut length = 0;
    while length < PREFACE.len() && start[..length] == PREFACE[..length] {
        match stream.read(&mut start[length..]).await? {
            0 => break,
            read => length += read,
        }
    }
    stream.rewind(&start[..length]);
    Ok(start[..length] == *PREFACE)
}
