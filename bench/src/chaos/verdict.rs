//! What a run came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::ledger::Counts;
use super::watch::{Quarters, Watch};

/// The outcome of a run. Shown, it tells everything.
pub struct Verdict {
    pub(super) seed: u64,
    pub(super) took: Duration,
    pub(super) played: BTreeMap<&'static str, u32>,
    pub(super) turns: Counts,
    pub(super) wrong: Vec<String>,
    /// Sessions that did not come to their end.
    pub(super) sessions_stuck: Option<usize>,
    /// What was there still after all was over.
    pub(super) left_over: Vec<String>,
    pub(super) watch: Watch,
}

impl Verdict {
    /// Whether all holds that should.
    pub fn holds(&self) -> bool {
        self.turns.answered > 0
            && self.turns.wrong == 0
            && self.sessions_stuck.is_none()
            && self.left_over.is_empty()
            && self.watch.resident_kib().is_flat()
            && self.watch.descriptors().is_flat()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { answered, left, lost, wrong } = self.turns;
        writeln!(f, "seed {}, {:.0} s", self.seed, self.took.as_secs_f64())?;
        let played: Vec<String> = self.played.iter().map(|(name, times)| format!("{name} {times}")).collect();
        writeln!(f, "faults: {}", played.join(", "))?;
        writeln!(
            f,
            "turns: {answered} answered, {left} left by their client, {lost} lost with their replica after a byte, {wrong} wrong"
        )?;
        quarters(f, "memory", self.watch.resident_kib(), "KiB")?;
        quarters(f, "descriptors", self.watch.descriptors(), "")?;
        self.wrong.iter().try_for_each(|told| writeln!(f, "wrong: {told}"))?;
        if let Some(sessions) = self.sessions_stuck {
            writeln!(f, "wrong: {sessions} sessions never came to their end")?;
        }
        self.left_over.iter().try_for_each(|left| writeln!(f, "wrong: {left}"))?;
        f.write_str(if self.holds() { "all holds" } else { "does not hold" })
    }
}

fn quarters(f: &mut fmt::Formatter<'_>, what: &str, figure: Quarters, unit: &str) -> fmt::Result {
    let flat = if figure.is_flat() { "flat" } else { "wrong: grows" };
    writeln!(f, "{what}: {:.0} in the first quarter, {:.0} in the last {unit} ({flat})", figure.first, figure.last)
}
