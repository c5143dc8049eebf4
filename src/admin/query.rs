use percent_encoding::percent_decode_str;

use crate::decisions::Filter;
use crate::history::Span;

/// What stands after the question mark of an address.
pub struct Query<'a>(pub &'a str);

impl Query<'_> {
    /// The value of a name, if it stands there.
    pub fn get(&self, name: &str) -> Option<String> {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.into_iter().find(|(key, _)| *key == name)?;
        Some(percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned())
    }

    /// `model`, `decision` and `conversation`.
    pub fn filter(&self) -> Filter {
        Filter { model: self.get("model"), decision: self.get("decision"), conversation: self.get("conversation") }
    }

    /// `span`; the hour, where none is named. None: it is no span.
    pub fn span(&self) -> Option<Span> {
        self.get("span").map_or(Some(Span::Hour), |name| Span::named(&name))
    }
}
