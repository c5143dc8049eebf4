//! The head of an HTTP/1 request, read as strictly as the standard allows (RFC 9112, RFC 9110).
//!
//! What two readers might understand differently is how one request is smuggled inside another. So whatever is ambiguous is
//! refused here, before anything else looks at it, rather than mended: two framings, a line that ends in half a line break, a
//! header that goes on in the next line, a second Host.

use std::mem::MaybeUninit;

use http::Uri;
use http::uri::Authority;
use httparse::{Error, Header, Request, Status};
use memchr::memchr;

use super::Dialect;
use super::endpoint::dialect_of;

/// The most headers that can be asked for as a limit: what Pingora reads.
pub const HEADERS_MAX: usize = 256;

/// The longest target, in bytes: no path that is known is longer than 200, and few clients use queries.
pub const TARGET_MAX: usize = 8 << 10;

/// The longest name of a header, in bytes.
const NAME_MAX: usize = 256;

/// How the body of a request is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// It has this many bytes, or none.
    Length(u64),
    Chunked,
    /// It is no HTTP any more if the other side agrees: the request asks for a WebSocket.
    WebSocket,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It breaks a rule.
    Malformed(&'static str),
    TooManyHeaders,
    TooLarge,
    TargetTooLong,
    /// A transfer coding other than chunked.
    UnknownCoding,
    /// CONNECT, which would make a tunnel of the balancer.
    Connect,
}

/// Looks for the end of a head while it arrives.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Where the line begins that was read last.
    line: usize,
    /// Up to where the bytes were looked at.
    seen: usize,
}

impl Scanner {
    /// The length of the head, if `bytes`, which is all that has come so far, holds it whole.
    ///
    /// # Errors
    /// If a line ends in a line feed alone: waiting for the true end would be waiting for ever.
    pub fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        while let Some(offset) = memchr(b'\n', &bytes[self.seen..]) {
            let feed = self.seen + offset;
            let Some(b'\r') = feed.checked_sub(1).map(|before| bytes[before]) else {
                return Err(Fault::Malformed("a line ends in a line feed alone"));
            };
            self.seen = feed + 1;
            if feed - 1 == self.line {
                return Ok(Some(feed + 1));
            }
            self.line = feed + 1;
        }
        self.seen = bytes.len();
        Ok(None)
    }
}

/// Checks a whole head, and says how the body behind it is framed.
///
/// # Errors
/// If it is to be refused.
pub fn check(head: &[u8], headers_max: usize) -> Result<Framing, Fault> {
    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut slots[..headers_max.min(HEADERS_MAX)]) {
        Ok(Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(Fault::Malformed("it does not end where it seems to")),
        Err(Error::TooManyHeaders) => return Err(Fault::TooManyHeaders),
        Err(Error::Version) => return Err(Fault::Malformed("neither HTTP/1.0 nor HTTP/1.1")),
        Err(Error::HeaderName) => return Err(Fault::Malformed("the name of a header")),
        Err(Error::HeaderValue) => return Err(Fault::Malformed("the value of a header")),
        Err(_) => return Err(Fault::Malformed("the request line")),
    }
    let old = request.version == Some(0);
    if request.method == Some("CONNECT") {
        return Err(Fault::Connect);
    }
    if request.headers.iter().any(|header| header.name.len() > NAME_MAX) {
        return Err(Fault::TooLarge);
    }
    target(request.path.unwrap_or_default(), host(request.headers, old)?)?;
    framing(request.headers, old)
}

/// The one Host, where there is one.
fn host<'a>(headers: &[Header<'a>], old: bool) -> Result<Option<&'a str>, Fault> {
    let host = match all(headers, "host").as_slice() {
        [] if old => return Ok(None),
        [] => return Err(Fault::Malformed("no Host")),
        [host] => str::from_utf8(host).unwrap_or_default(),
        _ => return Err(Fault::Malformed("more than one Host")),
    };
    match host.parse::<Authority>() {
        Ok(_) if !host.contains('@') => Ok(Some(host)),
        _ => Err(Fault::Malformed("the value of Host")),
    }
}

/// A path, or a whole address whose authority is the Host.
fn target(target: &str, host: Option<&str>) -> Result<(), Fault> {
    if target.len() > TARGET_MAX {
        return Err(Fault::TargetTooLong);
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\\#".contains(&byte);
    let uri = Some(target).filter(|target| target.bytes().all(plain)).and_then(|target| target.parse::<Uri>().ok());
    let uri = uri.ok_or(Fault::Malformed("the target"))?;
    let fits = match uri.scheme_str() {
        None => target.starts_with('/') || target == "*",
        Some("http" | "https") => host.is_none_or(|host| uri.authority().is_some_and(|own| own.as_str() == host)),
        Some(_) => false,
    };
    if fits { Ok(()) } else { Err(Fault::Malformed("the target")) }
}

/// By length or by chunks, never both, and neither of them twice.
fn framing(headers: &[Header], old: bool) -> Result<Framing, Fault> {
    let (codings, lengths) = (all(headers, "transfer-encoding"), all(headers, "content-length"));
    match (codings.as_slice(), lengths.as_slice()) {
        ([], []) if asks_for_websocket(headers) => Ok(Framing::WebSocket),
        ([], []) => Ok(Framing::Length(0)),
        ([], [length]) => length_of(length).map(Framing::Length).ok_or(Fault::Malformed("the value of Content-Length")),
        ([_, ..], [_, ..]) => Err(Fault::Malformed("both Transfer-Encoding and Content-Length")),
        ([], [_, ..]) => Err(Fault::Malformed("more than one Content-Length")),
        ([_], []) if old => Err(Fault::Malformed("Transfer-Encoding in HTTP/1.0")),
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        ([_], []) => Err(Fault::UnknownCoding),
        (_, []) => Err(Fault::Malformed("more than one Transfer-Encoding")),
    }
}

/// Digits alone: `+5` and `5, 5` are lengths to some.
fn length_of(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(text).ok()?.parse().ok())?
}

fn asks_for_websocket(headers: &[Header]) -> bool {
    all(headers, "upgrade").iter().any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

fn all<'a>(headers: &[Header<'a>], name: &str) -> Vec<&'a [u8]> {
    headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value).collect()
}

/// The dialect in which to answer a head that may be broken, as far as its first line tells.
pub fn dialect(head: &[u8]) -> Dialect {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let target = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let path = target.split(|byte| b"?\r".contains(byte)).next().unwrap_or_default();
    dialect_of(str::from_utf8(path).unwrap_or_default())
}
