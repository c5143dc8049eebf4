//! One end of an HTTP/1.1 connection: heads and bodies as they stand on the wire.
//!
//! Strict on purpose: a message with two framings, or with a broken chunk, is an error here.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;

const HEADERS_MAX: usize = 256;

/// The start line and the headers of a message.
#[derive(Clone, Debug)]
pub struct Head {
    pub start: String,
    pub headers: Vec<(String, String)>,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// A connection and what was read from it but not yet asked for.
pub struct Wire {
    stream: Box<dyn Pipe>,
    unread: Vec<u8>,
}

/// What bytes go through: a connection, plain or with TLS, or a pipe within the test.
pub trait Pipe: AsyncRead + AsyncWrite + Unpin + Send {
    /// The socket under it.
    fn socket(&self) -> Option<&TcpStream>;
}

impl Pipe for TcpStream {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl Pipe for tokio_rustls::client::TlsStream<TcpStream> {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self.get_ref().0)
    }
}

impl Pipe for tokio_rustls::server::TlsStream<TcpStream> {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self.get_ref().0)
    }
}

impl Pipe for DuplexStream {
    fn socket(&self) -> Option<&TcpStream> {
        None
    }
}

impl Head {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The framing its headers state; `None` where they state none.
    pub fn framing(&self) -> Result<Option<Framing>> {
        match (self.header("transfer-encoding"), self.header("content-length")) {
            (Some(_), Some(_)) => Err(broken("both content-length and transfer-encoding")),
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
            (Some(_), None) => Err(broken("a transfer coding other than chunked")),
            (None, Some(length)) => match length.parse() {
                Ok(length) => Ok(Some(Framing::Length(length))),
                Err(_) => Err(broken("content-length is no number")),
            },
            (None, None) => Ok(None),
        }
    }
}

impl Wire {
    pub fn new(stream: impl Pipe + 'static) -> Wire {
        Wire { stream: Box::new(stream), unread: Vec::new() }
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        // With TLS, what is written may wait for more.
        self.stream.flush().await
    }

    /// The next head; `None` where the other side closed before a byte of it.
    pub async fn head(&mut self) -> Result<Option<Head>> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                return parse_head(&head).map(Some);
            }
            if !self.read_more().await? {
                return if self.unread.is_empty() { Ok(None) } else { Err(cut()) };
            }
        }
    }

    pub async fn body(&mut self, framing: Framing) -> Result<Vec<u8>> {
        match framing {
            Framing::Length(length) => self.exactly(length).await,
            Framing::Chunked => {
                let mut body = Vec::new();
                while let Some(chunk) = self.chunk().await? {
                    body.extend(chunk);
                }
                Ok(body)
            }
            Framing::UntilClose => {
                while self.read_more().await? {}
                Ok(std::mem::take(&mut self.unread))
            }
        }
    }

    /// The next chunk of a chunked body; `None` after the last and its trailers.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).map_err(|_| broken("a chunk without a size"))?;
        if size == 0 {
            while !self.line().await?.is_empty() {}
            return Ok(None);
        }
        let chunk = self.exactly(size).await?;
        match self.line().await?.is_empty() {
            true => Ok(Some(chunk)),
            false => Err(broken("a chunk longer than its size")),
        }
    }

    /// So many bytes, whatever they are.
    pub async fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        self.exactly(count).await
    }

    /// Returns when the other side has closed or reset the connection.
    pub async fn closed(&mut self) {
        while matches!(self.read_more().await, Ok(true)) {}
    }

    /// Returns with the next head, or when the other side has closed without one.
    pub async fn closed_or_head(&mut self) -> Option<Head> {
        self.head().await.ok().flatten()
    }

    /// Makes the coming drop reset the connection instead of closing it.
    pub fn reset_on_drop(&self) {
        // A socket that is already gone cannot be told, and need not be.
        let _ = self.stream.socket().map(TcpStream::set_zero_linger);
    }

    /// Says that nothing more will be sent; what comes can still be read.
    pub async fn finish(&mut self) -> Result<()> {
        self.stream.shutdown().await
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.unread.len() < length {
            if !self.read_more().await? {
                return Err(cut());
            }
        }
        Ok(self.unread.drain(..length).collect())
    }

    async fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..end + 2).collect();
                return String::from_utf8(line[..end].to_vec()).map_err(|_| broken("a line that is no text"));
            }
            if !self.read_more().await? {
                return Err(cut());
            }
        }
    }

    /// False where the other side has closed.
    async fn read_more(&mut self) -> Result<bool> {
        self.unread.reserve(64 * 1024);
        Ok(self.stream.read_buf(&mut self.unread).await? > 0)
    }
}

fn parse_head(bytes: &[u8]) -> Result<Head> {
    let end = find(bytes, b"\r\n").ok_or_else(cut)?;
    let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let (_, headers) = match httparse::parse_headers(&bytes[end + 2..], &mut slots) {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) => return Err(cut()),
        Err(error) => return Err(Error::new(ErrorKind::InvalidData, error)),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = headers.iter().map(|header| (header.name.to_string(), text(header.value))).collect();
    Ok(Head { start: text(&bytes[..end]), headers })
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("broken message: {what}"))
}

fn cut() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the connection ended within a message")
}
