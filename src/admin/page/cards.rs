//! Replica routing: a card a model, a row a replica.

use std::time::{Duration, UNIX_EPOCH};

use maud::{Markup, html};

use super::figures::{DASH, count, date_time, or_dash, percent, seconds, share};
use crate::config::SpillThreshold;
use crate::fleet::{Fleet, InForce, Model, now};
use crate::routing::{READING_MAX_AGE, ReplicaSnapshot, Snapshot, Trouble};

const COLUMNS: [&str; 14] = [
    "Replica",
    "State",
    "In flight",
    "Sticky",
    "Placed",
    "Spilled in",
    "Client-pinned",
    "By load",
    "Running",
    "Waiting",
    "KV used",
    "Held of capacity",
    "Conversations",
    "Prefix hits",
];

/// Every model's card. The counters began at `since`, in seconds since 1970.
pub fn all(fleet: &Fleet, since: u64) -> Markup {
    html! {
        @for (index, model) in fleet.models().iter().enumerate() {
            (card(index, model, since))
        }
    }
}

fn card(index: usize, model: &Model, since: u64) -> Markup {
    let snapshot = model.router.lock().snapshot(now());
    let title = format!("model-{index}");
    let began = date_time(UNIX_EPOCH + Duration::from_secs(since));
    html! {
        article .card data-key=(model.label()) aria-labelledby=(title) {
            h3 #(title) { (model.label()) }
            (badges(model, &snapshot))
            @if let Some(advice) = snapshot.advice {
                p .note { "Likely wrong: " (advice.sentence()) "." }
            }
            div .scroll {
                table .replicas role="table" aria-labelledby=(title) {
                    thead role="rowgroup" {
                        tr role="row" {
                            @for column in COLUMNS {
                                th role="columnheader" scope="col" { (column) }
                            }
                        }
                    }
                    tbody role="rowgroup" {
                        @for replica in &snapshot.replicas { (row(model.label(), replica)) }
                    }
                }
            }
            p .since {
                "Counted since " time datetime=(began.replace(' ', "T") + "Z") { (began) } " UTC: "
                "requests routed " (count(snapshot.decisions.sum())) ", "
                "tries after a failed one " (count(snapshot.failed_over)) ". "
                "Conversations " (count(snapshot.conversations)) " of at most "
                (count(snapshot.settings.conversations_max as u64)) "."
            }
        }
    }
}

fn badges(model: &Model, snapshot: &Snapshot) -> Markup {
    let settings = &snapshot.settings;
    let source = match model.settings().spill_threshold {
        SpillThreshold::Auto => "auto",
        SpillThreshold::Set(_) => "set",
    };
    let affinity = if settings.affinity { "on" } else { "off" };
    let decisions = &snapshot.decisions;
    // Of the turns that had a home to go to.
    let sticky = percent(decisions.sticky, decisions.sticky + decisions.spilled);
    let parked = match snapshot.parked {
        0 => "0".to_owned(),
        parked => format!("{}, for {} at most", count(parked), seconds(snapshot.longest_wait.as_secs_f64())),
    };
    html! {
        ul .badges {
            (badge("affinity", affinity))
            (badge("spill threshold", &format!("{} ({source})", settings.spill_threshold)))
            (badge("sticky", &sticky))
            (badge("in flight", &count(snapshot.in_flight)))
            (badge("admission", settings.admission.mode.name()))
            (badge("parked", &parked))
        }
        p .why { "Admission " (InForce::of(snapshot).why) "." }
    }
}

fn badge(name: &str, value: &str) -> Markup {
    html! { li { (name) " " strong { (value) } } }
}

fn row(model: &str, replica: &ReplicaSnapshot) -> Markup {
    let reading = replica.reading.as_ref().map(|(reading, _)| reading);
    let decisions = &replica.decisions;
    let (state, why) = state(replica);
    let numbers = [
        count(replica.in_flight.into()),
        count(decisions.sticky),
        count(decisions.placed),
        count(decisions.spilled),
        count(decisions.client_pinned),
        count(decisions.balanced + decisions.unrouted),
        or_dash(reading.and_then(|reading| reading.running), count),
        or_dash(reading.and_then(|reading| reading.waiting), count),
        or_dash(reading.and_then(|reading| reading.kv_cache_usage), share),
    ];
    let conversations = count(replica.conversations.into());
    let hits = or_dash(reading.and_then(|reading| reading.prefix_hit_ratio()), share);
    html! {
        tr role="row" data-key=(replica.name) {
            th role="rowheader" scope="row" { (replica.name) }
            td role="cell" .state data-label=(COLUMNS[1]) {
                span .(state) { (state) }
                @if let Some(why) = why { " " small { (why) } }
                (drain(model, replica))
            }
            @for (label, number) in COLUMNS[2..].iter().zip(&numbers) {
                td role="cell" data-label=(label) { (number) }
            }
            td role="cell" .held data-label=(COLUMNS[11]) { (held(replica)) }
            td role="cell" data-label=(COLUMNS[12]) { (conversations) }
            td role="cell" data-label=(COLUMNS[13]) { (hits) }
        }
    }
}

/// Drains its engine, or ends that. The script asks once more before it does.
fn drain(model: &str, replica: &ReplicaSnapshot) -> Markup {
    let (verb, label) = match replica.trouble {
        Some(Trouble::NotConfigured) => return html! {},
        Some(Trouble::ToldToDrain) => ("undrain", "Use again"),
        _ => ("drain", "Drain"),
    };
    html! {
        button type="button" aria-label=(format!("{label}: {}", replica.engine))
            data-verb=(verb) data-engine=(replica.engine) data-model=(model) { (label) }
    }
}

/// Tokens held of those that the cache can keep, as a bar and as text.
fn held(replica: &ReplicaSnapshot) -> Markup {
    let capacity = replica.capacity_tokens;
    let filled = capacity.map(|capacity| (100.0 * replica.held_tokens as f64 / capacity.max(1) as f64).min(100.0));
    html! {
        @if let Some(filled) = filled {
            svg .bar viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" {
                rect .track width="100" height="6" {}
                rect .fill width=(format!("{filled:.1}")) height="6" {}
            }
        }
        span { (count(replica.held_tokens)) " of " (capacity.map_or_else(|| DASH.to_owned(), count)) }
    }
}

/// The state of a replica, and its reason where it has one.
fn state(replica: &ReplicaSnapshot) -> (&'static str, Option<String>) {
    let why = match (replica.trouble, &replica.reading) {
        (Some(trouble), _) if replica.drained => Some(format!("{}, nothing in flight", trouble.sentence())),
        (Some(trouble), _) => Some(trouble.sentence()),
        (None, _) if replica.returning => Some("has come back, is filled gently".to_owned()),
        (None, None) => Some("not read yet".to_owned()),
        (None, Some((_, age))) if *age >= READING_MAX_AGE => Some(format!("reading {} s old", count(age.as_secs()))),
        (None, Some(_)) => None,
    };
    (replica.state.name(), why)
}
