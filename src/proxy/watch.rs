//! Looks, while a try waits for its engine, for what ends it: the client has left, or the patience with the engine is over.

use std::pin::Pin;
use std::sync::Arc;

use pingora::protocols::SocketDigest;
use pingora::{Error, ErrorType};

use super::patience::Patience;
use super::presence::{self, LOOK_EVERY};

/// Ends when a try is to end. One for each try, not one for each token.
pub struct Watch {
    patience: Option<Arc<Patience>>,
    /// Ends with what the try is to end with.
    pub ends: Pin<Box<dyn Future<Output = Box<Error>> + Send + Sync>>,
}

impl Watch {
    /// Looks whether `client` leaves, and whether `patience` is over.
    pub fn new(client: Option<Arc<SocketDigest>>, patience: Option<Arc<Patience>>) -> Watch {
        Watch { ends: Box::pin(look(client, patience.clone())), patience }
    }

    /// Whether it looks for the end of the try of this patience.
    pub fn is_of(&self, patience: Option<&Arc<Patience>>) -> bool {
        self.patience.as_ref().map(Arc::as_ptr) == patience.map(Arc::as_ptr)
    }
}

/// One timer for all of it, of Pingora's, which cost a fraction of tokio's: it is begun with every request, looked at with each event
/// of a stream, and kept for as long as that lasts.
async fn look(client: Option<Arc<SocketDigest>>, patience: Option<Arc<Patience>>) -> Box<Error> {
    loop {
        pingora_timeout::sleep(LOOK_EVERY).await;
        if presence::has_left(client.as_deref()) {
            return Error::explain(ErrorType::ConnectionClosed, "the client left while its next request was waiting");
        }
        if let Some(end) = patience.as_ref().and_then(|patience| patience.reached()) {
            return end;
        }
    }
}
