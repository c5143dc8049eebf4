//! The `model` field of a `multipart/form-data` body, which the audio routes use.

use memchr::memmem;

/// Limits of what is read: more parts, more headers in one, or a longer model name make the body one that names no model.
const PARTS_MAX: usize = 128;
const PART_HEADERS_MAX: usize = 16;
/// In characters, as configured names have at most.
const MODEL_MAX: usize = 256;
/// RFC 2046, section 5.1.1.
const BOUNDARY_BYTES_MAX: usize = 70;

/// The model that a body names. A field that comes twice counts the last time, as in vLLM's form parser; a file is no model.
///
/// None where the content type is not `multipart/form-data`, or the body is not well formed, or no part names a model.
pub fn model<'a>(content_type: &str, body: &'a [u8]) -> Option<&'a str> {
    let delimiter = format!("\r\n--{}", boundary(content_type)?);
    let finder = memmem::Finder::new(&delimiter);
    // The first delimiter may stand at the very start, where no line break comes before it.
    let mut rest = match body.strip_prefix(&delimiter.as_bytes()[2..]) {
        Some(rest) => rest,
        None => &body[finder.find(body)? + delimiter.len()..],
    };
    let mut model = None;
    for _ in 0..PARTS_MAX {
        if rest.starts_with(b"--") {
            return model;
        }
        let part = rest.strip_prefix(b"\r\n")?;
        let end = finder.find(part)?;
        model = model_in(&part[..end])?.or(model);
        rest = &part[end + delimiter.len()..];
    }
    None
}

/// The model in one part: `Some(None)` where the part is another field, None where it is malformed.
fn model_in(part: &[u8]) -> Option<Option<&str>> {
    let mut headers = [httparse::EMPTY_HEADER; PART_HEADERS_MAX];
    let httparse::Status::Complete((length, headers)) = httparse::parse_headers(part, &mut headers).ok()? else {
        return None;
    };
    let is_model = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("content-disposition"))
        .filter_map(|header| std::str::from_utf8(header.value).ok())
        .any(|value| parameter(value, "name") == Some("model") && parameter(value, "filename").is_none());
    if !is_model {
        return Some(None);
    }
    let value = std::str::from_utf8(&part[length..]).ok()?;
    (value.chars().take(MODEL_MAX + 1).count() <= MODEL_MAX).then_some(Some(value))
}

fn boundary(content_type: &str) -> Option<&str> {
    let (kind, _) = content_type.split_once(';')?;
    let boundary = parameter(content_type, "boundary")?;
    let fits = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len());
    (fits && kind.trim().eq_ignore_ascii_case("multipart/form-data")).then_some(boundary)
}

/// A parameter of a header value: `kind; name=value; name="value"`. Escapes in a quoted value are left as they are.
fn parameter<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (key, value) = rest.split_once('=')?;
        let value = value.trim_start();
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_at(closing_quote(quoted)?),
            None => value.split_at(value.find(';').unwrap_or(value.len())),
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value.trim_end());
        }
        rest = after.split_once(';')?.1;
    }
}

fn closing_quote(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}
