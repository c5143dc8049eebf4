//! Looks, while a try waits for its engine, for what ends it: the client has left, or the patience with the engine is over.

use std::pin::Pin;
use std::sync::Arc;

use pingora::protocols::SocketDigest;
use pingora::{Error, ErrorType};

use super::patience::Patience;
use super::presence;

/// Ends when a try is to end. One until its answer begins and one from then on, not one for each token.
pub struct Watch {
    patience: Option<Arc<Patience>>,
    begun: bool,
    /// Ends with what the try is to end with.
    pub ends: Pin<Box<dyn Future<Output = Box<Error>> + Send + Sync>>,
}

impl Watch {
    /// Looks whether `client` leaves, and whether `patience` is over.
    pub fn new(client: Option<Arc<SocketDigest>>, patience: Option<Arc<Patience>>) -> Watch {
        let begun = has_begun(patience.as_ref());
        let waited_for = patience.clone();
        let over = async move {
            match waited_for {
                Some(patience) => patience.over().await,
                None => std::future::pending().await,
            }
        };
        let ends = Box::pin(async move {
            tokio::select! {
                () = presence::left(client) => {
                    Error::explain(ErrorType::ConnectionClosed, "the client left while its next request was waiting")
                }
                error = over => error,
            }
        });
        Watch { patience, begun, ends }
    }

    /// Whether it still looks for what matters: by this patience, and with or without an answer that has begun.
    pub fn is_of(&self, patience: Option<&Arc<Patience>>) -> bool {
        self.patience.as_ref().map(Arc::as_ptr) == patience.map(Arc::as_ptr) && self.begun == has_begun(patience)
    }
}

fn has_begun(patience: Option<&Arc<Patience>>) -> bool {
    patience.is_some_and(|patience| patience.has_begun())
}
