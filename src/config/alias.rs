//! Other names by which clients call a model.

use std::fmt;

use wildmatch::WildMatch;

use super::settings::MODEL_NAME_MAX;

/// One other name, or a pattern of names: `*` stands for any characters, also none, and `?` for one.
#[derive(Clone, Debug, PartialEq)]
pub struct Alias {
    text: String,
    pattern: WildMatch,
}

impl Eq for Alias {}

impl Alias {
    pub fn new(text: &str) -> Alias {
        Alias { text: text.to_owned(), pattern: WildMatch::new(text) }
    }

    /// The one name that it is; none if it is a pattern.
    pub fn name(&self) -> Option<&str> {
        (!self.text.contains(['*', '?'])).then_some(&self.text)
    }

    /// Whether it stands for `name`. No pattern stands for a name longer than a model's may be.
    pub fn matches(&self, name: &str) -> bool {
        // Counted in bytes first: the name comes from a client and may be of any length.
        let short = name.len() <= 4 * MODEL_NAME_MAX && name.chars().count() <= MODEL_NAME_MAX;
        short && self.pattern.matches(name)
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
