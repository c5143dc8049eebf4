use std::time::Duration;

use super::{Recovery, Time};

/// Leaves an engine alone at which one request after the other fails, and finds out with single requests when it serves
/// again (the circuit breaker of M. Nygard, "Release It!").
#[derive(Clone, Debug, Default)]
pub(super) struct Circuit {
    /// Requests in a row that failed.
    failures: u32,
    open: Option<Open>,
    /// How often it has opened. It also tells one trial from the next.
    opened: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// When one request may try it.
    until: Time,
    pause: Duration,
    trial: Trial,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trial {
    NotYet,
    /// The next request is it.
    Due,
    UnderWay,
}

/// The one request that an engine is tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrialId(u64);

impl Circuit {
    /// How often it has opened.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// For how long the engine is left alone; none: requests go there.
    pub fn pause(&self) -> Option<Duration> {
        self.open.map(|open| open.pause)
    }

    /// Whether the next request may try the engine.
    pub fn trial_is_due(&self) -> bool {
        self.open.is_some_and(|open| open.trial == Trial::Due)
    }

    /// When one may; none: it is not a matter of time.
    pub fn next_trial(&self) -> Option<Time> {
        self.open.filter(|open| open.trial == Trial::NotYet).map(|open| open.until)
    }

    /// A request has failed that was sent when it had opened so often: one sent before it last did says nothing new.
    pub fn failed(&mut self, openings: u64, recovery: &Recovery, now: Time) {
        if openings != self.opened {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let pause = match self.open {
            None if self.failures >= recovery.failures => recovery.pause,
            Some(Open { pause, trial: Trial::Due | Trial::UnderWay, .. }) => (pause * 2).min(recovery.pause_max),
            _ => return,
        };
        self.opened += 1;
        self.open = Some(Open { until: now + pause, pause, trial: Trial::NotYet });
    }

    /// A request was answered that was sent when it had opened so often.
    pub fn succeeded(&mut self, openings: u64) {
        if openings == self.opened {
            (self.failures, self.open) = (0, None);
        }
    }

    /// Lets one request through if the pause is over.
    pub fn pass_time(&mut self, now: Time) {
        if self.next_trial().is_some_and(|until| until <= now) {
            self.try_soon();
        }
    }

    /// Lets one request through whether or not the pause is over: the engine is likely another by now.
    pub fn try_soon(&mut self) {
        if let Some(open @ Open { trial: Trial::NotYet, .. }) = &mut self.open {
            open.trial = Trial::Due;
        }
    }

    /// A request is sent. Some: it is the trial.
    pub fn begin_trial(&mut self) -> Option<TrialId> {
        let open = self.open.as_mut().filter(|open| open.trial == Trial::Due)?;
        open.trial = Trial::UnderWay;
        Some(TrialId(self.opened))
    }

    /// The trial has ended. If neither word of it came, the next request is one.
    pub fn end_trial(&mut self, id: TrialId) {
        if let Some(open @ Open { trial: Trial::UnderWay, .. }) = &mut self.open
            && id == TrialId(self.opened)
        {
            open.trial = Trial::Due;
        }
    }
}
