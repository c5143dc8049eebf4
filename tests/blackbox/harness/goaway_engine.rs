//! An engine that speaks HTTP/2 frame by frame, so that it can say goodbye at any moment.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot, watch};

use super::raw_h2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, SETTINGS, read_frame, write_frame};
use super::within;

/// The flag of an answer to SETTINGS.
const ACK: u8 = 1;

/// A block that says `:status: 200`, which is in the static table (RFC 7541, appendix A).
const OK: &[u8] = &[0x88];

/// What a block begins with that says `:method: POST`, as above. What says another is a probe.
const POST: u8 = 0x83;

/// See the module. Probes are answered at once; turns as the test says.
pub struct GoawayEngine {
    pub address: SocketAddr,
    turns: UnboundedReceiver<RawTurn>,
}

/// A turn that has come whole.
pub struct RawTurn {
    /// Which connection it came on, from 0. Probes have theirs too.
    pub connection: usize,
    pub stream: u32,
    write: Arc<Mutex<OwnedWriteHalf>>,
    closing: Arc<Mutex<Option<oneshot::Sender<()>>>>,
    /// Its sender lives as long as the connection.
    ended: watch::Receiver<()>,
}

impl GoawayEngine {
    pub async fn start() -> GoawayEngine {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (arrived, turns) = unbounded_channel();
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(serve(stream, connection, arrived.clone()));
            }
        });
        GoawayEngine { address, turns }
    }

    /// The next turn.
    pub async fn turn(&mut self) -> RawTurn {
        within("a turn", self.turns.recv()).await.expect("the engine outlives the test")
    }

    /// Whether no turn has come that was not taken.
    pub fn is_quiet(&mut self) -> bool {
        self.turns.try_recv().is_err()
    }
}

impl RawTurn {
    /// Answers it: the body in one piece, which ends it or leaves it open.
    pub async fn answer(&self, body: &[u8], end: bool) {
        let mut write = self.write.lock().await;
        write_frame(&mut *write, HEADERS, END_HEADERS, self.stream, OK).await;
        write_frame(&mut *write, DATA, if end { END_STREAM } else { 0 }, self.stream, body).await;
    }

    /// Says on its connection that no stream after `last` was or will be looked at.
    pub async fn goodbye(&self, last: u32) {
        let payload = [last.to_be_bytes(), [0; 4]].concat();
        write_frame(&mut *self.write.lock().await, GOAWAY, 0, 0, &payload).await;
    }

    /// Closes its connection.
    pub async fn close(&self) {
        drop(self.closing.lock().await.take());
    }

    /// Waits until the other side has closed its connection.
    pub async fn ended(&mut self) {
        within("the connection's end", self.ended.changed()).await.expect_err("nothing is ever sent");
    }
}

async fn serve(stream: TcpStream, connection: usize, arrived: UnboundedSender<RawTurn>) {
    let _ = stream.set_nodelay(true);
    let (mut read, write) = stream.into_split();
    let write = Arc::new(Mutex::new(write));
    let (close, closed) = oneshot::channel();
    let closing = Arc::new(Mutex::new(Some(close)));
    let (_alive, ended) = watch::channel(());
    let turn =
        |stream| RawTurn { connection, stream, write: write.clone(), closing: closing.clone(), ended: ended.clone() };
    tokio::select! {
        _ = closed => {}
        _ = receive(&mut read, &write, |stream| arrived.send(turn(stream)).is_ok()) => {}
    }
    // The other half may be with the test still: this alone closes.
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut *write.lock().await).await;
}

async fn receive(
    read: &mut OwnedReadHalf,
    write: &Mutex<OwnedWriteHalf>,
    mut arrived: impl FnMut(u32) -> bool,
) -> Option<()> {
    let mut preface = [0; PREFACE.len()];
    read.read_exact(&mut preface).await.ok()?;
    write_frame(&mut *write.lock().await, SETTINGS, 0, 0, &[]).await;
    let mut posts = HashSet::new();
    loop {
        let (kind, flags, stream, payload) = read_frame(read).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => write_frame(&mut *write.lock().await, SETTINGS, ACK, 0, &[]).await,
            HEADERS if payload.first() == Some(&POST) => _ = posts.insert(stream),
            _ => {}
        }
        if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            if posts.remove(&stream) {
                arrived(stream).then_some(())?;
            } else {
                write_frame(&mut *write.lock().await, HEADERS, END_HEADERS | END_STREAM, stream, OK).await;
            }
        }
    }
}
