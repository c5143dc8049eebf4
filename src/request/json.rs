//! Walks JSON without building it.
//!
//! Values are skipped as raw text, without recursion, so nesting costs neither stack nor time. Strings are read as bytes, because
//! clients cut text inside a surrogate pair and a lone `\ud800` must not make a whole request unreadable. So a bare control character
//! in a string passes too: the engine says what it thinks of it.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// How many elements of a list are looked at. Conversations start with the first few; a longer list is hostile or of no interest.
const ELEMENTS_MAX: usize = 256;

/// The raw JSON of each named field of an object. A key that comes twice counts the last time, as in Python's json.
///
/// None where the text is not exactly one JSON object, or a named field is not UTF-8.
pub fn fields<'a, const N: usize>(json: &'a [u8], names: [&str; N]) -> Option<[Option<&'a str>; N]> {
    // serde_json would say what it found instead, and copy all of it into its message.
    json.trim_ascii_start().starts_with(b"{").then_some(())?;
    let mut reader = serde_json::Deserializer::from_slice(json);
    let fields = reader.deserialize_map(Fields { names }).ok()?;
    reader.end().ok()?;
    Some(fields)
}

/// Whether all fields of an object but the one called `name` fulfil `rest`. False also where the text is no object.
pub fn only(json: &str, name: &str, rest: impl Fn(&str) -> bool) -> bool {
    let fields: Result<HashMap<Cow<'_, str>, &RawValue>, _> = serde_json::from_str(json);
    fields.is_ok_and(|fields| fields.iter().all(|(field, value)| field == name || rest(value.get())))
}

/// The first thing that `pick` finds in the elements of a list. None also where the text is no list.
pub fn find_element<'a, T>(json: &'a str, pick: impl FnMut(&'a str) -> Option<T>) -> Option<T> {
    json.starts_with('[').then_some(())?;
    let mut found = None;
    // Stopping early leaves the rest of the list unread, which serde_json reports as an error: what was found is what counts.
    let _ = serde_json::Deserializer::from_str(json).deserialize_seq(Elements { pick, found: &mut found });
    found
}

/// A string's text; None where the value is not a string. A lone surrogate becomes U+FFFD.
pub fn text(json: &str) -> Option<Cow<'_, str>> {
    json.starts_with('"').then_some(())?;
    serde_json::Deserializer::from_str(json).deserialize_bytes(Text).ok()
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

struct Fields<'n, const N: usize> {
    names: [&'n str; N],
}

impl<'a, const N: usize> Visitor<'a> for Fields<'_, N> {
    type Value = [Option<&'a str>; N];

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut values = [None; N];
        while let Some(name) = map.next_key_seed(Name(&self.names))? {
            match name {
                Some(index) => values[index] = Some(map.next_value::<&RawValue>()?.get()),
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(values)
    }
}

/// Reads a key as its place among the names.
struct Name<'n>(&'n [&'n str]);

impl<'a> DeserializeSeed<'a> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| name.as_bytes() == key))
    }
}

struct Elements<'f, F, T> {
    pick: F,
    found: &'f mut Option<T>,
}

impl<'a, T, F: FnMut(&'a str) -> Option<T>> Visitor<'a> for Elements<'_, F, T> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'a>>(mut self, mut list: S) -> Result<(), S::Error> {
        for _ in 0..ELEMENTS_MAX {
            let Some(element) = list.next_element::<&RawValue>()? else {
                break;
            };
            *self.found = (self.pick)(element.get());
            if self.found.is_some() {
                break;
            }
        }
        Ok(())
    }
}

struct Text;

impl<'a> Visitor<'a> for Text {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'a [u8]) -> Result<Self::Value, E> {
        Ok(String::from_utf8_lossy(bytes))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Cow::Owned(String::from_utf8_lossy(bytes).into_owned()))
    }
}
