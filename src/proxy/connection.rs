use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use http::header;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::sync::Notify;

use super::Proxy;
use super::error::OwnError;
use crate::live::Current;
use crate::metrics::METRICS;
use crate::request::Dialect;

/// A connection waits this long for its next request.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Takes client connections: counts them, and ends those that do not get a request's header out in time.
///
/// Pingora limits each read of a header, not all of them together, so a client that sends a byte a minute could hold a
/// connection for ever.
pub struct Edge {
    proxy: Arc<HttpProxy<Proxy>>,
    live: Current,
    open: AtomicUsize,
}

/// What the requests of one connection share.
#[derive(Default)]
pub struct Connection {
    header_read: Notify,
}

impl Connection {
    /// The header of a request has been read whole.
    pub fn header_read(&self) {
        self.header_read.notify_one();
    }
}

impl Edge {
    pub fn new(proxy: HttpProxy<Proxy>, live: Current) -> Edge {
        Edge { proxy: Arc::new(proxy), live, open: AtomicUsize::new(0) }
    }

    async fn serve(&self, stream: Stream, shutdown: &ShutdownWatch) {
        let connection = Arc::new(Connection::default());
        let mut session = ServerSession::new_http1(stream);
        let keepalive = (!*shutdown.borrow()).then_some(KEEPALIVE.as_secs());
        session.set_keepalive(keepalive);
        session.set_pipelining_enabled(true);
        session.set_connection_user_context(Some(Box::new(connection.clone())));
        // The first header has its limit. A later one has as long as the connection may be idle before it.
        let (mut header_max, mut first) = (self.live.load().server.limits.header_read, true);
        loop {
            // A request that ended at once may have left its notice unread.
            let _ = connection.header_read.notified().now_or_never();
            let request = self.proxy.process_new_http(session, shutdown);
            tokio::pin!(request);
            let ended = tokio::select! {
                ended = &mut request => ended,
                _ = connection.header_read.notified() => request.await,
                _ = tokio::time::sleep(header_max) => {
                    if first {
                        METRICS.limits_hit.with_label_values(&["header_read"]).inc();
                    }
                    return;
                }
            };
            let Some((stream, settings)) = ended.map(|reusable| reusable.consume()) else { return };
            session = ServerSession::new_http1(stream);
            if let Some(settings) = settings {
                settings.apply_to_session(&mut session);
            }
            (header_max, first) = (KEEPALIVE, false);
        }
    }

    /// Tells a client for which there is no room, and closes.
    async fn refuse(&self, stream: Stream) {
        METRICS.limits_hit.with_label_values(&["connections"]).inc();
        let error = OwnError::TooManyConnections;
        METRICS.own_errors.with_label_values(&[error.code()]).inc();
        let mut session = ServerSession::new_http1(stream);
        session.set_keepalive(None);
        let body = error.body(Dialect::OpenAi, "-");
        let Ok(mut answer) = error.header(Dialect::OpenAi, body.len(), "-") else { return };
        if answer.insert_header(header::CONNECTION, "close").is_ok()
            && session.write_response_header(answer).await.is_ok()
            && session.write_response_body(body, true).await.is_ok()
        {
            session.shutdown().await;
        }
    }
}

#[async_trait]
impl ServerApp for Edge {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let open = Open::new(self);
        if open.count > self.live.load().server.limits.connections {
            self.refuse(stream).await;
        } else {
            self.serve(stream, shutdown).await;
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
