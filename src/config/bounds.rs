//! Numbers with a unit, a default and a range.

use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// What a setting is when it is not given, and what it may be; both ends belong to the range.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<T> {
    pub default: T,
    pub min: T,
    pub max: T,
}

impl<T: Quantity> Bounds<T> {
    /// The value that `text` names, if it is one and in the range.
    pub(super) fn read(&self, text: &str) -> Option<T> {
        T::read(text).filter(|value| (self.min..=self.max).contains(value))
    }
}

/// The range in words: `1 s to 24 h`.
impl<T: Quantity> fmt::Display for Bounds<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} to {}", self.min.show(), self.max.show())
    }
}

/// Something that is counted or measured, as it is written in the file.
pub trait Quantity: Copy + PartialOrd {
    /// What it is, in words.
    const WHAT: &'static str;

    fn read(text: &str) -> Option<Self>;

    /// A JSON schema of how it is written; what has a unit has no range there.
    fn schema(bounds: &Bounds<Self>) -> Value;

    /// Written as the file would have it, in the largest unit that loses nothing.
    fn show(&self) -> String;
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const fn kib(number: u64) -> Bytes {
        Bytes(number << 10)
    }

    pub const fn mib(number: u64) -> Bytes {
        Bytes(number << 20)
    }

    pub const fn gib(number: u64) -> Bytes {
        Bytes(number << 30)
    }
}

const SIZES: &[(&str, u64)] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// In milliseconds.
const TIMES: &[(&str, u64)] = &[("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

impl Quantity for Bytes {
    const WHAT: &'static str = "a size";

    fn read(text: &str) -> Option<Bytes> {
        match split(text) {
            (digits, "") => number(digits).map(Bytes),
            (digits, unit) => in_unit(digits, unit, SIZES).map(Bytes),
        }
    }

    fn schema(bounds: &Bounds<Bytes>) -> Value {
        json!({ "anyOf": [integer(bounds.min.0, bounds.max.0), with_unit(SIZES)] })
    }

    fn show(&self) -> String {
        largest_unit(self.0, SIZES)
    }
}

impl Quantity for Duration {
    const WHAT: &'static str = "a duration";

    fn read(text: &str) -> Option<Duration> {
        match split(text) {
            ("0", "") => Some(Duration::ZERO),
            (digits, unit) => in_unit(digits, unit, TIMES).map(Duration::from_millis),
        }
    }

    fn schema(bounds: &Bounds<Duration>) -> Value {
        match bounds.min.is_zero() {
            true => json!({ "anyOf": [{ "const": 0 }, with_unit(TIMES)] }),
            false => with_unit(TIMES),
        }
    }

    fn show(&self) -> String {
        match u64::try_from(self.as_millis()) {
            Ok(0) => "0 s".into(),
            Ok(millis) => largest_unit(millis, TIMES),
            Err(_) => format!("{self:?}"),
        }
    }
}

macro_rules! counted {
    ($($number:ty),*) => {$(
        impl Quantity for $number {
            const WHAT: &'static str = "a whole number";

            fn read(text: &str) -> Option<$number> {
                number(text)?.try_into().ok()
            }

            fn schema(bounds: &Bounds<$number>) -> Value {
                integer(bounds.min as u64, bounds.max as u64)
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
counted!(u32, u64, usize);

fn integer(min: u64, max: u64) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": max })
}

fn with_unit(units: &[(&str, u64)]) -> Value {
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    json!({ "type": "string", "pattern": format!("^(0|[1-9][0-9]*) *({})$", names.join("|")) })
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    (&text[..end], text[end..].trim_start())
}

/// A plain decimal number: `010` is refused, since to some it is eight.
fn number(digits: &str) -> Option<u64> {
    let plain = digits == "0" || !digits.starts_with('0');
    let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    (plain && only_digits).then(|| digits.parse().ok())?
}

fn in_unit(digits: &str, unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number(digits)?.checked_mul(*factor)
}

fn largest_unit(value: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    match fits {
        Some((name, factor)) => format!("{} {name}", value / factor),
        None => value.to_string(),
    }
}
