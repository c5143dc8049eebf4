//! Serves an HTTP/1.1 connection, request after request.

use std::sync::Arc;

use futures::FutureExt;
use pingora::apps::HttpServerApp;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::connection::Edge;
use crate::metrics::METRICS;

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

/// Serves until the connection ends; `deadline` is for its first header.
///
/// Pingora limits each read of a header, not all of them together, so a client that sends a byte a minute could hold a
/// connection for ever.
pub async fn serve(edge: &Edge, stream: Stream, deadline: Instant, shutdown: &ShutdownWatch) {
    let connection = Arc::new(Connection::default());
    let mut session = ServerSession::new_http1(stream);
    let idle = edge.idle();
    session.set_keepalive((!*shutdown.borrow()).then_some(idle.as_secs()));
    session.set_pipelining_enabled(true);
    session.set_connection_user_context(Some(Box::new(connection.clone())));
    // The first header has its limit. A later one has as long as the connection may be idle before it.
    let (mut deadline, mut limit) = (deadline, "header_read");
    loop {
        // A request that ended at once may have left its notice unread.
        let _ = connection.header_read.notified().now_or_never();
        let request = edge.proxy.process_new_http(session, shutdown);
        tokio::pin!(request);
        let ended = tokio::select! {
            ended = &mut request => ended,
            _ = connection.header_read.notified() => request.await,
            _ = sleep_until(deadline) => return METRICS.limits_hit.with_label_values(&[limit]).inc(),
        };
        let Some((stream, settings)) = ended.map(|reusable| reusable.consume()) else { return };
        session = ServerSession::new_http1(stream);
        if let Some(settings) = settings {
            settings.apply_to_session(&mut session);
        }
        (deadline, limit) = (Instant::now() + idle, "idle");
    }
}
