use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::time::Instant;

use super::error::OwnError;
use super::{Proxy, h1};
use crate::config::Limits;
use crate::live::Current;
use crate::metrics::METRICS;
use crate::request::Dialect;

/// Takes client connections: counts them, and refuses those that are too many.
pub struct Edge {
    pub(super) proxy: Arc<HttpProxy<Proxy>>,
    live: Current,
    open: AtomicUsize,
}

impl Edge {
    pub fn new(proxy: HttpProxy<Proxy>, live: Current) -> Edge {
        Edge { proxy: Arc::new(proxy), live, open: AtomicUsize::new(0) }
    }

    /// The limits of this moment.
    pub(super) fn limits(&self) -> Limits {
        self.live.load().server.limits.clone()
    }

    /// Tells a client for which there is no room, and closes.
    async fn refuse(&self, mut stream: Stream) {
        METRICS.limits_hit.with_label_values(&["connections"]).inc();
        h1::tell(&mut stream, OwnError::TooManyConnections, Dialect::OpenAi).await;
    }
}

#[async_trait]
impl ServerApp for Edge {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let open = Open::new(self);
        let limits = self.limits();
        if open.count > limits.connections {
            self.refuse(stream).await;
        } else {
            h1::serve(self, stream, Instant::now() + limits.header_read, shutdown).await;
        }
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
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
