//! YAML text to a tree in which every scalar knows its line and column.
//!
//! serde_yaml tells a place only in its errors. So each scalar is read by a visitor that puts it aside and then fails on
//! purpose: the error comes back with the place, and reading goes on. The tree says nothing about what is allowed, so one
//! look at it finds all faults instead of the first; only text that is no YAML ends the reading.

use super::fault::{Fault, Position};
use serde::de::{DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, Visitor};
use serde_yaml::Deserializer;
use std::cell::Cell;
use std::fmt;

/// The most values one file may hold, counting those that aliases repeat, so that no few lines can grow without bound.
const VALUES_MAX: usize = 100_000;

#[derive(Debug)]
pub(super) enum Node {
    /// Not there, or not reached because the text broke off before it.
    Missing,
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

#[derive(Debug)]
pub(super) struct Scalar {
    pub text: String,
    pub kind: Kind,
    pub at: Position,
}

/// What YAML takes a scalar for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Boolean,
    Null,
}

impl Node {
    /// Where it starts: for a list or a mapping, where the first scalar in it stands.
    pub fn at(&self) -> Option<Position> {
        match self {
            Node::Missing => None,
            Node::Scalar(scalar) => Some(scalar.at),
            Node::List(items) => items.first().and_then(Node::at),
            Node::Map(entries) => entries.first().and_then(|(key, _)| key.at()),
        }
    }
}

/// Reads the one document of `text`. Where the text is no YAML, the tree holds what stands before the fault.
pub(super) fn read(text: &str) -> (Node, Option<Fault>) {
    if let Some(fault) = forbidden_character(text) {
        return (Node::Missing, Some(fault));
    }
    let mut documents = Deserializer::from_str(text);
    let mut root = Node::Missing;
    let Some(document) = documents.next() else {
        return (root, None);
    };
    let mut fault = fill(&mut root, document).err();
    if let (None, Some(second)) = (&fault, documents.next()) {
        let mut extra = Node::Missing;
        fault = fill(&mut extra, second).err().or(Some(Fault {
            at: Some(extra.at().unwrap_or(Position::START)),
            message: "expected one YAML document, found a second one".into(),
        }));
    }
    (root, fault.map(|fault| explain_tab(fault, text)))
}

fn fill(place: &mut Node, document: Deserializer) -> Result<(), Fault> {
    let left = Cell::new(VALUES_MAX);
    let slot = Slot { place, left: &left };
    slot.deserialize(document).map_err(|error| {
        let at = error.location().map_or(Position::START, |at| Position { line: at.line(), column: at.column() });
        let told = format!(" at line {} column {}", at.line, at.column);
        let problem = error.to_string().replacen(&told, "", 1);
        Fault { at: Some(at), message: format!("expected valid YAML: {}", problem.replace(char::is_control, " ")) }
    })
}

/// The parser names no place for a character that YAML forbids, so it is looked for first.
fn forbidden_character(text: &str) -> Option<Fault> {
    let allowed = |(index, c): (usize, char)| match c {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\u{feff}' => index == 0,
        c => !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}'),
    };
    let (index, c) = text.char_indices().find(|&found| !allowed(found))?;
    Some(Fault {
        at: Some(Position::after(&text[..index])),
        message: format!("expected no control characters, found U+{:04X}", u32::from(c)),
    })
}

/// The most common mistake has the least helpful message.
fn explain_tab(fault: Fault, text: &str) -> Fault {
    let line = fault.at.and_then(|at| text.lines().nth(at.line - 1));
    let indent = line.map_or("", |line| &line[..line.len() - line.trim_start().len()]);
    if indent.contains('\t') {
        let message = "expected spaces at the start of the line, found a tab".into();
        return Fault { message, ..fault };
    }
    fault
}

/// Where the next value goes, and how many more there may be.
struct Slot<'a> {
    place: &'a mut Node,
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Slot<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else {
            let message = format!("more than {VALUES_MAX} values");
            return Err(D::Error::custom(message));
        };
        self.left.set(left);
        let visitor = Reader { place: self.place, left: self.left };
        match (deserializer.deserialize_any(visitor), self.place) {
            (Err(error), Node::Scalar(scalar)) => {
                scalar.at = place_named_in(&error.to_string());
                Ok(())
            }
            (result, _) => result,
        }
    }
}

/// The place at the end of an error of serde_yaml: `… at line 3 column 7`, and nothing for the first character.
fn place_named_in(error: &str) -> Position {
    let place = || {
        let (_, place) = error.rsplit_once(" at line ")?;
        let (line, column) = place.split_once(" column ")?;
        Some(Position { line: line.parse().ok()?, column: column.parse().ok()? })
    };
    place().unwrap_or(Position::START)
}

struct Reader<'a> {
    place: &'a mut Node,
    left: &'a Cell<usize>,
}

impl Reader<'_> {
    fn put<E: serde::de::Error>(self, text: impl ToString, kind: Kind) -> Result<(), E> {
        *self.place = Node::Scalar(Scalar { text: text.to_string(), kind, at: Position::START });
        Err(E::custom("asking for the place"))
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.put(value, Kind::Boolean)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.put(value, Kind::Number)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.put(value, Kind::Number)
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<(), E> {
        self.put(value, Kind::Number)
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<(), E> {
        self.put(value, Kind::Number)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.put(format!("{value:?}"), Kind::Number)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.put(value, Kind::Text)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.put("", Kind::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut items = Vec::new();
        let read = read_items(&mut list, &mut items, self.left);
        *self.place = Node::List(items);
        read
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut entries = Vec::new();
        let read = read_entries(&mut map, &mut entries, self.left);
        *self.place = Node::Map(entries);
        read
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom("a tag (!) has no meaning here"))
    }
}

fn read_items<'de, A: SeqAccess<'de>>(list: &mut A, items: &mut Vec<Node>, left: &Cell<usize>) -> Result<(), A::Error> {
    loop {
        let mut item = Node::Missing;
        let place = &mut item;
        let read = list.next_element_seed(Slot { place, left });
        if matches!(read, Ok(None)) {
            return Ok(());
        }
        items.push(item);
        read?;
    }
}

fn read_entries<'de, A: MapAccess<'de>>(
    map: &mut A,
    entries: &mut Vec<(Node, Node)>,
    left: &Cell<usize>,
) -> Result<(), A::Error> {
    loop {
        let (mut key, mut value) = (Node::Missing, Node::Missing);
        let place = &mut key;
        if map.next_key_seed(Slot { place, left })?.is_none() {
            return Ok(());
        }
        let place = &mut value;
        let read = map.next_value_seed(Slot { place, left });
        entries.push((key, value));
        read?;
    }
}
