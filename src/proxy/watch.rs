//! Looks, while a try waits for its engine, for what ends it: the client has left, or the patience with the engine is over.

use std::pin::Pin;
use std::sync::Arc;

use pingora::protocols::SocketDigest;
use pingora::{Error, ErrorType};

use super::patience::Patience;
use super::presence::{self, LOOK_EVERY};

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
        match patience {
            Some(patience) if patience.has_begun() => {
                let ends = Box::pin(beside_flow(client, patience.clone()));
                Watch { patience: Some(patience), begun: true, ends }
            }
            _ => Watch { begun: false, ends: Box::pin(before_flow(client, patience.clone())), patience },
        }
    }

    /// Whether it still looks for what matters: by this patience, and with or without an answer that has begun.
    pub fn is_of(&self, patience: Option<&Arc<Patience>>) -> bool {
        let begun = patience.is_some_and(|patience| patience.has_begun());
        self.patience.as_ref().map(Arc::as_ptr) == patience.map(Arc::as_ptr) && self.begun == begun
    }
}

async fn before_flow(client: Option<Arc<SocketDigest>>, patience: Option<Arc<Patience>>) -> Box<Error> {
    let over = async {
        match &patience {
            Some(patience) => patience.over().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = presence::left(client) => left(),
        error = over => error,
    }
}

/// One timer for both: whatever waits here is looked at with each event of a stream, and is kept for as long as that lasts.
async fn beside_flow(client: Option<Arc<SocketDigest>>, patience: Arc<Patience>) -> Box<Error> {
    loop {
        pingora_timeout::sleep(LOOK_EVERY).await;
        if presence::has_left(client.as_deref()) == Some(true) {
            return left();
        }
        if let Some(limit) = patience.reached() {
            return limit;
        }
    }
}

fn left() -> Box<Error> {
    Error::explain(ErrorType::ConnectionClosed, "the client left while its next request was waiting")
}
