//! An upgrade without loss: a running process hands its sockets and what its routers know to a new one.
//!
//! The new process ([`Taker`], `homing serve --upgrade`) waits at a Unix socket. The old one ([`Giver`]), told by SIGQUIT,
//! connects to it. Then, over that connection ([`wire`]):
//!
//! 1. Both say which hand-over they speak, and go no further if that differs.
//! 2. The old one sends the routing key and its listening sockets.
//! 3. The new one sets itself up, and says that it is ready.
//! 4. The old one sends what its routers know; the new one takes it, and says so.
//! 5. The old one says go. From now on the new one accepts, and the old one ends what it has in flight.
//!
//! Until the last step either may give up, and the old one serves on. Whoever connects meanwhile is accepted by the one or
//! the other, since both have the same sockets.

mod giver;
mod place;
mod taker;
mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener};

use serde::{Deserialize, Serialize};

use crate::request::RoutingKey;

pub use giver::{Giver, Signals};
pub use place::place;
pub use taker::Taker;

/// A listening socket.
pub struct Socket {
    pub address: Address,
    pub listener: TcpListener,
}

/// Where it listens, and what for.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub role: Role,
    /// As in the configuration: port 0 stands for any.
    pub configured: SocketAddr,
    pub bound: SocketAddr,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Clients,
    Admin,
}

/// What the old process sends first; the sockets themselves come with it, in the same order.
#[derive(Serialize, Deserialize)]
struct Offer {
    key: RoutingKey,
    sockets: Vec<Address>,
}

impl Socket {
    /// Listens before anything runs, so that an address in use is a sentence and not a panic.
    ///
    /// # Errors
    /// If it cannot be listened on.
    pub fn bind(role: Role, configured: SocketAddr) -> Result<Socket, String> {
        let explain = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("cannot listen on {configured}: {error}: a port below 1024 needs CAP_NET_BIND_SERVICE")
            }
            _ => format!("cannot listen on {configured}: {error}"),
        };
        let listener = TcpListener::bind(configured).map_err(explain)?;
        listener.set_nonblocking(true).map_err(explain)?;
        let bound = listener.local_addr().map_err(explain)?;
        Ok(Socket { address: Address { role, configured, bound }, listener })
    }

    /// The same socket, to be handed over one day.
    ///
    /// # Errors
    /// If there are no open files left.
    pub fn another(&self) -> Result<Socket, String> {
        let listener = self.listener.try_clone().map_err(|error| format!("{}: {error}", self.address.bound))?;
        Ok(Socket { address: self.address, listener })
    }
}
