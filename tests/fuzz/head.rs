//! The head of a request: found whole in any split, and what passes says one thing to whoever reads it.

use homing::request::head::{Fault, Framing, HEADERS_MAX, Scanner, check, dialect};
use proptest::prelude::*;

use super::harness::{Fuzzer, Outcome, files};

#[test]
fn a_head_that_passes_is_read_by_anyone_as_it_is_here() {
    Fuzzer { name: "head", seeds: seeds(), words: WORDS }.run(|input| {
        let whole = Scanner::default().end(&input.bytes);
        prop_assert_eq!(in_pieces(&input.pieces()), whole);
        let _ = dialect(&input.bytes);
        let end = memchr::memmem::find(&input.bytes, b"\r\n\r\n").map(|at| at + 4);
        let Ok(Some(length)) = whole else { return Ok(()) };
        // A head may also be nothing but the empty line that ends it.
        prop_assert_eq!(Some(length), if input.bytes.starts_with(b"\r\n") { Some(2) } else { end });
        let head = &input.bytes[..length];
        check(head, HEADERS_MAX).map_or(Ok(()), |framing| read_plainly(head, framing))
    });
}

const WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    " ",
    "\t",
    ":",
    ",",
    "\0",
    "é",
    "\r\n ",
    "host: b\r\n",
    "Host : a\r\n",
    "content-length: 5\r\n",
    "Content-Length: +5\r\n",
    "content-length: 5, 5\r\n",
    "transfer-encoding: chunked\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "transfer-encoding : chunked\r\n",
    "transfer-encoding:\x0bchunked\r\n",
    "upgrade: websocket\r\n",
    "http://a/",
    "//",
    "#",
    "\\",
    "%2e%2e/",
    "HTTP/1.0",
    "HTTP/1.1",
    "HTTP/2.0",
    "CONNECT a:1 ",
    "GET * ",
    "x: 1\r\n",
    "@",
];

fn seeds() -> Vec<Vec<u8>> {
    let mut heads = Vec::new();
    for (_, message) in files("samples/requests") {
        let end = memchr::memmem::find(&message, b"\r\n\r\n").map_or(message.len(), |end| end + 4);
        heads.push(message[..(end + 40).min(message.len())].to_vec());
    }
    heads.push(
        b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec(),
    );
    heads.push(b"GET /v1/realtime HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n".to_vec());
    heads
}

/// What is found while the head arrives.
fn in_pieces(pieces: &[&[u8]]) -> Result<Option<usize>, Fault> {
    let (mut scanner, mut come) = (Scanner::default(), Vec::new());
    for piece in pieces {
        come.extend_from_slice(piece);
        match scanner.end(&come) {
            Ok(None) => {}
            found => return found,
        }
    }
    Ok(None)
}

/// Reads a head in the simplest way there is, line by line.
fn read_plainly(head: &[u8], framing: Framing) -> Outcome {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']), "{text:?}");
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[_, target, version] = words.as_slice() else {
        return Err(TestCaseError::fail(format!("not three words: {words:?}")));
    };
    prop_assert!(target.starts_with('/') || target.starts_with("http") || target == "*", "{target:?}");
    prop_assert!(version == "http/1.0" || version == "http/1.1", "{version:?}");
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| TestCaseError::fail(format!("no colon: {line:?}")))?;
        prop_assert!(!name.is_empty() && !name.contains([' ', '\t']), "{line:?}");
        headers.push((name, value.trim_matches([' ', '\t'])));
    }
    let all = |name: &str| headers.iter().filter(|header| header.0 == name).map(|header| header.1).collect::<Vec<_>>();
    prop_assert!(all("host").len() == 1 || (version == "http/1.0" && all("host").is_empty()), "{text:?}");
    match (all("content-length").as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => prop_assert!(matches!(framing, Framing::Length(0) | Framing::WebSocket)),
        ([length], []) => prop_assert_eq!(length.parse().map(Framing::Length), Ok(framing)),
        ([], ["chunked"]) => prop_assert_eq!(framing, Framing::Chunked),
        other => return Err(TestCaseError::fail(format!("two framings: {other:?}"))),
    }
    Ok(())
}
