//! Which settings there are: what the reader asks for, noted while it reads nothing. So no list of settings is kept beside it.
//! Every reader gives `None` then: one that gives up on a section at the first `None` must have asked for all of it before.

use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What may stand at a setting.
#[derive(Debug, PartialEq)]
pub(super) enum Form {
    Section,
    /// That exactly one of these stands in the section.
    OneOf(Vec<&'static str>),
    List(RangeInclusive<usize>),
    /// One value, as a JSON schema.
    Value(Value),
}

/// Settings by their path, as in `models[].name`.
#[derive(Default)]
pub(super) struct Outline {
    forms: RefCell<BTreeMap<String, Vec<Form>>>,
    optional: RefCell<BTreeSet<String>>,
    /// What the reader is told where it asks which of two forms stands there. It reads once for each.
    pub as_value: Cell<bool>,
}

impl Outline {
    pub fn note(&self, path: &str, form: Form) {
        let mut forms = self.forms.borrow_mut();
        let noted = forms.entry(path.to_owned()).or_default();
        if !noted.contains(&form) {
            noted.push(form);
        }
    }

    /// The reader has asked whether it is there: it may be left out.
    pub fn note_optional(&self, path: &str) {
        self.optional.borrow_mut().insert(path.to_owned());
    }

    pub fn into_settings(self) -> (BTreeMap<String, Vec<Form>>, BTreeSet<String>) {
        (self.forms.into_inner(), self.optional.into_inner())
    }
}
