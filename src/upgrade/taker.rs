use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use log::{info, warn};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::place::secure;
use super::wire::{OTHER_VERSION, Wire, Word};
use super::{Role, Socket};
use crate::fleet::Fleet;
use crate::request::RoutingKey;
use crate::state::State;

/// How long a new process waits for the old one to hand over.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The new process's end of a hand-over. Dropped before its end, the old one serves on.
pub struct Taker {
    wire: Wire,
    pub key: RoutingKey,
    /// Those that are not taken are closed here; the old process goes on with them until it ends.
    sockets: Vec<Socket>,
}

impl Taker {
    /// Waits at `place` until the old process hands its sockets over.
    ///
    /// # Errors
    /// In one sentence: if nobody can wait there, or nothing comes, or something else than a process like this one.
    pub fn wait(place: &Path) -> Result<Taker, String> {
        let explain = |why: String| format!("no upgrade at {}: {why}", place.display());
        let listener = listen(place).map_err(explain)?;
        info!("waiting at {} for the running process to hand over: send it SIGQUIT", place.display());
        let taken = accept(&listener);
        // Left behind it would do no harm, and the next process would find it stale.
        let _ = std::fs::remove_file(place);
        taken.map_err(explain)
    }

    /// The socket for this use that was configured so, if the old process had one.
    pub fn socket(&mut self, role: Role, configured: std::net::SocketAddr) -> Option<Socket> {
        let is_it = |socket: &Socket| socket.address.role == role && socket.address.configured == configured;
        let index = self.sockets.iter().position(is_it)?;
        Some(self.sockets.remove(index))
    }

    /// Takes over: from its return on the old process accepts nothing more. Blocks meanwhile. Returns the conversations
    /// taken.
    ///
    /// # Errors
    /// In one sentence; then the old process serves on.
    pub fn take_over(mut self, fleet: &Fleet) -> Result<usize, String> {
        let mut conversations = 0;
        let mut steps = || {
            self.wire.say(Word::Ready)?;
            let bytes = self.wire.receive_state()?;
            match State::from_bytes(&bytes) {
                Ok(state) => conversations = state.restore(fleet),
                // Sockets of an older version are worth more than its table.
                Err(why) => warn!("conversations begin anew: what the old process knows cannot be read: {why}"),
            }
            self.wire.say(Word::Taken)?;
            self.wire.hear(Word::Go)
        };
        match steps() {
            Ok(()) => Ok(conversations),
            Err(why) => Err(format!("the upgrade failed, and the old process serves on: {why}")),
        }
    }
}

fn listen(place: &Path) -> Result<UnixListener, String> {
    secure(place)?;
    let listener = match UnixListener::bind(place) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(place).is_ok() {
                return Err("another process waits there already".into());
            }
            // Its process is gone.
            std::fs::remove_file(place).and_then(|()| UnixListener::bind(place))
        }
        bound => bound,
    };
    listener.map_err(|error| error.to_string())
}

fn accept(listener: &UnixListener) -> Result<Taker, String> {
    let until = Instant::now() + WAIT_MAX;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!(
                "no running process handed over within {} s: was it sent SIGQUIT?",
                WAIT_MAX.as_secs()
            ));
        }
        set_socket_timeout(listener, Timeout::Recv, Some(left)).map_err(|error| error.to_string())?;
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error.to_string()),
        };
        // Someone who only looked whether anyone waits here says nothing.
        let Ok(greeted) = Wire::new(stream) else { continue };
        let mut wire = greeted.ok_or(OTHER_VERSION)?;
        let (offer, sockets) = wire.receive_offer()?;
        return Ok(Taker { wire, key: offer.key, sockets });
    }
}
