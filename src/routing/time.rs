use std::time::Duration;

/// A moment, in milliseconds since a start that the caller chose. Only differences mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// How long before this moment `earlier` was; zero if it was later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;

    fn add(self, later: Duration) -> Time {
        Time(self.0.saturating_add(later.as_millis().try_into().unwrap_or(u64::MAX)))
    }
}

impl std::ops::Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, earlier: Duration) -> Time {
        Time(self.0.saturating_sub(earlier.as_millis().try_into().unwrap_or(u64::MAX)))
    }
}
