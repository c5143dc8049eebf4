//! Memory and descriptors of the balancer over time.

use std::time::Duration;

/// How much more the last quarter may take than the first.
const GROWTH_MAX: f64 = 1.05;
/// In a short run, in which code that runs for the first time still comes into memory.
const GROWTH_MAX_SHORT: f64 = 1.10;
const SHORT: Duration = Duration::from_secs(300);

/// The balancer takes what it needs in the beginning: buffers, threads, pools. That time is not counted.
const WARMUP: Duration = Duration::from_secs(20);

/// Samples of the run.
pub struct Watch {
    duration: Duration,
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    resident_kib: f64,
    descriptors: f64,
}

/// One figure in the first and in the last quarter.
#[derive(Clone, Copy, Debug)]
pub struct Quarters {
    pub first: f64,
    pub last: f64,
    growth_max: f64,
}

impl Quarters {
    /// Whether it has not grown.
    pub fn is_flat(&self) -> bool {
        self.last <= self.first * self.growth_max
    }
}

impl Watch {
    pub fn new(duration: Duration) -> Watch {
        Watch { duration, samples: Vec::new() }
    }

    /// Looks at a process, `at` so long after the start. One that is gone is not there to be counted.
    pub fn look(&mut self, at: Duration, pid: u32) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count);
        if let (Some(resident_kib), Ok(descriptors)) = (resident, descriptors) {
            self.samples.push(Sample { at, resident_kib, descriptors: descriptors as f64 });
        }
    }

    /// Resident memory, KiB.
    pub fn resident_kib(&self) -> Quarters {
        self.quarters(|sample| sample.resident_kib)
    }

    /// Open files and sockets.
    pub fn descriptors(&self) -> Quarters {
        self.quarters(|sample| sample.descriptors)
    }

    fn quarters(&self, of: impl Fn(&Sample) -> f64) -> Quarters {
        let (from, counted) = (WARMUP, self.duration.saturating_sub(WARMUP));
        let median = |begin: f64, end: f64| {
            let within =
                |sample: &&Sample| (from + counted.mul_f64(begin)..from + counted.mul_f64(end)).contains(&sample.at);
            let mut values: Vec<f64> = self.samples.iter().filter(within).map(&of).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(0.0)
        };
        let growth_max = if self.duration < SHORT { GROWTH_MAX_SHORT } else { GROWTH_MAX };
        Quarters { first: median(0.0, 0.25), last: median(0.75, 1.0), growth_max }
    }
}
