use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use log::{error, info};
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::place::secure;
use super::wire::{OTHER_VERSION, Wire, Word, broken};
use super::{Offer, Socket};
use crate::live::Current;
use crate::panics::{contained_now, rehearse};
use crate::proxy::Activity;
use crate::request::RoutingKey;
use crate::state::{Keeper, STATE_MAX, State};

/// How long the old process looks for a new one: whoever starts that may send the signal in the same breath.
const LOOK_MAX: Duration = Duration::from_secs(10);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A SIGQUIT that comes so soon after a SIGTERM was sent before it, or with it: the system keeps no order.
const BREATH: Duration = Duration::from_millis(50);

const TOLD_TO_END: &str = "this process was told to end, and no new one waits there";

/// The old process's end of a hand-over.
pub struct Giver {
    pub place: PathBuf,
    /// None once the process is to end. A hand-over that has begun by then keeps them until it has offered them.
    pub sockets: Mutex<Option<Arc<Vec<Socket>>>>,
    pub key: RoutingKey,
    pub live: Current,
    pub keeper: Option<Arc<Keeper>>,
    pub activity: Arc<Activity>,
    /// Locked while it hands over: whether another process serves from then on is open, so this one does not end meanwhile.
    pub handing_over: Arc<AsyncMutex<()>>,
    /// Notified once signals are heeded: whoever sees the process listen may send one.
    pub heeds: Arc<Notify>,
}

impl Giver {
    /// Hands over to the process that waits. The task ends with whether that is done; if not, everything goes on as before.
    /// None: that is being done already.
    fn hand_over(self: &Arc<Giver>) -> Option<JoinHandle<bool>> {
        let turn = self.handing_over.clone().try_lock_owned().ok()?;
        let (giver, sockets) = (self.clone(), self.sockets.lock().clone());
        Some(tokio::task::spawn_blocking(move || {
            let handed = contained_now(|| giver.try_hand_over(sockets));
            let failed = match handed {
                Ok(Ok(())) => {
                    info!("handed over: the new process takes all new connections");
                    return true;
                }
                Ok(Err(why)) => why,
                Err(panic) => panic.to_string(),
            };
            let goes_on = if giver.is_to_end() { "ends" } else { "serves on" };
            error!("nothing was handed over at {}, and this process {goes_on}: {failed}", giver.place.display());
            drop(turn);
            false
        }))
    }

    fn try_hand_over(&self, sockets: Option<Arc<Vec<Socket>>>) -> Result<(), String> {
        rehearse("hand-over");
        let sockets = sockets.ok_or(TOLD_TO_END)?;
        let mut wire = Wire::new(self.connect()?).map_err(broken)?.ok_or(OTHER_VERSION)?;
        let addresses = sockets.iter().map(|socket| socket.address).collect();
        wire.send_offer(&Offer { key: self.key, sockets: addresses }, &sockets)?;
        drop(sockets);
        wire.hear(Word::Ready)?;
        wire.send_state(&State::of(&self.live.load().fleet, self.key).into_bytes(STATE_MAX)?)?;
        wire.hear(Word::Taken)?;
        // Before the last word, since the new process writes the same file from then on.
        self.keeper.as_ref().inspect(|keeper| keeper.keeps(false));
        wire.say(Word::Go).inspect_err(|_| {
            self.keeper.as_ref().inspect(|keeper| keeper.keeps(true));
        })?;
        self.activity.linger();
        Ok(())
    }

    /// Whether the process was told to end.
    fn is_to_end(&self) -> bool {
        self.sockets.lock().is_none()
    }

    /// Lets the sockets go. Held on to, they would take connections that nobody accepts.
    fn end(&self) {
        drop(self.sockets.lock().take());
    }

    fn connect(&self) -> Result<UnixStream, String> {
        secure(&self.place)?;
        let from = Instant::now();
        loop {
            match UnixStream::connect(&self.place) {
                Ok(stream) => return Ok(stream),
                Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                    return Err(error.to_string());
                }
                Err(_) if self.is_to_end() => return Err(TOLD_TO_END.into()),
                Err(_) if from.elapsed() > LOOK_MAX => {
                    return Err("no new process waits there: start one with --upgrade".into());
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
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
                handed = self.handed_over(&mut quit) => handed.then_some(ShutdownSignal::GracefulTerminate),
                _ = terminate.recv() => {
                    self.hands_over_too(&mut quit).await;
                    Some(ShutdownSignal::GracefulTerminate)
                }
                _ = interrupt.recv() => Some(ShutdownSignal::FastShutdown),
            };
            if let Some(ended) = ended {
                self.0.end();
                return ended;
            }
        }
    }
}

impl Signals {
    /// Ends with the next attempt to hand over.
    async fn handed_over(&self, quit: &mut Signal) -> bool {
        quit.recv().await;
        match self.0.hand_over() {
            Some(task) => task.await.unwrap_or(false),
            None => false,
        }
    }

    /// Begins to hand over where a SIGQUIT came with the signal to end: the new process may wait in vain otherwise, and none
    /// would serve.
    async fn hands_over_too(&self, quit: &mut Signal) {
        if timeout(BREATH, quit.recv()).await.is_ok() {
            drop(self.0.hand_over());
        }
    }
}
