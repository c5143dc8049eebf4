//! Serves an HTTP/2 connection: each of its streams is a request like any other.

use std::sync::Arc;
use std::time::Duration;

use pingora::Error;
use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{self, H2Accept, H2Options, HttpSession};
use pingora::protocols::{Digest, Stream};
use pingora::server::ShutdownWatch;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Edge, EngineProxy};
use super::presence;
use crate::config::Http2;
use crate::metrics::METRICS;

/// A connection ends after this many requests that break the rules of HTTP; each costs work and answers nobody.
const MALFORMED_MAX: usize = 32;

/// A connection that is to end has this long, after its last answer, for the client to take that and close.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves until the connection ends; `deadline` is for its first bytes.
pub async fn serve(edge: &Edge, proxy: &Arc<EngineProxy>, stream: Stream, deadline: Instant, shutdown: &ShutdownWatch) {
    let mut shutdown = shutdown.clone();
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let handshake = server::handshake(stream, Some(options(&edge.live.load().server.http2)));
    let mut connection = match timeout_at(deadline, handshake).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(_)) => return,
        Err(_) => return limit_hit("header_read"),
    };
    let (mut closing, mut malformed) = (*shutdown.borrow(), 0);
    if closing {
        connection.graceful_shutdown();
    }
    // One receiver for each stream that is being served.
    let streams = watch::Sender::new(());
    loop {
        let idle_max = if closing { FAREWELL } else { edge.idle() };
        tokio::select! {
            // In this order: accepting also sends, so what was answered has left before a connection is found idle.
            biased;
            _ = shutdown.changed(), if !closing => {
                connection.graceful_shutdown();
                closing = true;
            }
            accepted = HttpSession::from_h2_conn(&mut connection, digest.clone()) => match accepted {
                Ok(Some(H2Accept::Session(session))) => {
                    let (proxy, shutdown, served) = (proxy.clone(), shutdown.clone(), streams.subscribe());
                    // On any of the service's threads, or one connection could not use more than one.
                    pingora_runtime::current_handle().spawn(async move {
                        proxy.process_new_http(ServerSession::new_http2(session), &shutdown).await;
                        drop(served);
                    });
                }
                Ok(Some(H2Accept::Rejected)) if malformed < MALFORMED_MAX => malformed += 1,
                Ok(Some(H2Accept::Rejected)) => return limit_hit("malformed"),
                Ok(None) => {
                    let _ = timeout(FAREWELL, presence::closed(presence::socket(Some(&digest)))).await;
                    return;
                }
                Err(error) if is_flood(&error) => return limit_hit("flood"),
                Err(_) => return,
            },
            () = idle(&streams, idle_max) => {
                if closing {
                    return;
                }
                limit_hit("idle");
                connection.graceful_shutdown();
                closing = true;
            }
        }
    }
}

/// Ends when no stream has been served for `time`.
async fn idle(streams: &watch::Sender<()>, time: Duration) {
    streams.closed().await;
    tokio::time::sleep(time).await;
}

/// Whether the library had enough of a client that sends what only costs work: resets, empty frames, continuations.
fn is_flood(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    cause.is_some_and(|cause| cause.is_library() && cause.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

fn options(settings: &Http2) -> H2Options {
    let mut options = server::default_h2_options();
    // The ranges of the settings are within those of the protocol.
    let number = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    options
        .max_concurrent_streams(settings.streams)
        .max_header_list_size(number(settings.header_list_bytes))
        .initial_window_size(number(settings.window_bytes))
        .initial_connection_window_size(number(settings.window_bytes));
    options
}

fn limit_hit(limit: &str) {
    METRICS.limits_hit.with_label_values(&[limit]).inc();
}
