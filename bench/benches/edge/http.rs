//! As much of HTTP/1.1 as both ends of the benchmark need.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::upstream::STREAM;

/// What the head of a message says.
#[derive(Default)]
pub struct Head {
    /// Bytes of its body, where that has a length.
    pub length: usize,
    /// The stream that it asks for, and the events of that.
    pub stream: Option<(usize, usize)>,
}

/// Reads a head and leaves what follows it in `read`. None: the other side has closed.
pub async fn read_head(connection: &mut TcpStream, read: &mut BytesMut) -> io::Result<Option<Head>> {
    loop {
        if let Some(end) = memchr::memmem::find(read, b"\r\n\r\n") {
            let head = parse(&read[..end + 4])?;
            read.advance(end + 4);
            return Ok(Some(head));
        }
        if read.capacity() - read.len() < 4096 {
            read.reserve(64 << 10);
        }
        if connection.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
}

/// Requests and answers alike: what stands before the headers does not matter here, but for the status.
fn parse(head: &[u8]) -> io::Result<Head> {
    let first_end = memchr::memchr(b'\n', head).map_or(0, |at| at + 1);
    let first = &head[..first_end];
    if first.starts_with(b"HTTP/") && !first[8..].starts_with(b" 200") {
        return Err(io::Error::other(format!("answered {}", String::from_utf8_lossy(first).trim())));
    }
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let parsed = httparse::parse_headers(&head[first_end..], &mut headers).map_err(io::Error::other)?;
    let mut said = Head::default();
    if let httparse::Status::Complete((_, headers)) = parsed {
        for header in headers {
            let value = || str::from_utf8(header.value).unwrap_or_default();
            if header.name.eq_ignore_ascii_case("content-length") {
                said.length = value().parse().map_err(io::Error::other)?;
            } else if header.name.eq_ignore_ascii_case(STREAM) {
                let numbers = value().split_once(' ').map(|(stream, events)| (stream.parse(), events.parse()));
                said.stream = numbers.and_then(|(stream, events)| Some((stream.ok()?, events.ok()?)));
            }
        }
    }
    Ok(said)
}
