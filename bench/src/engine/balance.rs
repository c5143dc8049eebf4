//! How vLLM's own data-parallel balancer measures a rank's load. It sends a request to the least loaded, ties in turn.

use super::Snapshot;

/// The measure up to vLLM 0.26. Its client adds one to `waiting` for each request it sends, until the next reading.
pub fn load_until_0_26(rank: &Snapshot) -> f64 {
    f64::from(rank.waiting) * 4.0 + f64::from(rank.running)
}

/// The measure since vLLM 0.27, for one API server: `in_flight` are its own requests on the rank, and a queue weighs up
/// to three times more as the cache fills beyond a half.
pub fn load_since_0_27(rank: &Snapshot, in_flight: u32) -> f64 {
    let queue = f64::from(rank.waiting) * 6.0 * (rank.kv_usage - 0.5).max(0.0);
    f64::from(in_flight.max(rank.waiting + rank.running)) + queue
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(running: u32, waiting: u32, kv_usage: f64) -> Snapshot {
        Snapshot { running, waiting, kv_usage, ..Snapshot::default() }
    }

    #[test]
    fn once_a_waiting_request_counted_as_four_running_ones() {
        assert_eq!(load_until_0_26(&rank(3, 2, 0.9)), 11.0);
    }

    #[test]
    fn a_queue_weighs_more_the_fuller_the_cache() {
        assert_eq!(load_since_0_27(&rank(3, 2, 0.5), 1), 5.0);
        assert_eq!(load_since_0_27(&rank(3, 2, 1.0), 1), 11.0);
        // What was sent since the last reading counts at once.
        assert_eq!(load_since_0_27(&rank(0, 0, 0.0), 4), 4.0);
    }
}
