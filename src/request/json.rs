//! Walks JSON without building it.
//!
//! Values are skipped as raw text ([`Reader`]), without recursion, so nesting costs neither stack nor time. Strings are read as
//! bytes, because clients cut text inside a surrogate pair and a lone `\ud800` must not make a whole request unreadable. So a bare
//! control character in a string passes too: the engine says what it thinks of it.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;

use super::json_reader::Reader;

/// How many elements of a list are looked at. Conversations start with the first few; a longer list is hostile or of no interest.
const ELEMENTS_MAX: usize = 256;

/// The raw JSON of each named field of an object. A key that comes twice counts the last time, as in Python's json.
///
/// None where the text is not exactly one JSON object, or a named field is not UTF-8.
pub fn fields<'a, const N: usize>(json: &'a [u8], names: [&str; N]) -> Option<[Option<&'a str>; N]> {
    let mut reader = Reader::new(json);
    reader.enter(b'{')?;
    let mut fields = [None; N];
    let mut more = !reader.leave_if(b'}');
    while more {
        let key = reader.key()?;
        let value = &json[reader.value()?];
        if let Some(index) = place(&json[key], &names) {
            fields[index] = Some(simdutf8::basic::from_utf8(value).ok()?);
        }
        more = reader.goes_on(b'}')?;
    }
    reader.is_at_end().then_some(fields)
}

/// The place of a key, a string in its quotes, among the names.
fn place(key: &[u8], names: &[&str]) -> Option<usize> {
    let is_plain = memchr::memchr(b'\\', key).is_none();
    let key = if is_plain { Cow::Borrowed(&key[1..key.len() - 1]) } else { bytes(key)? };
    names.iter().position(|name| name.as_bytes() == &*key)
}

/// Whether all fields of an object but the one called `name` fulfil `rest`. False also where the text is no object.
pub fn only(json: &str, name: &str, rest: impl Fn(&str) -> bool) -> bool {
    let fields: Result<HashMap<Cow<'_, str>, &RawValue>, _> = serde_json::from_str(json);
    fields.is_ok_and(|fields| fields.iter().all(|(field, value)| field == name || rest(value.get())))
}

/// The first thing that `pick` finds in the elements of a list. None also where the text is no list.
pub fn find_element<'a, T>(json: &'a str, mut pick: impl FnMut(&'a str) -> Option<T>) -> Option<T> {
    let mut reader = Reader::new(json.as_bytes());
    reader.enter(b'[')?;
    if reader.leave_if(b']') {
        return None;
    }
    for _ in 0..ELEMENTS_MAX {
        let found = pick(json.get(reader.value()?)?);
        if found.is_some() || !reader.goes_on(b']')? {
            return found;
        }
    }
    None
}

/// A string's text; None where the value is not a string. A lone surrogate becomes U+FFFD.
pub fn text(json: &str) -> Option<Cow<'_, str>> {
    Some(match bytes(json.as_bytes())? {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

/// What a string says.
fn bytes(json: &[u8]) -> Option<Cow<'_, [u8]>> {
    json.starts_with(b"\"").then_some(())?;
    serde_json::Deserializer::from_slice(json).deserialize_bytes(Said).ok()
}

/// A text as a JSON string, in its quotes.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The first `chars_max` characters of a string, at a cost that does not grow with its length.
pub fn text_head(json: &str, chars_max: usize) -> Option<Cow<'_, str>> {
    let head = match head_end(json, chars_max) {
        Some(cut) => Cow::Owned(text(&format!("{}\"", &json[..cut]))?.into_owned()),
        None => text(json)?,
    };
    Some(match head.char_indices().nth(chars_max) {
        Some((end, _)) => Cow::Owned(head[..end].to_owned()),
        None => head,
    })
}

/// Where a string can be cut so that at least `chars_max` characters stand before; None where it has about that many or fewer.
fn head_end(json: &str, chars_max: usize) -> Option<usize> {
    let mut chars = json.char_indices().skip(1);
    // A character is at most two escapes (a surrogate pair), so twice as many units always hold enough.
    for _ in 0..2 * chars_max {
        match chars.next()?.1 {
            '"' => return None,
            '\\' => {
                let escaped = chars.next()?.1;
                if escaped == 'u' {
                    chars.nth(3)?;
                }
            }
            _ => {}
        }
    }
    chars.next().map(|(at, _)| at)
}

struct Said;

impl<'a> Visitor<'a> for Said {
    type Value = Cow<'a, [u8]>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'a [u8]) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(bytes))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Cow::Owned(bytes.to_owned()))
    }
}
