use serde::Serialize;

/// Why a request went where it went. Every routed request gets exactly one, at its first try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// A conversation seen for the first time, or that lost its home or its cache: it got a home.
    Placed,
    /// The conversation's home.
    Sticky,
    /// Home had too many requests in flight, so this one request went elsewhere.
    Spilled,
    /// The client's own word: it named the data-parallel rank, or something that only one replica keeps.
    ClientPinned,
    /// Nothing told the conversation apart: by load.
    Balanced,
    /// Affinity is off, or the client named a rank that no engine has.
    Unrouted,
}

impl Decision {
    /// All decisions, in the order in which they are reported.
    pub const ALL: [Decision; 6] = [
        Decision::Placed,
        Decision::Sticky,
        Decision::Spilled,
        Decision::ClientPinned,
        Decision::Balanced,
        Decision::Unrouted,
    ];

    /// The name in headers, metrics, logs and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Decision::Placed => "placed",
            Decision::Sticky => "sticky",
            Decision::Spilled => "spilled",
            Decision::ClientPinned => "client_pinned",
            Decision::Balanced => "balanced",
            Decision::Unrouted => "unrouted",
        }
    }
}

/// Requests by decision, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DecisionCounts {
    pub placed: u64,
    pub sticky: u64,
    pub spilled: u64,
    pub client_pinned: u64,
    pub balanced: u64,
    pub unrouted: u64,
}

impl DecisionCounts {
    /// Counts one request more.
    pub fn count(&mut self, decision: Decision) {
        *match decision {
            Decision::Placed => &mut self.placed,
            Decision::Sticky => &mut self.sticky,
            Decision::Spilled => &mut self.spilled,
            Decision::ClientPinned => &mut self.client_pinned,
            Decision::Balanced => &mut self.balanced,
            Decision::Unrouted => &mut self.unrouted,
        } += 1;
    }

    /// Adds another's counts to these.
    pub fn add(&mut self, other: &DecisionCounts) {
        self.placed += other.placed;
        self.sticky += other.sticky;
        self.spilled += other.spilled;
        self.client_pinned += other.client_pinned;
        self.balanced += other.balanced;
        self.unrouted += other.unrouted;
    }

    /// The requests routed: every decision, added up.
    pub fn sum(&self) -> u64 {
        self.placed + self.sticky + self.spilled + self.client_pinned + self.balanced + self.unrouted
    }
}
