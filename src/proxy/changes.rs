//! What the operator has changed in answers: the client's name for the model in place of the engine's, and no usage for a client
//! that did not ask for it.

use bytes::Bytes;
use http::{Version, header};
use pingora::Result;
use pingora::http::ResponseHeader;

use super::answer::is_stream;
use super::intake::is_packed;
use crate::request::rewrite::{Renamed, UnaskedUsage};

/// The changes of one answer.
#[derive(Default)]
pub struct Changes {
    /// What the client called the model, where the engine got another name.
    pub client_name: Option<String>,
    /// Whether the engine was asked for a usage that the client did not ask for.
    pub hides_usage: bool,
    usage: Option<UnaskedUsage>,
    name: Option<Renamed>,
}

impl Changes {
    /// Whether the answer may have to be changed.
    pub fn are_due(&self) -> bool {
        self.client_name.is_some() || self.hides_usage
    }

    /// The answer begins. One that will be changed loses its length, which is not known any more.
    ///
    /// # Errors
    /// Never in practice: the value is valid in a header.
    pub fn begin(&mut self, answer: &mut ResponseHeader, version: Version) -> Result<()> {
        let kind = answer.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let (streamed, json) = (is_stream(answer), kind.starts_with(b"application/json"));
        if is_packed(&answer.headers) {
            return Ok(());
        }
        self.usage = (self.hides_usage && streamed).then(UnaskedUsage::default);
        self.name = match &self.client_name {
            Some(name) if streamed => Some(Renamed::stream(name)),
            Some(name) if json => Some(Renamed::whole(name)),
            _ => None,
        };
        let changed = self.usage.is_some() || self.name.is_some();
        if changed && answer.remove_header(&header::CONTENT_LENGTH).is_some() && version == Version::HTTP_11 {
            answer.insert_header(header::TRANSFER_ENCODING, "chunked")?;
        }
        Ok(())
    }

    /// Changes the next piece of the answer; `end` if it is the last.
    pub fn pass(&mut self, piece: &mut Option<Bytes>, end: bool) {
        if let Some(usage) = &mut self.usage {
            let mut out = Vec::new();
            piece.iter().for_each(|piece| usage.feed(piece, &mut out));
            if end {
                usage.finish(&mut out);
            }
            *piece = filled(out);
        }
        if let (Some(name), Some(bytes)) = (&mut self.name, &piece) {
            let mut out = Vec::with_capacity(bytes.len() + 64);
            name.feed(bytes, &mut out);
            *piece = filled(out);
        }
    }
}

/// An empty chunk would end the answer.
fn filled(out: Vec<u8>) -> Option<Bytes> {
    (!out.is_empty()).then(|| out.into())
}
