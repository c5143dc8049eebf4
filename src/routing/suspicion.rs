use std::time::Duration;

/// What makes an engine suspect that answers its checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Suspicion {
    /// Requests are in flight there, and for so long nothing has come of any of them.
    Silent { lasting: Duration },
    /// Requests failed there one after the other: after the pause one tries it.
    Fails { pause: Duration },
}

impl Suspicion {
    /// In a few words.
    pub fn sentence(self) -> String {
        match self {
            Suspicion::Silent { lasting } => format!("silent for {} s with requests in flight", lasting.as_secs()),
            Suspicion::Fails { pause } => {
                format!("requests failed there one after the other, tried again after {:.1} s", pause.as_secs_f64())
            }
        }
    }
}
