use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use log::{error, info};
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::place::secure;
use super::wire::{OTHER_VERSION, Wire, Word, broken};
use super::{Offer, Socket};
use crate::live::Current;
use crate::proxy::Activity;
use crate::request::RoutingKey;
use crate::state::{Keeper, State};

/// How long the old process looks for a new one: whoever starts that may send the signal in the same breath.
const LOOK_MAX: Duration = Duration::from_secs(10);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The old process's end of a hand-over.
pub struct Giver {
    pub place: PathBuf,
    /// None once they are closed.
    pub sockets: Mutex<Option<Vec<Socket>>>,
    pub key: RoutingKey,
    pub live: Current,
    pub keeper: Option<Arc<Keeper>>,
    pub activity: Arc<Activity>,
    /// Notified once signals are heeded: whoever sees the process listen may send one.
    pub heeds: Arc<Notify>,
}

impl Giver {
    /// Hands over to the process that waits. Blocks until that is done. Returns whether it is; if not, everything goes on
    /// as before.
    fn hand_over(&self) -> bool {
        match self.try_hand_over() {
            Ok(()) => {
                info!("handed over: the new process takes all new connections");
                true
            }
            Err(why) => {
                error!("nothing was handed over at {}, and this process serves on: {why}", self.place.display());
                false
            }
        }
    }

    fn try_hand_over(&self) -> Result<(), String> {
        let mut wire = Wire::new(connect(&self.place)?).map_err(broken)?.ok_or(OTHER_VERSION)?;
        self.offer(&mut wire)?;
        wire.hear(Word::Ready)?;
        wire.send_state(&State::of(&self.live.load().fleet, self.key).to_bytes()?)?;
        wire.hear(Word::Taken)?;
        // Before the last word, since the new process writes the same file from then on.
        self.keeper.as_ref().inspect(|keeper| keeper.keeps(false));
        wire.say(Word::Go).inspect_err(|_| {
            self.keeper.as_ref().inspect(|keeper| keeper.keeps(true));
        })?;
        self.activity.linger();
        Ok(())
    }

    /// Offers the sockets. They stay where they are, for an end of this process closes them also while it hands over.
    fn offer(&self, wire: &mut Wire) -> Result<(), String> {
        let sockets = self.sockets.lock();
        let sockets = sockets.as_ref().ok_or("this process was told to end meanwhile")?;
        let addresses = sockets.iter().map(|socket| socket.address).collect();
        wire.send_offer(&Offer { key: self.key, sockets: addresses }, sockets)
    }
}

fn connect(place: &Path) -> Result<UnixStream, String> {
    secure(place)?;
    let from = Instant::now();
    loop {
        match UnixStream::connect(place) {
            Ok(stream) => return Ok(stream),
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Err(error.to_string());
            }
            Err(_) if from.elapsed() > LOOK_MAX => {
                return Err("no new process waits there: start one with --upgrade".into());
            }
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// What ends the process: SIGTERM, SIGINT, and SIGQUIT once a new process has taken over.
pub struct Signals(pub Arc<Giver>);

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        use SignalKind as Kind;
        // A SIGHUP is the reload service's. It is taken here too, so that none ends a process which that has yet to begin in.
        let signals = [Kind::terminate(), Kind::interrupt(), Kind::quit(), Kind::hangup()].map(signal);
        let [Ok(mut terminate), Ok(mut interrupt), Ok(mut quit), Ok(_hangup)] = signals else {
            error!("the system takes no handlers of signals: this process ends only by SIGKILL");
            return std::future::pending().await;
        };
        self.0.heeds.notify_one();
        loop {
            let ended = tokio::select! {
                _ = terminate.recv() => Some(ShutdownSignal::GracefulTerminate),
                _ = interrupt.recv() => Some(ShutdownSignal::FastShutdown),
                handed = self.handed_over(&mut quit) => handed.then_some(ShutdownSignal::GracefulTerminate),
            };
            if let Some(ended) = ended {
                // Held on to, they would take connections that nobody accepts.
                drop(self.0.sockets.lock().take());
                return ended;
            }
        }
    }
}

impl Signals {
    /// Ends with the next attempt to hand over.
    async fn handed_over(&self, quit: &mut Signal) -> bool {
        quit.recv().await;
        let giver = self.0.clone();
        tokio::task::spawn_blocking(move || giver.hand_over()).await.unwrap_or(false)
    }
}
