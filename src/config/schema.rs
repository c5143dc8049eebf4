//! The configuration as a JSON schema, for editors: the form of each setting is what the reader asks for, its description is
//! its row in `docs/configuring.md`.

use super::check;
use super::outline::{Form, Outline};
use super::place::Place;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const DOCUMENT: &str = include_str!("../../docs/configuring.md");

/// A schema of draft 7, which editors know best. What must hold between settings it cannot say, nor the range of what has a
/// unit; and of several ways to write a value it has the usual ones.
pub fn schema() -> Value {
    let outline = Outline::default();
    let faults = RefCell::new(Vec::new());
    for as_value in [false, true] {
        outline.as_value.set(as_value);
        check::config(&Place::outlined(&outline, &faults), Path::new(""));
    }
    let (forms, optional) = outline.into_settings();
    let mut schema = Schema { forms, optional, rows: rows() }.of("");
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("Configuration of Homing");
    schema
}

struct Schema {
    forms: BTreeMap<String, Vec<Form>>,
    optional: BTreeSet<String>,
    rows: BTreeMap<&'static str, String>,
}

impl Schema {
    fn of(&self, path: &str) -> Value {
        let mut variants: Vec<Value> = self.forms[path].iter().filter_map(|form| self.variant(path, form)).collect();
        match variants.len() {
            1 => variants.remove(0),
            _ => json!({ "anyOf": variants }),
        }
    }

    fn variant(&self, path: &str, form: &Form) -> Option<Value> {
        match form {
            Form::Section => Some(self.section(path)),
            Form::OneOf(_) => None,
            Form::List(lengths) => Some(json!({
                "type": "array",
                "items": self.of(&format!("{path}[]")),
                "minItems": lengths.start(),
                "maxItems": lengths.end(),
            })),
            Form::Value(schema) => Some(schema.clone()),
        }
    }

    fn section(&self, path: &str) -> Value {
        let start = if path.is_empty() { String::new() } else { format!("{path}.") };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for child in self.forms.keys() {
            let Some(name) = child.strip_prefix(&start).filter(|name| !name.is_empty()) else { continue };
            if name.contains(['.', '[']) {
                continue;
            }
            let mut schema = self.of(child);
            self.row(child).inspect(|row| schema["description"] = json!(row));
            properties.insert(name.to_owned(), schema);
            if self.is_required(child) {
                required.push(name);
            }
        }
        let one_of = self.forms[path].iter().find_map(|form| match form {
            Form::OneOf(names) => Some(names.iter().map(|name| json!({ "required": [name] })).collect::<Vec<_>>()),
            _ => None,
        });
        // A section of which nothing is set may stand empty.
        let types = if required.is_empty() && one_of.is_none() { json!(["object", "null"]) } else { json!("object") };
        let mut section = json!({ "type": types, "properties": properties, "additionalProperties": false });
        if !required.is_empty() {
            section["required"] = json!(required);
        }
        one_of.inspect(|one_of| section["oneOf"] = json!(one_of));
        section
    }

    fn is_required(&self, path: &str) -> bool {
        let is_section = |form: &Form| matches!(form, Form::Section | Form::OneOf(_));
        !self.optional.contains(path) && !self.forms[path].iter().all(is_section)
    }

    /// What the document says of a setting, or else of the one that it belongs to.
    fn row(&self, path: &str) -> Option<&String> {
        let belongs_to = || self.row(path.rsplit_once('.')?.0);
        self.rows.get(path).or_else(belongs_to)
    }
}

/// The rows of the table of settings, as descriptions.
fn rows() -> BTreeMap<&'static str, String> {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", setting, default, range, changed_by, what_for, ""] = cells[..] else { return None };
        let setting = setting.strip_prefix('`')?.strip_suffix('`')?;
        let restart = if changed_by == "restart" { " Needs a restart." } else { "" };
        Some((setting, format!("{what_for} Values: {range}. Default: {default}.{restart}")))
    };
    DOCUMENT.lines().filter_map(row).collect()
}
