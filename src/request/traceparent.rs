//! `traceparent`: which trace a request belongs to (W3C Trace Context, level 1).

use http::HeaderMap;

/// A header's value in the form that every version begins with. It identifies the trace, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent<'a> {
    /// `00-<trace id>-<span id>-<flags>`, as the client wrote it.
    pub text: &'a str,
    pub trace_id: [u8; 16],
    /// The span that the request was sent in.
    pub span_id: [u8; 8],
    /// Whether whoever sent it keeps the trace.
    pub sampled: bool,
}

/// The length of a value of version 00; what a later version has beyond it is not known here.
const LENGTH: usize = 55;

impl<'a> TraceParent<'a> {
    /// The one that the headers name. None: there is none, or it is no value that the standard allows.
    pub fn of(headers: &'a HeaderMap) -> Option<TraceParent<'a>> {
        let mut values = headers.get_all("traceparent").iter();
        let (value, None) = (values.next()?.to_str().ok()?, values.next()) else { return None };
        let text = value.get(..LENGTH)?;
        let (later, rest) = (&text[..2] != "00", &value[LENGTH..]);
        if &text[..2] == "ff" || !(rest.is_empty() || later && rest.starts_with('-')) {
            return None;
        }
        let [version, trace, span, flags] = text.split('-').collect::<Vec<_>>().try_into().ok()?;
        let (mut trace_id, mut span_id, mut bits) = ([0; 16], [0; 8], [0; 1]);
        for (digits, bytes) in
            [(version, &mut [0; 1][..]), (trace, &mut trace_id[..]), (span, &mut span_id[..]), (flags, &mut bits[..])]
        {
            let small = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
            hex::decode_to_slice(digits, bytes).ok().filter(|()| small)?;
        }
        let named = trace_id != [0; 16] && span_id != [0; 8];
        named.then_some(TraceParent { text, trace_id, span_id, sampled: bits[0] & 1 == 1 })
    }
}
