use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pingora::apps::HttpServerOptions;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use pingora::server::configuration::ServerConf;
use pingora::services::listening::Service;
use pingora_proxy::{HttpProxy, ProxyServiceBuilder};
use tokio::time::{Instant, timeout_at};

use super::dial::Dial;
use super::error::OwnError;
use super::listeners::{Listeners, Opened};
use super::{Activity, Proxy, h1, h2};
use crate::config::Limits;
use crate::live::Current;
use crate::metrics::METRICS;
use crate::request::Dialect;

/// What serves the requests of all connections.
pub type EngineProxy = HttpProxy<Proxy, Dial>;

/// Takes client connections: counts them, finds out what they speak, and ends those that do not get to a request in time.
pub struct Edge {
    pub(super) live: Current,
    pub(super) activity: Arc<Activity>,
    listeners: Arc<Listeners>,
    open: AtomicUsize,
}

impl Edge {
    pub fn new(live: Current, activity: Arc<Activity>, listeners: Arc<Listeners>) -> Edge {
        Edge { live, activity, listeners, open: AtomicUsize::new(0) }
    }

    /// A service that has `proxy` serve the requests of the connections that this takes.
    pub fn service(self, proxy: Proxy, settings: &Arc<ServerConf>) -> Service<EngineProxy> {
        let edge = Arc::new(self);
        let take = move |proxy, stream, shutdown: &ShutdownWatch| -> BoxFuture<'static, Option<Stream>> {
            // In a task of its own: the one that this is called in keeps 13 KB for loops of Pingora's that never run.
            tokio::spawn(edge.clone().take(proxy, stream, shutdown.clone()));
            futures::future::ready(None).boxed()
        };
        let mut options = HttpServerOptions::default();
        // Every connection comes here, and not to Pingora's own loops.
        options.force_custom = true;
        let builder = ProxyServiceBuilder::new(settings, proxy).name("edge").server_options(options);
        builder.custom(Dial::new(settings), Arc::new(take)).build()
    }

    async fn take(self: Arc<Self>, proxy: Arc<EngineProxy>, stream: Stream, shutdown: ShutdownWatch) {
        let open = Open::new(&self);
        // What has not been answered yet, and what has not left yet, is awaited.
        let _held = self.activity.hold();
        if open.count > self.live.load().server.limits.connections {
            self.refuse(stream).await;
        } else {
            self.serve(&proxy, stream, &shutdown).await;
        }
    }

    /// Ends when a connection without a request is to be closed because the process is to end.
    pub(super) async fn farewell(&self, shutdown: &ShutdownWatch) {
        // Nobody is left who could say that the process ends: it has ended.
        let _ = shutdown.clone().wait_for(|begun| *begun).await;
        tokio::time::sleep(self.activity.farewell()).await;
    }

    /// How long a connection without a request stays open.
    pub(super) fn idle(&self) -> Duration {
        self.live.load().server.limits.idle
    }

    /// The limits of this moment.
    pub(super) fn limits(&self) -> Limits {
        self.live.load().server.limits.clone()
    }

    async fn serve(&self, proxy: &Arc<EngineProxy>, stream: Stream, shutdown: &ShutdownWatch) {
        let deadline = Instant::now() + self.live.load().server.limits.header_read;
        let opened = tokio::select! {
            opened = timeout_at(deadline, self.listeners.open(stream)) => opened,
            () = self.farewell(shutdown) => return,
        };
        match opened {
            Ok(Some(Opened::Http1(stream))) => h1::serve(self, proxy, stream, deadline, shutdown).await,
            // Boxed, or a connection of HTTP/1 would keep room for it.
            Ok(Some(Opened::Http2(stream))) => Box::pin(h2::serve(self, proxy, stream, deadline, shutdown)).await,
            Ok(None) => {}
            Err(_) => METRICS.limits_hit.with_label_values(&["header_read"]).inc(),
        }
    }

    /// Tells a client for which there is no room, and closes. With TLS it only closes: a handshake is most of the work.
    async fn refuse(&self, mut stream: Stream) {
        METRICS.limits_hit.with_label_values(&["connections"]).inc();
        if self.listeners.is_plain(&stream) {
            h1::tell(&mut stream, OwnError::TooManyConnections, Dialect::OpenAi).await;
        }
    }
}

/// One open connection, until it is dropped.
struct Open<'a> {
    edge: &'a Edge,
    /// Open connections, this one included.
    count: usize,
}

impl<'a> Open<'a> {
    fn new(edge: &'a Edge) -> Open<'a> {
        METRICS.connections.inc();
        Open { edge, count: edge.open.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.edge.open.fetch_sub(1, Ordering::Relaxed);
        METRICS.connections.dec();
    }
}
