use std::time::Duration;

/// What makes an engine suspect that answers its checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Suspicion {
    /// Requests are in flight there, and for so long nothing has come of any of them.
    Silent { lasting: Duration },
}

impl Suspicion {
    /// In a few words.
    pub fn sentence(self) -> String {
        match self {
            Suspicion::Silent { lasting } => format!("silent for {} s with requests in flight", lasting.as_secs()),
        }
    }
}
