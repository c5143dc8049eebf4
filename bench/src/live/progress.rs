use std::io::{IsTerminal, Write, stderr};

/// A line on the terminal that says how far a run is; nothing where there is no terminal.
pub struct Progress {
    until_s: f64,
    shows: bool,
}

impl Progress {
    pub fn new(until_s: f64) -> Self {
        Self { until_s, shows: stderr().is_terminal() }
    }

    pub fn show(&mut self, now_s: f64, in_flight: usize, sessions_ended: usize, failed: u64) {
        if self.shows {
            // A terminal that is gone takes nothing from the run.
            let _ = write!(
                stderr(),
                "\r{:.0} of {:.0} s, {in_flight} turns in flight, {sessions_ended} sessions ended, {failed} turns failed   ",
                now_s.min(self.until_s),
                self.until_s,
            );
        }
    }

    pub fn end(&mut self) {
        if self.shows {
            let _ = writeln!(stderr());
        }
    }
}
