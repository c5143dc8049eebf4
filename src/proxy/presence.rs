//! Whether a client is still there.

use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::{Digest, SocketDigest};

/// How often a connection's state is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);

/// `TCP_ESTABLISHED` of Linux' `tcp_states.h`: both sides may still send.
const ESTABLISHED: u8 = 1;

/// `TCP_FIN_WAIT1` and `TCP_FIN_WAIT2`, of the same place: this side has closed, the other has not.
const WAITING_FOR_CLOSE: [u8; 2] = [4, 5];

/// Whether the client has closed its side or its connection is gone. No, where the system does not tell.
///
/// Reading notices that too, but only until a byte of the client's next request has come: from then on a departure would
/// stand unread behind it.
pub fn has_left(socket: Option<&SocketDigest>) -> bool {
    socket.and_then(SocketDigest::tcp_info).is_some_and(|info| info.tcpi_state != ESTABLISHED)
}

/// Ends when the client has closed its side too, after ours was closed. To drop a connection before that may reset it, and
/// a reset overtakes what is still on its way to the client.
pub async fn closed(socket: Option<Arc<SocketDigest>>) {
    while let Some(info) = socket.as_ref().and_then(|socket| socket.tcp_info()) {
        if !WAITING_FOR_CLOSE.contains(&info.tcpi_state) {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The socket of a connection.
pub fn socket(digest: Option<&Digest>) -> Option<Arc<SocketDigest>> {
    digest?.socket_digest.clone()
}
