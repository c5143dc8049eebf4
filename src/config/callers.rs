//! Who may call, where that is not anyone: API keys by their hashes, and what each caller may do.

use std::fmt;
use std::path::Path;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use wildmatch::WildMatch;

use super::place::{Place, Section};
use super::settings;

/// What stands before the digits of a hash.
const SCHEME: &str = "sha256:";

/// One who may call, and what it may do.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// For logs and metrics.
    pub name: String,
    /// At least one; no key is listed twice.
    pub keys: Vec<KeyHash>,
    /// The models that it may use, by their configured names; at least one pattern.
    pub models: Vec<WildMatch>,
    pub requests_per_minute: Option<u32>,
    /// Requests at once, those that wait for room included.
    pub in_flight: Option<u32>,
    /// Conversations at once.
    pub conversations: Option<u32>,
    /// How many of those of it who wait for room go on at its turn.
    pub weight: u32,
}

impl Eq for Caller {}

impl Caller {
    /// Whether it may use the model of this configured name.
    pub fn may_use(&self, model: &str) -> bool {
        self.models.iter().any(|pattern| pattern.matches(model))
    }
}

/// The SHA-256 of an API key. Keys are random and long, so none can be found by trying, and a fast hash is the right one:
/// a slow one, which passwords need, would only make every request slow. It does not show itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Of a key as a client sends it.
    pub fn of(key: &[u8]) -> KeyHash {
        KeyHash(Sha256::digest(key).into())
    }

    /// Whether the two are equal, in a time that does not tell where they differ.
    pub fn equals(&self, other: &KeyHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    fn parse(text: &str) -> Option<KeyHash> {
        let mut hash = [0; 32];
        hex::decode_to_slice(text.strip_prefix(SCHEME)?, &mut hash).ok()?;
        Some(KeyHash(hash))
    }
}

/// As it stands in the file.
impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", hex::encode(self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(hidden)")
    }
}

/// The callers, in the file itself or in one beside it. `named`: whether the models have names to choose by.
pub(super) fn read(place: &Place, named: bool, folder: &Path) -> Option<Vec<Caller>> {
    if place.is_mapping() {
        return place.section(|s| in_file(&s.place("file"), named, folder));
    }
    list(place, named)
}

fn in_file(place: &Place, named: bool, folder: &Path) -> Option<Vec<Caller>> {
    let path = folder.join(place.text(settings::PATH_MAX)?);
    let read = super::read_text(&path).and_then(|text| super::checked(&path, &text, |root, _| list(root, named)));
    match read {
        Ok(callers) => callers,
        Err(faults) => {
            for fault in faults.iter() {
                place.expected_but::<()>("a sound list of callers", format!("in {}: {fault}", path.display()));
            }
            None
        }
    }
}

fn list(place: &Place, named: bool) -> Option<Vec<Caller>> {
    let (mut names, mut keys) = (Vec::new(), Vec::new());
    place.list(1..=settings::CALLERS_MAX, |item| item.section(|s| caller(s, named, &mut names, &mut keys)))
}

fn caller(s: &mut Section, named: bool, names: &mut Vec<String>, keys: &mut Vec<KeyHash>) -> Option<Caller> {
    let place = s.place("name");
    let name = place.value("1 to 64 letters, digits, dots, dashes or underscores", |text| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        ((1..=64).contains(&text.len()) && text.bytes().all(plain)).then(|| text.to_owned())
    });
    let name = name.and_then(|name| super::check::once(&place, names, name));
    // Whoever put a key where its hash belongs does not want to see it in a log.
    let hashes = s.place("keys").hidden().list(1..=settings::CALLER_KEYS_MAX, |item| {
        let hash = item.value(format!("{SCHEME} and 64 digits, as `homing key` prints"), KeyHash::parse)?;
        super::check::once(&item, keys, hash)
    });
    let models = s.get("models", vec![WildMatch::new("*")], |place| models(place, named));
    let requests_per_minute = s.get("requests_per_minute", None, |p| p.within(&settings::CALLER_RATE).map(Some));
    let in_flight = s.get("in_flight", None, |p| p.within(&settings::CALLER_IN_FLIGHT).map(Some));
    let conversations = s.get("conversations", None, |p| p.within(&settings::CALLER_CONVERSATIONS).map(Some));
    let weight = s.within("weight", &settings::CALLER_WEIGHT);
    Some(Caller { name: name?, keys: hashes?, models, requests_per_minute, in_flight, conversations, weight })
}

fn models(place: &Place, named: bool) -> Option<Vec<WildMatch>> {
    if !named {
        return place.expected("no list of models where the model has no name");
    }
    place.list(1..=settings::MODELS_MAX, |item| item.text(settings::MODEL_NAME_MAX).map(WildMatch::new))
}
