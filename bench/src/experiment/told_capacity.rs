use std::str::FromStr;

/// What an arm is told of the KV capacity of an engine: engines may say too much, too little, or nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToldCapacity {
    /// So many times the truth, 0.01 to 100.
    Factor(f64),
    /// Nothing.
    Unknown,
}

impl ToldCapacity {
    /// What is told of an engine that has room for so many tokens; none where nothing is told.
    pub fn tokens(self, kv_cache_tokens: u32) -> Option<u64> {
        match self {
            Self::Factor(factor) => Some((f64::from(kv_cache_tokens) * factor).round() as u64),
            Self::Unknown => None,
        }
    }
}

impl Default for ToldCapacity {
    /// The truth.
    fn default() -> Self {
        Self::Factor(1.0)
    }
}

impl FromStr for ToldCapacity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unknown" {
            return Ok(Self::Unknown);
        }
        let factor = text.parse().ok().filter(|factor| (0.01..=100.0).contains(factor));
        factor.map(Self::Factor).ok_or_else(|| "give a factor from 0.01 to 100, or `unknown`".to_owned())
    }
}
