//! What the two processes say to each other, byte by byte.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::{Offer, Socket};
use crate::config::settings::LISTEN_ADDRESSES_MAX;
use crate::state::STATE_MAX;

/// The listeners for clients, and the one for the operator.
const SOCKETS_MAX: usize = LISTEN_ADDRESSES_MAX + 1;

/// How long either waits for the next word of the other, but where it says otherwise.
const WORD_MAX: Duration = Duration::from_secs(10);

/// How long for the first: it is said at once.
const HELLO_WAIT: Duration = Duration::from_secs(2);

/// The new process needs longer to be ready: it looks for its replicas first.
const READY_MAX: Duration = Duration::from_secs(30);

/// The largest offer: so many addresses take far less.
const OFFER_MAX: u64 = 64 << 10;

/// What both say first. The last four bytes are the version of the hand-over.
const HELLO: [u8; 12] = *b"homing\0u\x01\0\0\0";

/// What is to be said of another [`HELLO`].
pub const OTHER_VERSION: &str =
    "the two processes are of versions that cannot hand over to each other: restart instead";

/// Comes with the sockets.
const SOCKETS: u8 = b's';

/// What follows once all is set up, in this order.
#[derive(Clone, Copy)]
pub enum Word {
    Ready = b'r' as isize,
    Taken = b't' as isize,
    Go = b'g' as isize,
}

/// A connection between the two.
pub struct Wire(UnixStream);

impl Wire {
    /// Says hello, and hears it. None: the other speaks another hand-over.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn new(mut stream: UnixStream) -> io::Result<Option<Wire>> {
        stream.set_write_timeout(Some(WORD_MAX))?;
        stream.set_read_timeout(Some(HELLO_WAIT))?;
        stream.write_all(&HELLO)?;
        let mut hello = [0; HELLO.len()];
        stream.read_exact(&mut hello)?;
        stream.set_read_timeout(Some(WORD_MAX))?;
        Ok((hello == HELLO).then_some(Wire(stream)))
    }

    pub fn send_offer(&mut self, offer: &Offer, sockets: &[Socket]) -> Result<(), String> {
        let bytes = postcard::to_stdvec(offer).map_err(|error| error.to_string())?;
        self.send_bytes(&bytes)?;
        let handles: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.listener.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        if !attached.push(SendAncillaryMessage::ScmRights(&handles)) {
            return Err(format!("more than {SOCKETS_MAX} sockets cannot be handed over"));
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(&[SOCKETS])], &mut attached, SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|error| broken(error.into()))
    }

    pub fn receive_offer(&mut self) -> Result<(Offer, Vec<Socket>), String> {
        let bytes = self.receive_bytes(OFFER_MAX)?;
        let offer: Offer = postcard::from_bytes(&bytes).map_err(|_| "it offers what cannot be read".to_owned())?;
        let mut word = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut attached = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&self.0, &mut [IoSliceMut::new(&mut word)], &mut attached, RecvFlags::CMSG_CLOEXEC)
            .map_err(|error| broken(error.into()))?;
        let handles = attached.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(handles) => handles.collect::<Vec<OwnedFd>>(),
            _ => Vec::new(),
        });
        let listeners: Vec<TcpListener> = handles.map(TcpListener::from).collect();
        let are_those = |(address, listener): (&super::Address, &TcpListener)| {
            listener.local_addr().is_ok_and(|bound| bound == address.bound)
        };
        if word != [SOCKETS]
            || listeners.len() != offer.sockets.len()
            || !offer.sockets.iter().zip(&listeners).all(are_those)
        {
            return Err("it does not send the sockets that it offers".into());
        }
        let sockets =
            offer.sockets.iter().zip(listeners).map(|(address, listener)| Socket { address: *address, listener });
        let sockets = sockets.collect();
        Ok((offer, sockets))
    }

    pub fn send_state(&mut self, state: &[u8]) -> Result<(), String> {
        self.send_bytes(state)
    }

    pub fn receive_state(&mut self) -> Result<Vec<u8>, String> {
        self.receive_bytes(STATE_MAX)
    }

    pub fn say(&mut self, word: Word) -> Result<(), String> {
        self.0.write_all(&[word as u8]).map_err(broken)
    }

    pub fn hear(&mut self, word: Word) -> Result<(), String> {
        let patience = if matches!(word, Word::Ready) { READY_MAX } else { WORD_MAX };
        let mut heard = [0];
        self.0.set_read_timeout(Some(patience)).and_then(|()| self.0.read_exact(&mut heard)).map_err(broken)?;
        match heard == [word as u8] {
            true => Ok(()),
            false => Err("it says something unexpected".into()),
        }
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let length = (bytes.len() as u64).to_le_bytes();
        self.0.write_all(&length).and_then(|()| self.0.write_all(bytes)).map_err(broken)
    }

    fn receive_bytes(&mut self, most: u64) -> Result<Vec<u8>, String> {
        let mut length = [0; 8];
        self.0.read_exact(&mut length).map_err(broken)?;
        let length = u64::from_le_bytes(length);
        if length > most {
            return Err(format!("it sends more than {most} bytes"));
        }
        let mut bytes = Vec::new();
        let read = (&mut self.0).take(length).read_to_end(&mut bytes).map_err(broken)?;
        match read as u64 == length {
            true => Ok(bytes),
            false => Err(broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

pub fn broken(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the other process did not go on in time".into(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            "the other process gave up: its log says why".into()
        }
        _ => error.to_string(),
    }
}
