//! The published figures that the experiment is held against.

/// One tier of the published table, for one of its arms. Ratios from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    pub sessions: u32,
    pub sessions_per_h: f64,
    pub output_tokens_per_min: f64,
    pub ttfb_p50_s: f64,
    pub ttfb_p95_s: f64,
    pub replicas_busy: f64,
    pub prefix_hit_ratio: f64,
    pub stayed_ratio: Option<f64>,
}

/// An arm of the published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedArm {
    /// vLLM's own balancer.
    Off,
    /// Session affinity.
    On,
}

impl PublishedArm {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
        }
    }
}

/// The tier of this many sessions, if it was published.
///
/// LM Warden's measurements of replica routing: four RTX A4000 with Qwen3-4B and vLLM 0.26, one run of 180 s each.
pub fn published(arm: PublishedArm, sessions: u32) -> Option<Published> {
    let table = match arm {
        PublishedArm::Off => &OFF,
        PublishedArm::On => &ON,
    };
    table.iter().find(|row| row.sessions == sessions).copied()
}

const OFF: [Published; 5] = [
    row(4, 180.0, 5886.0, 2.05, 3.5, 2.71, 0.562, None),
    row(8, 300.0, 8364.0, 2.33, 6.32, 3.74, 0.443, None),
    row(16, 300.0, 9558.0, 3.25, 26.24, 3.91, 0.332, None),
    row(24, 300.0, 9048.0, 5.06, 58.82, 3.91, 0.328, None),
    row(32, 520.0, 14760.0, 12.32, 82.84, 4.0, 0.316, None),
];

const ON: [Published; 5] = [
    row(4, 240.0, 6744.0, 0.38, 2.84, 2.83, 0.864, Some(1.0)),
    row(8, 380.0, 10752.0, 0.48, 5.03, 3.74, 0.861, Some(1.0)),
    row(16, 360.0, 12204.0, 0.85, 24.88, 3.69, 0.486, Some(1.0)),
    row(24, 420.0, 11178.0, 13.14, 38.34, 4.0, 0.379, Some(0.891)),
    row(32, 620.0, 16638.0, 27.66, 38.92, 4.0, 0.316, Some(0.673)),
];

#[expect(clippy::too_many_arguments, reason = "a row of a table, in the order of its columns")]
const fn row(
    sessions: u32,
    sessions_per_h: f64,
    output_tokens_per_min: f64,
    ttfb_p50_s: f64,
    ttfb_p95_s: f64,
    replicas_busy: f64,
    prefix_hit_ratio: f64,
    stayed_ratio: Option<f64>,
) -> Published {
    Published {
        sessions,
        sessions_per_h,
        output_tokens_per_min,
        ttfb_p50_s,
        ttfb_p95_s,
        replicas_busy,
        prefix_hit_ratio,
        stayed_ratio,
    }
}
