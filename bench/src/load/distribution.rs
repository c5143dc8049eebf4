use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, LogNormal, Pareto};
use serde::Deserialize;

/// How a figure of a session varies.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Distribution {
    /// Always the same.
    Constant(f64),
    /// Anything between the two, ends included.
    Uniform { min: f64, max: f64 },
    /// Half of them are below `median`; `sigma` is the standard deviation of the logarithm. Cut off at `max`.
    LogNormal { median: f64, sigma: f64, max: f64 },
    /// At least `min`, with a heavy tail: a share of `(min / x) ^ shape` is above x. Cut off at `max`.
    Pareto { min: f64, shape: f64, max: f64 },
}

impl Distribution {
    /// Draws one value, at least 0.
    ///
    /// # Panics
    /// When it is not [valid](Self::is_valid).
    pub fn draw(&self, rng: &mut impl Rng) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform { min, max } => rng.random_range(min..=max),
            Self::LogNormal { median, sigma, max } => {
                LogNormal::new(median.ln(), sigma).expect("checked").sample(rng).min(max)
            }
            Self::Pareto { min, shape, max } => Pareto::new(min, shape).expect("checked").sample(rng).min(max),
        }
    }

    /// Draws a count: rounded, at least `least`.
    pub fn draw_count(&self, rng: &mut impl Rng, least: u32) -> u32 {
        (self.draw(rng).round() as u32).max(least)
    }

    /// The largest value that it can give.
    pub fn most(&self) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform { max, .. } | Self::LogNormal { max, .. } | Self::Pareto { max, .. } => max,
        }
    }

    /// Whether every value that it can give is a number from 0 on.
    pub fn is_valid(&self) -> bool {
        let finite = |values: &[f64]| values.iter().all(|value| value.is_finite() && *value >= 0.0);
        match *self {
            Self::Constant(value) => finite(&[value]),
            Self::Uniform { min, max } => finite(&[min, max]) && min <= max,
            Self::LogNormal { median, sigma, max } => finite(&[median, sigma, max]) && median > 0.0 && median <= max,
            Self::Pareto { min, shape, max } => finite(&[min, shape, max]) && min > 0.0 && shape > 0.0 && min <= max,
        }
    }
}
