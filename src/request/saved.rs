//! A request that was saved to a file as it stands in HTTP/1: its first line, its headers, an empty line, its body.
//!
//! Saved by a person, it need not be as a connection would carry it: lines may end in a line feed alone, the Host and the
//! length may be missing, and an editor may have put a line break behind the body.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Uri, Version};
use httparse::{EMPTY_HEADER, Request, Status, parse_chunk_size};

use super::head::HEADERS_MAX;

/// A saved request.
#[derive(Debug)]
pub struct Saved<'a> {
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    /// Without the framing of chunks.
    pub body: Cow<'a, [u8]>,
}

/// Reads one.
///
/// # Errors
/// What is wrong with it, for the person who saved it.
pub fn read(text: &[u8]) -> Result<Saved<'_>, String> {
    let mut slots = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut slots);
    let length = match request.parse(text) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Err("no empty line ends its headers".into()),
        Err(httparse::Error::Version) => return Err("its first line must end in HTTP/1.1 (or HTTP/1.0)".into()),
        Err(error) => return Err(format!("it is no HTTP/1 request: {error}")),
    };
    let target = request.path.unwrap_or_default();
    let mut headers = HeaderMap::new();
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(header.value)) {
            headers.append(name, value);
        }
    }
    Ok(Saved {
        method: request.method.and_then(|method| method.parse().ok()).ok_or("its method is none")?,
        uri: target.parse().map_err(|_| "its first line names no path".to_owned())?,
        version: if request.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 },
        body: body(&headers, &text[length..])?,
        headers,
    })
}

fn body<'a>(headers: &HeaderMap, rest: &'a [u8]) -> Result<Cow<'a, [u8]>, String> {
    if headers.get(TRANSFER_ENCODING).is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return dechunked(rest).map(Cow::Owned).ok_or("the chunks of its body are broken, or end early".into());
    }
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    Ok(Cow::Borrowed(&rest[..announced.unwrap_or(rest.len()).min(rest.len())]))
}

fn dechunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let Ok(Status::Complete((head, size))) = parse_chunk_size(rest) else { return None };
        let size = usize::try_from(size).ok()?;
        if size == 0 {
            return Some(body);
        }
        rest = &rest[head..];
        body.extend_from_slice(rest.get(..size)?);
        rest = rest[size..].strip_prefix(b"\r\n")?;
    }
}
