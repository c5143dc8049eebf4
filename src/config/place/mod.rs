//! Reading one setting: what stands there, or a fault with its place.

mod section;

pub(super) use section::Section;

use super::bounds::{Bounds, Quantity};
use super::fault::{Fault, Position};
use super::outline::{Form, Outline};
use super::yaml::{Kind, Node, Scalar};
use serde::de::{DeserializeOwned, IntoDeserializer, value};
use serde_json::json;
use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// How much of a wrong value a fault repeats, in characters.
const SHOWN_MAX: usize = 60;

/// One setting of the file. A reader gives `None` where it has noted a fault; what is used in its place does not matter,
/// since a file with a fault is never used.
#[derive(Clone)]
pub(super) struct Place<'f> {
    faults: &'f RefCell<Vec<Fault>>,
    node: &'f Node,
    /// As in `models[0].name`; empty for the whole file.
    path: String,
    at: Position,
    /// That nothing stands here is no fault: what encloses it is at fault already, or the text broke off before it.
    lenient: bool,
    /// What stands here is never repeated: it may be a secret.
    hidden: bool,
    /// Where what is asked for is noted, while nothing is read and nothing is a fault.
    outline: Option<&'f Outline>,
}

impl<'f> Place<'f> {
    /// The whole file; `broken` if only its beginning could be read.
    pub fn root(node: &'f Node, broken: bool, faults: &'f RefCell<Vec<Fault>>) -> Place<'f> {
        Place {
            faults,
            node,
            path: String::new(),
            at: node.at().unwrap_or(Position::START),
            lenient: broken,
            hidden: false,
            outline: None,
        }
    }

    /// No file: whatever is asked for is noted in `outline`.
    pub fn outlined(outline: &'f Outline, faults: &'f RefCell<Vec<Fault>>) -> Place<'f> {
        Place { outline: Some(outline), ..Place::root(&Node::Missing, false, faults) }
    }

    /// Notes a form that may stand here. False: there is a file to be read.
    fn notes(&self, form: impl FnOnce() -> Form) -> bool {
        self.outline.inspect(|outline| outline.note(&self.path, form())).is_some()
    }

    pub fn hidden(self) -> Place<'f> {
        Place { hidden: true, ..self }
    }

    pub fn is_given(&self) -> bool {
        self.outline.inspect(|outline| outline.note_optional(&self.path)).is_some() || self.has_node()
    }

    fn has_node(&self) -> bool {
        !matches!(self.node, Node::Missing)
    }

    /// Whether one value stands here, and neither a list nor a mapping.
    pub fn is_value(&self) -> bool {
        match self.outline {
            Some(outline) => outline.as_value.get(),
            None => matches!(self.node, Node::Scalar(scalar) if scalar.kind != Kind::Null),
        }
    }

    pub fn is_mapping(&self) -> bool {
        match self.outline {
            Some(outline) => !outline.as_value.get(),
            None => matches!(self.node, Node::Map(_)),
        }
    }

    /// Notes that something else was expected here.
    pub fn expected<T>(&self, what: impl Display) -> Option<T> {
        if self.lenient && !self.has_node() {
            return None;
        }
        self.expected_but(what, self.found())
    }

    /// Notes that something else was expected here, where more can be said of what was found.
    pub fn expected_but<T>(&self, what: impl Display, found: impl Display) -> Option<T> {
        if self.outline.is_some() {
            return None;
        }
        let subject = match self.path.as_str() {
            "" => String::new(),
            path => format!("{path}: "),
        };
        self.faults
            .borrow_mut()
            .push(Fault { at: Some(self.at), message: format!("{subject}expected {what}, found {found}") });
        None
    }

    fn found(&self) -> String {
        match self.node {
            Node::Missing => "nothing".into(),
            Node::List(_) => "a list".into(),
            Node::Map(_) => "a mapping".into(),
            Node::Scalar(scalar) => match scalar.kind {
                Kind::Null => "nothing".into(),
                _ if self.hidden => "something else".into(),
                Kind::Text => quoted(&scalar.text),
                Kind::Number | Kind::Boolean => scalar.text.clone(),
            },
        }
    }

    fn scalar(&self, what: impl Display) -> Option<&'f Scalar> {
        match self.node {
            Node::Scalar(scalar) if scalar.kind != Kind::Null => Some(scalar),
            _ => self.expected(what),
        }
    }

    /// Text of 1 to `max` characters, none of them a control character.
    pub fn text(&self, max: usize) -> Option<&'f str> {
        if self.notes(|| Form::Value(json!({ "type": "string", "minLength": 1, "maxLength": max }))) {
            return None;
        }
        let what = format!("text of 1 to {max} characters");
        let scalar = self.scalar(&what)?;
        if scalar.kind != Kind::Text {
            // What YAML makes of 1.10 is not what was written.
            return self.expected(format!("{what} in quotes"));
        }
        let fits = (1..=max).contains(&scalar.text.chars().count());
        if fits && !scalar.text.contains(char::is_control) { Some(&scalar.text) } else { self.expected(what) }
    }

    /// What `read` makes of the scalar here.
    pub fn value<T>(&self, what: impl Display, read: impl FnOnce(&'f str) -> Option<T>) -> Option<T> {
        if self.notes(|| Form::Value(json!({ "type": "string" }))) {
            return None;
        }
        self.read(what, read)
    }

    fn read<T>(&self, what: impl Display, read: impl FnOnce(&'f str) -> Option<T>) -> Option<T> {
        let scalar = self.scalar(&what)?;
        read(&scalar.text).or_else(|| self.expected(&what))
    }

    pub fn within<T: Quantity>(&self, bounds: &Bounds<T>) -> Option<T> {
        if self.notes(|| Form::Value(T::schema(bounds))) {
            return None;
        }
        let (what, example) = (T::WHAT, bounds.default.show());
        let what = format!("{what} from {bounds}, such as {example}");
        self.read(what, |text| bounds.read(text))
    }

    /// A quantity, or none where `word` stands in its place.
    pub fn within_or<T: Quantity>(&self, word: &str, bounds: &Bounds<T>) -> Option<Option<T>> {
        if self.notes(|| Form::Value(json!({ "anyOf": [{ "const": word }, T::schema(bounds)] }))) {
            return None;
        }
        self.read(format!("{word} or {} from {bounds}", T::WHAT), |text| match text {
            text if text == word => Some(None),
            text => bounds.read(text).map(Some),
        })
    }

    pub fn switch(&self) -> Option<bool> {
        if self.notes(|| Form::Value(json!({ "enum": [true, false, "on", "off", "yes", "no"] }))) {
            return None;
        }
        self.read("on or off", |text| match text.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" => Some(true),
            "off" | "false" | "no" => Some(false),
            _ => None,
        })
    }

    /// One of the names of an enum.
    pub fn choice<T: DeserializeOwned>(&self) -> Option<T> {
        let text = match self.node {
            Node::Scalar(scalar) => scalar.text.as_str(),
            _ => "",
        };
        let chosen: Result<T, value::Error> = T::deserialize(text.into_deserializer());
        match chosen {
            Ok(value) => Some(value),
            // serde's words are: unknown variant `x`, expected one of `a`, `b`
            Err(error) => {
                let words = error.to_string();
                let names = words.rsplit_once(", expected ").map_or("", |(_, names)| names);
                let each = || names.split('`').skip(1).step_by(2).collect::<Vec<_>>();
                self.notes(|| Form::Value(json!({ "enum": each() })));
                self.expected(names)
            }
        }
    }

    /// How many items the list here has; 0 if it is none.
    pub fn len(&self) -> usize {
        match self.node {
            Node::List(items) => items.len(),
            _ => 0,
        }
    }

    /// Every item of the list here that can be read.
    pub fn list<T>(
        &self,
        lengths: RangeInclusive<usize>,
        mut read: impl FnMut(Place<'f>) -> Option<T>,
    ) -> Option<Vec<T>> {
        if self.notes(|| Form::List(lengths.clone())) {
            read(Place { path: format!("{}[]", self.path), ..self.clone() });
            return None;
        }
        let what = format!("a list of {} to {} items", lengths.start(), lengths.end());
        let Node::List(items) = self.node else {
            return self.expected(what);
        };
        let cut_short = self.lenient && items.is_empty();
        if !lengths.contains(&items.len()) && !cut_short {
            return self.expected_but(what, items.len());
        }
        let places = items.iter().enumerate().map(|(index, node)| Place {
            node,
            path: format!("{}[{index}]", self.path),
            at: node.at().unwrap_or(self.at),
            ..self.clone()
        });
        Some(places.filter_map(read).collect())
    }

    /// The mapping here; nothing at all is an empty one. What `read` does not ask for is unknown, and a fault.
    pub fn section<T>(&self, read: impl FnOnce(&mut Section<'_, 'f>) -> T) -> T {
        self.notes(|| Form::Section);
        let is_section = match self.node {
            Node::Map(_) | Node::Missing => true,
            Node::Scalar(scalar) => scalar.kind == Kind::Null,
            Node::List(_) => false,
        };
        if !is_section {
            self.expected::<()>("a mapping");
        }
        Section::read(self, self.lenient || !is_section, read)
    }
}

/// A value as it is repeated in a fault: in quotes, on one line, and short.
fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
