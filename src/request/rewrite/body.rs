use std::ops::Range;

use crate::request::{Peek, json, multipart};

/// A change of a request's body: `text` stands where `range` was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    range: Range<usize>,
    text: String,
}

impl Edit {
    /// Another name in the top-level `model` of a JSON body. None where the body names no model.
    pub fn model(body: &[u8], peek: &Peek<'_>, name: &str) -> Option<Edit> {
        Some(Edit {
            range: place(body, peek.model_json.filter(|json| json.starts_with('"'))?)?,
            text: json::quoted(name),
        })
    }

    /// Another name in the `model` field of a form. None where the form names no model.
    pub fn form_model(content_type: &str, body: &[u8], name: &str) -> Option<Edit> {
        Some(Edit { range: place(body, multipart::model(content_type, body)?)?, text: name.to_owned() })
    }

    /// `stream_options.include_usage` in the body of a streamed chat or completions request. None where the client asks for
    /// usage itself, in its last chunk or in every one, or does not stream.
    pub fn include_usage(body: &[u8], peek: &Peek<'_>) -> Option<Edit> {
        if !peek.stream {
            return None;
        }
        let Some(options) = peek.stream_options else {
            let start = body.iter().position(|byte| *byte == b'{')? + 1;
            return Some(Edit { range: start..start, text: r#""stream_options":{"include_usage":true},"#.into() });
        };
        let range = place(body, options)?;
        if options == "null" {
            return Some(Edit { range, text: r#"{"include_usage":true}"#.into() });
        }
        let [include, continuous] = json::fields(options.as_bytes(), ["include_usage", "continuous_usage_stats"])?;
        match include {
            _ if continuous.is_some_and(|continuous| !matches!(continuous, "false" | "null")) => None,
            Some("false" | "null") => Some(Edit { range: place(body, include?)?, text: "true".into() }),
            Some(_) => None,
            None => {
                let comma = if options[1..].trim_start().starts_with('}') { "" } else { "," };
                let start = range.start + 1;
                Some(Edit { range: start..start, text: format!(r#""include_usage":true{comma}"#) })
            }
        }
    }
}

/// The body with its edits, none of which may overlap another.
pub fn apply(body: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
    edits.sort_unstable_by_key(|edit| edit.range.start);
    let added: usize = edits.iter().map(|edit| edit.text.len()).sum();
    let mut edited = Vec::with_capacity(body.len() + added);
    let mut from = 0;
    for edit in edits {
        edited.extend_from_slice(&body[from..edit.range.start]);
        edited.extend_from_slice(edit.text.as_bytes());
        from = edit.range.end;
    }
    edited.extend_from_slice(&body[from..]);
    edited
}

/// Where a part of `body` stands in it.
fn place(body: &[u8], part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let range = start..start + part.len();
    (body.get(range.clone())? == part.as_bytes()).then_some(range)
}
