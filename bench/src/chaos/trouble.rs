//! What the operator does meanwhile: in the second half reloads, and one upgrade.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::watch::Watch;
use crate::balancer::Balancer;

/// Between two looks at the balancer's memory.
const LOOK: Duration = Duration::from_millis(250);
/// Between two reloads.
const RELOAD: Duration = Duration::from_secs(1);
/// The part of the time after which a new process takes over: before the last quarter, in which memory is measured.
const UPGRADE: f64 = 0.65;

/// Lets `duration` pass.
///
/// # Errors
/// When the balancer ends.
pub async fn make(balancer: &mut Balancer, watch: &mut Watch, duration: Duration) -> Result<(), String> {
    let began = Instant::now();
    let (mut reloaded, mut upgraded) = (began + duration / 2, false);
    while began.elapsed() < duration {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            ended = balancer.ended() => return ended.map_err(|error| error.to_string()),
        }
        watch.look(began.elapsed(), balancer.pid());
        if reloaded.elapsed() >= RELOAD {
            reloaded = Instant::now();
            balancer.signal(Signal::SIGHUP).map_err(|error| format!("it cannot be signalled: {error}"))?;
        }
        if !upgraded && began.elapsed() >= duration.mul_f64(UPGRADE) {
            upgraded = true;
            balancer.upgrade().await.map_err(|error| format!("the upgrade failed: {error}"))?;
        }
    }
    Ok(())
}
