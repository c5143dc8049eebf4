//! Reading one setting: what stands there, or a fault with its place.

use super::bounds::{Bounds, Quantity};
use super::fault::{Fault, Position};
use super::yaml::{Kind, Node, Scalar};
use serde::de::{DeserializeOwned, IntoDeserializer, value};
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
        }
    }

    pub fn hidden(self) -> Place<'f> {
        Place { hidden: true, ..self }
    }

    pub fn is_given(&self) -> bool {
        !matches!(self.node, Node::Missing)
    }

    /// Whether one value stands here, and neither a list nor a mapping.
    pub fn is_value(&self) -> bool {
        matches!(self.node, Node::Scalar(scalar) if scalar.kind != Kind::Null)
    }

    pub fn is_mapping(&self) -> bool {
        matches!(self.node, Node::Map(_))
    }

    /// Notes that something else was expected here.
    pub fn expected<T>(&self, what: impl Display) -> Option<T> {
        if self.lenient && !self.is_given() {
            return None;
        }
        self.expected_but(what, self.found())
    }

    /// Notes that something else was expected here, where more can be said of what was found.
    pub fn expected_but<T>(&self, what: impl Display, found: impl Display) -> Option<T> {
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
        let scalar = self.scalar(&what)?;
        read(&scalar.text).or_else(|| self.expected(&what))
    }

    pub fn within<T: Quantity>(&self, bounds: &Bounds<T>) -> Option<T> {
        let (what, example) = (T::WHAT, bounds.default.show());
        let what = format!("{what} from {bounds}, such as {example}");
        self.value(what, |text| bounds.read(text))
    }

    pub fn switch(&self) -> Option<bool> {
        self.value("on or off", |text| match text.to_ascii_lowercase().as_str() {
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
    pub fn list<T>(&self, lengths: RangeInclusive<usize>, read: impl FnMut(Place<'f>) -> Option<T>) -> Option<Vec<T>> {
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
        let is_section = match self.node {
            Node::Map(_) | Node::Missing => true,
            Node::Scalar(scalar) => scalar.kind == Kind::Null,
            Node::List(_) => false,
        };
        if !is_section {
            self.expected::<()>("a mapping");
        }
        let mut section = Section { place: self, lenient: self.lenient || !is_section, known: Vec::new() };
        let value = read(&mut section);
        section.refuse_unknown();
        value
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

/// A setting, and what reads it.
pub(super) type Alternative<'r, 'f, T> = (&'static str, &'r dyn Fn(&Place<'f>) -> Option<T>);

/// The settings of one mapping.
pub(super) struct Section<'p, 'f> {
    place: &'p Place<'f>,
    lenient: bool,
    known: Vec<&'static str>,
}

impl<'f> Section<'_, 'f> {
    /// The setting called `name`, whether it is there or not.
    pub fn place(&mut self, name: &'static str) -> Place<'f> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let found = self.entries().iter().find(|(key, _)| named(key) == name);
        let (node, at) = match found {
            Some((key, value)) => (value, value.at().or(key.at())),
            None => (&Node::Missing, None),
        };
        Place {
            node,
            path: self.path_of(name),
            at: at.unwrap_or(self.place.at),
            lenient: self.lenient,
            ..self.place.clone()
        }
    }

    /// The setting called `name`, if it is there.
    pub fn given(&mut self, name: &'static str) -> Option<Place<'f>> {
        Some(self.place(name)).filter(Place::is_given)
    }

    /// What `read` makes of the setting called `name`, or `default` where it is not there.
    pub fn get<T>(&mut self, name: &'static str, default: T, read: impl FnOnce(&Place<'f>) -> Option<T>) -> T {
        match self.given(name) {
            Some(place) => read(&place).unwrap_or(default),
            None => default,
        }
    }

    /// A quantity that has a default.
    pub fn within<T: Quantity>(&mut self, name: &'static str, bounds: &Bounds<T>) -> T {
        self.get(name, bounds.default, |place| place.within(bounds))
    }

    /// What is read at the one setting of these that is given; `form` says which there are.
    pub fn one_of<T>(&mut self, form: &str, alternatives: &[Alternative<'_, 'f, T>]) -> Option<T> {
        let mut given = Vec::new();
        for (name, read) in alternatives {
            given.extend(self.given(name).map(|place| (place, read)));
        }
        match given.as_slice() {
            [] => self.place(alternatives.first()?.0).expected(form),
            [(place, read)] => read(place),
            [.., (place, _)] => place.expected(form),
        }
    }

    fn entries(&self) -> &'f [(Node, Node)] {
        match self.place.node {
            Node::Map(entries) => entries,
            _ => &[],
        }
    }

    fn path_of(&self, name: &str) -> String {
        match self.place.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    fn refuse_unknown(&self) {
        for (index, (key, _)) in self.entries().iter().enumerate() {
            let name = named(key);
            let place = Place { at: key.at().unwrap_or(self.place.at), ..self.place.clone() };
            if !self.known.contains(&name) {
                let what = format!("one of {}", self.known.join(", "));
                let found = match place.hidden {
                    true => "something else".into(),
                    false => quoted(name),
                };
                place.expected_but::<()>(what, found);
            } else if self.entries()[..index].iter().any(|(key, _)| named(key) == name) {
                place.expected_but::<()>(format!("{name} once"), "it again");
            }
        }
    }
}

fn named(key: &Node) -> &str {
    match key {
        Node::Scalar(scalar) => &scalar.text,
        _ => "",
    }
}
