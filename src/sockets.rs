//! The listening sockets: opened, or taken over from the process before, and given to Pingora.

use std::net::SocketAddr;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use async_trait::async_trait;
use log::{info, warn};
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::{ServiceReadyNotifier, ServiceWithDependents};
use sd_notify::NotifyState;
use tokio::sync::Notify;

use crate::config::Config;
use crate::live::Current;
use crate::proxy::Listeners;
use crate::state::Keeper;
use crate::upgrade::{Role, Socket, Taker};

/// Those of a configuration: taken over as far as the process before had them, else opened.
///
/// # Errors
/// If an address cannot be listened on.
pub fn open(config: &Config, mut taker: Option<&mut Taker>) -> Result<Vec<Socket>, String> {
    let clients = config.listen.iter().map(|listen| (Role::Clients, listen.address));
    let mut socket = |(role, configured)| match taker.as_mut().and_then(|taker| taker.socket(role, configured)) {
        Some(socket) => Ok(socket),
        None => Socket::bind(role, configured),
    };
    clients.chain([(Role::Admin, config.admin.address)]).map(&mut socket).collect()
}

/// The true addresses of those for this use, in order, also for port 0.
pub fn bound(sockets: &[Socket], role: Role) -> Vec<SocketAddr> {
    sockets.iter().filter(|socket| socket.address.role == role).map(|socket| socket.address.bound).collect()
}

/// Hands the sockets to Pingora, which looks for them by address before it opens its own. At an upgrade, once the process
/// before has handed over.
pub struct Sockets {
    pub sockets: Vec<Socket>,
    pub listeners: Arc<Listeners>,
    pub taker: Option<Taker>,
    pub live: Current,
    pub keeper: Option<Arc<Keeper>>,
    /// Notified once signals are heeded.
    pub heeds: Arc<Notify>,
}

impl Sockets {
    /// Takes over from the process before, or ends this one.
    async fn take_over(&self, taker: Taker) {
        let fleet = self.live.load().fleet.clone();
        let taken = tokio::task::spawn_blocking(move || taker.take_over(&fleet)).await;
        match taken.unwrap_or(Err("the upgrade failed by a fault of this process's own".into())) {
            Ok(conversations) => info!("taken over: conversations {conversations}"),
            Err(why) => {
                eprintln!("homing: {why}");
                std::process::exit(1);
            }
        }
        // There is no way back from here: a file that cannot be written is a warning.
        if let Some(Err(why)) = self.keeper.clone().map(Keeper::start) {
            warn!("{why}");
        }
    }
}

/// Tells systemd, where it started the process, that it serves, and that it is this process which does: after an upgrade it
/// is another than before.
fn tell_systemd() {
    let serves = [NotifyState::Ready, NotifyState::MainPid(std::process::id())];
    if let Err(error) = sd_notify::notify(&serves) {
        warn!("systemd cannot be told that this process serves: {error}");
    }
}

#[async_trait]
impl ServiceWithDependents for Sockets {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        _shutdown: ShutdownWatch,
        _listeners_per_fd: usize,
        ready: ServiceReadyNotifier,
    ) {
        self.heeds.notified().await;
        if let Some(taker) = self.taker.take() {
            self.take_over(taker).await;
        }
        let mut schemes = self.listeners.schemes();
        if let Some(fds) = fds {
            let mut fds = fds.lock();
            for Socket { address, listener } in self.sockets.drain(..) {
                match address.role {
                    Role::Clients => info!("listening on {}://{}", schemes.next().unwrap_or("http"), address.bound),
                    Role::Admin => info!("admin on http://{}", address.bound),
                }
                fds.add(address.bound.to_string(), listener.into_raw_fd());
            }
        }
        ready.notify_ready();
        tell_systemd();
    }

    fn name(&self) -> &str {
        "sockets"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}
