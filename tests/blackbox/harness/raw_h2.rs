//! HTTP/2 frame by frame, for what no proper client would send.

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::within;

pub struct RawH2 {
    stream: TcpStream,
    next: u32,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its header block as it came, and its body.
    Answered(Vec<u8>, Vec<u8>),
    /// The error code of RST_STREAM.
    Reset(u32),
    /// The connection ended with it.
    Closed,
}

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
pub const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// What settings are called (RFC 9113, 6.5.2).
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;
pub const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The window of a connection before anything is said of it (RFC 9113, 6.9.2).
const WINDOW: u32 = 65_535;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

impl RawH2 {
    pub async fn connect(address: SocketAddr) -> RawH2 {
        let stream = TcpStream::connect(address).await.expect("the balancer takes connections");
        let mut raw = RawH2 { stream, next: 1 };
        let _ = raw.stream.write_all(PREFACE).await;
        raw.frame(SETTINGS, 0, 0, &[]).await;
        raw
    }

    /// Begins a request with these headers, none of them compressed. Returns its stream.
    pub async fn headers(&mut self, headers: &[(&str, &str)], end: bool) -> u32 {
        let stream = self.next;
        self.next += 2;
        let block: Vec<u8> = headers.iter().flat_map(|(name, value)| literal(name, value)).collect();
        self.frame(HEADERS, END_HEADERS | if end { END_STREAM } else { 0 }, stream, &block).await;
        stream
    }

    pub async fn data(&mut self, stream: u32, bytes: &[u8], end: bool) {
        self.frame(DATA, if end { END_STREAM } else { 0 }, stream, bytes).await;
    }

    /// Headers after the body.
    pub async fn trailers(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let block: Vec<u8> = headers.iter().flat_map(|(name, value)| literal(name, value)).collect();
        self.frame(HEADERS, END_HEADERS | END_STREAM, stream, &block).await;
    }

    /// Gives a request up (`CANCEL`).
    pub async fn reset(&mut self, stream: u32) {
        self.frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()).await;
    }

    /// Settings that change nothing, and are to be acknowledged.
    pub async fn settings(&mut self) {
        self.frame(SETTINGS, 0, 0, &[]).await;
    }

    /// A ping that is to be answered.
    pub async fn ping(&mut self) {
        self.frame(PING, 0, 0, &[7; 8]).await;
    }

    /// A request whose headers begin, and never end.
    pub async fn open_headers(&mut self, headers: &[(&str, &str)]) -> u32 {
        let stream = self.next;
        self.next += 2;
        let block: Vec<u8> = headers.iter().flat_map(|(name, value)| literal(name, value)).collect();
        self.frame(HEADERS, END_STREAM, stream, &block).await;
        stream
    }

    /// More of those headers.
    pub async fn continuation(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let block: Vec<u8> = headers.iter().flat_map(|(name, value)| literal(name, value)).collect();
        self.frame(CONTINUATION, 0, stream, &block).await;
    }

    /// Requests begun so far.
    pub fn begun(&self) -> u32 {
        self.next / 2
    }

    /// Says that the connection ends here.
    pub async fn goodbye(&mut self) {
        self.frame(GOAWAY, 0, 0, &[0; 8]).await;
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        write_frame(&mut self.stream, kind, flags, stream, payload).await;
    }

    /// What the other side allows: its settings, and the window of the whole connection once that is raised.
    pub async fn allowed(&mut self) -> (HashMap<u16, u32>, u32) {
        let mut settings = HashMap::new();
        loop {
            match within("a frame", read_frame(&mut self.stream)).await.expect("the connection goes on") {
                (SETTINGS, _, _, payload) => settings.extend(payload.chunks(6).map(|setting| {
                    (u16::from_be_bytes([setting[0], setting[1]]), u32::from_be_bytes(setting[2..].try_into().unwrap()))
                })),
                (WINDOW_UPDATE, _, 0, more) => {
                    return (settings, WINDOW + u32::from_be_bytes(more[..].try_into().unwrap()));
                }
                _ => {}
            }
        }
    }

    /// Waits for what becomes of the request on `stream`; what is said of others is passed over.
    pub async fn fate(&mut self, stream: u32) -> Fate {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        loop {
            let Some((kind, flags, of, payload)) = within("a frame", read_frame(&mut self.stream)).await else {
                return Fate::Closed;
            };
            match kind {
                GOAWAY if payload[4..8] != [0; 4] => return Fate::Closed,
                RST_STREAM if of == stream => {
                    return Fate::Reset(u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]));
                }
                HEADERS | CONTINUATION if of == stream => head.extend(payload),
                DATA if of == stream => body.extend(payload),
                _ => continue,
            }
            if of == stream && flags & END_STREAM != 0 {
                return Fate::Answered(head, body);
            }
        }
    }
}

/// Its type, its flags, its stream, its payload. None: the connection has ended.
pub async fn read_frame(read: &mut (impl AsyncRead + Unpin)) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut header = [0; 9];
    read.read_exact(&mut header).await.ok()?;
    let [a, b, c, kind, flags, stream @ ..] = header;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    read.read_exact(&mut payload).await.ok()?;
    Some((kind, flags, u32::from_be_bytes(stream), payload))
}

pub async fn write_frame(write: &mut (impl AsyncWrite + Unpin), kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    // The connection may have been closed on what was sent before: whoever reads is told.
    let _ = write.write_all(&frame).await;
}

impl Fate {
    /// Whether the engine's answer came back: the first byte of the block says `:status: 200`.
    pub fn is_ok(&self) -> bool {
        matches!(self, Fate::Answered(head, _) if head.first() == Some(&0x88))
    }
}

/// A literal header field without indexing and with a new name (RFC 7541, 6.2.2); all are shorter than 127 bytes.
fn literal(name: &str, value: &str) -> Vec<u8> {
    assert!(name.len() < 127 && value.len() < 127);
    [&[0, name.len() as u8][..], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}
