use super::Row;
use super::row::mean;

/// Which figure of a row.
pub type Figure = fn(&Row) -> Option<f64>;

/// A figure over the seeds of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub mean: f64,
    /// Standard deviation of a single run; none for one run.
    pub deviation: Option<f64>,
}

impl Spread {
    /// The figure in the rows of this arm with so many sessions; none if none of them has it.
    pub fn of(rows: &[Row], arm: &str, sessions: u32, figure: Figure) -> Option<Self> {
        let cell = rows.iter().filter(|row| row.arm == arm && row.sessions == sessions);
        let values: Vec<f64> = cell.filter_map(figure).collect();
        let mean = mean(&values)?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt());
        Some(Self { mean, deviation })
    }

    /// With so many decimals, the deviation after a `±`.
    pub fn show(&self, decimals: usize) -> String {
        match self.deviation {
            Some(deviation) => format!("{:.decimals$}±{deviation:.decimals$}", self.mean),
            None => format!("{:.decimals$}", self.mean),
        }
    }
}
