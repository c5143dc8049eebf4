//! A load that crosses the knee and back, for someone who looks at the page meanwhile.

use std::net::SocketAddr;

use serde_json::Value;

use crate::experiment::{Row, Span, Trace};
use crate::live::{Dialect, Driver, Pace, Target, Way};
use crate::load::{Load, Sessions};

/// A stretch of the load.
struct Phase {
    /// At all times.
    sessions: u32,
    /// Real seconds.
    seconds: u32,
    name: &'static str,
    /// What is to be seen on the page.
    see: &'static str,
}

/// The caches of the four replicas hold the conversations of some 20 sessions.
const PHASES: [Phase; 3] = [
    Phase {
        sessions: 8,
        seconds: 40,
        name: "few sessions",
        see: "All fit the caches. On the page: sticky stays near 100 %, parked at or near 0, and most of each bar of prompt tokens \
              is cached. What is computed is first turns.",
    },
    Phase {
        sessions: 40,
        seconds: 60,
        name: "more than the caches hold",
        see: "New sessions wait. Parked rises, held of capacity is nearly full on every replica, and yet the bars stay \
              cached: who has a place keeps it. First byte p95 shows the waits.",
    },
    Phase {
        sessions: 8,
        seconds: 40,
        name: "few again",
        see: "The line empties: parked falls to 0 or near it, first byte p95 with it, held of capacity falls. Sticky was high all the while.",
    },
];

/// Plays the phases over and over for the balancer at these addresses, `speed` times as fast as the load is, and says of each what is to be seen and what came
/// of it. Ends only if it fails.
///
/// # Errors
/// If nothing answers.
pub async fn play(clients: SocketAddr, admin: SocketAddr, model: &str, speed: f64) -> Result<(), String> {
    let load = Load::read("published")?;
    let url = format!("http://{clients}");
    for round in 0_u64.. {
        for (index, phase) in PHASES.iter().enumerate() {
            let Phase { sessions, seconds, name, see } = phase;
            println!(
                "\n[{} of {}] {name}: {sessions} sessions at a time, for {seconds} s.\n{see}",
                index + 1,
                PHASES.len()
            );
            let target = Target { url: url.clone(), model: model.to_owned(), dialect: Dialect::Messages };
            // Sessions that nobody has seen before.
            let seed = round * PHASES.len() as u64 + index as u64;
            let sessions = Sessions::new(load.clone(), *sessions, seed);
            let span = Span { warmup_s: 0.0, measured_s: f64::from(*seconds) * speed };
            let waited = waited(admin).await;
            let trace = Driver::new(target, Pace { speed, way: Way::default() }, sessions).run(span).await?;
            println!("{}", summary(&trace, self::waited(admin).await.saturating_sub(waited), speed));
        }
    }
    Ok(())
}

fn summary(trace: &Trace, waited: u64, speed: f64) -> String {
    let row = Row::of(trace, String::new(), 0, 0);
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
    let seconds = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{:.2} s", time / speed));
    format!(
        "  {} turns, sticky {}, cached {} of the prompt tokens, {waited} waited for room, first byte {} (p50), {} (p95)",
        trace.turns.len(),
        percent(row.stayed_ratio),
        percent(row.prefix_hit_ratio),
        seconds(row.ttfb_p50_s),
        seconds(row.ttfb_p95_s),
    )
}

/// Requests that have waited for room so far, as the balancer counts them; 0 where it does not say.
async fn waited(admin: SocketAddr) -> u64 {
    let said = async { reqwest::get(format!("http://{admin}/routing")).await?.json::<Value>().await };
    let said = said.await.unwrap_or_default();
    said.pointer("/models/0/admission/totals/parked").and_then(Value::as_u64).unwrap_or(0)
}
