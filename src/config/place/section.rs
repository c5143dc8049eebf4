use super::{Place, quoted};
use crate::config::bounds::{Bounds, Quantity};
use crate::config::outline::Form;
use crate::config::yaml::Node;

/// A setting, and what reads it.
type Alternative<'r, 'f, T> = (&'static str, &'r dyn Fn(&Place<'f>) -> Option<T>);

/// The settings of one mapping.
pub(in crate::config) struct Section<'p, 'f> {
    place: &'p Place<'f>,
    lenient: bool,
    known: Vec<&'static str>,
}

impl<'f> Place<'f> {
    /// The setting called `name` of a mapping, whatever else stands there.
    pub fn alone(&self, name: &'static str) -> Place<'f> {
        Section { place: self, lenient: self.lenient, known: Vec::new() }.place(name)
    }
}

impl<'p, 'f> Section<'p, 'f> {
    /// What `read` makes of the settings at `place`. Those that it does not ask for are unknown, and a fault.
    pub(super) fn read<T>(place: &'p Place<'f>, lenient: bool, read: impl FnOnce(&mut Section<'_, 'f>) -> T) -> T {
        let mut section = Section { place, lenient, known: Vec::new() };
        let value = read(&mut section);
        section.refuse_unknown();
        value
    }

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
        let names = || alternatives.iter().map(|(name, _)| *name).collect();
        if self.place.notes(|| Form::OneOf(names())) {
            given.iter().for_each(|(place, read)| drop(read(place)));
            return None;
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
