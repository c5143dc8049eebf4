//! The results as text: Markdown tables, one arm against another, beside the published figures.

use std::fmt::Write;

use super::published::{Published, published};
use super::spread::{Figure, Spread};
use super::{ArmKind, Row};

struct Column {
    title: &'static str,
    decimals: usize,
    figure: Figure,
    published: fn(&Published) -> Option<f64>,
}

const fn column(
    title: &'static str,
    decimals: usize,
    figure: Figure,
    published: fn(&Published) -> Option<f64>,
) -> Column {
    Column { title, decimals, figure, published }
}

fn percent(ratio: Option<f64>) -> Option<f64> {
    ratio.map(|ratio| 100.0 * ratio)
}

/// The columns of the published table.
const COLUMNS: [Column; 7] = [
    column("sessions/h", 0, |row| Some(row.sessions_per_h), |published| Some(published.sessions_per_h)),
    column("output tokens/min", 0, |row| Some(row.output_tokens_per_min), |row| Some(row.output_tokens_per_min)),
    column("TTFB p50 s", 2, |row| row.ttfb_p50_s, |row| Some(row.ttfb_p50_s)),
    column("TTFB p95 s", 2, |row| row.ttfb_p95_s, |row| Some(row.ttfb_p95_s)),
    column("replicas busy", 2, |row| Some(row.replicas_busy), |row| Some(row.replicas_busy)),
    column(
        "prefix hits % (vLLM's counters)",
        1,
        |row| percent(row.prefix_hit_ratio_vllm),
        |row| Some(100.0 * row.prefix_hit_ratio),
    ),
    column("stayed %", 1, |row| percent(row.stayed_ratio), |row| percent(row.stayed_ratio)),
];

/// What the published table does not say.
const MORE_COLUMNS: [Column; 8] = [
    column("prefix hits % (finished turns)", 1, |row| percent(row.prefix_hit_ratio), |_| None),
    column("TTFB mean s", 2, |row| row.ttfb_mean_s, |_| None),
    column("session mean s", 1, |row| row.session_mean_s, |_| None),
    column("session p95 s", 1, |row| row.session_p95_s, |_| None),
    column("waits a session, mean s", 1, |row| row.session_wait_mean_s, |_| None),
    column("completed session mean s", 1, |row| row.completed_mean_s, |_| None),
    column("completed session p95 s", 1, |row| row.completed_p95_s, |_| None),
    column("waits a completed session, mean s", 1, |row| row.completed_wait_mean_s, |_| None),
];

/// All tables: each arm after the first against the first, or the only arm alone.
pub fn tables(rows: &[Row], arms: &[ArmKind], tiers: &[u32], with_published: bool) -> String {
    let mut out = String::new();
    let first = arms.first().copied();
    let others: Vec<Option<ArmKind>> = arms.iter().skip(1).copied().map(Some).collect();
    let pairs = if others.is_empty() { vec![None] } else { others };
    for (from, to) in pairs.into_iter().filter_map(|to| Some((first?, to))) {
        let pair: Vec<ArmKind> = std::iter::once(from).chain(to).collect();
        let names: Vec<String> = pair.iter().map(|arm| arm.name()).collect();
        line(&mut out, format_args!("## {}\n", names.join(" → ")));
        table(&mut out, rows, &pair, tiers, &COLUMNS, with_published);
        table(&mut out, rows, &pair, tiers, &MORE_COLUMNS, false);
    }
    if with_published {
        fidelity(&mut out, rows, arms, tiers);
    }
    out
}

fn table(out: &mut String, rows: &[Row], arms: &[ArmKind], tiers: &[u32], columns: &[Column], with_published: bool) {
    let titles: Vec<_> = columns.iter().map(|column| column.title).collect();
    line(out, format_args!("| sessions | {} |\n|---|{}", titles.join(" | "), "---|".repeat(titles.len())));
    for tier in tiers {
        let cell = |column: &Column| {
            let figures = arms.iter().map(|arm| Spread::of(rows, &arm.name(), *tier, column.figure));
            arrows(figures.map(|figure| figure.map(|spread| spread.show(column.decimals))))
        };
        let cells: Vec<_> = columns.iter().map(cell).collect();
        line(out, format_args!("| {tier} | {} |", cells.join(" | ")));
        if with_published {
            let cell = |column: &Column| {
                let row = |arm: &ArmKind| published(arm.published()?, *tier);
                let figures = arms.iter().map(|arm| row(arm).and_then(|row| (column.published)(&row)));
                arrows(figures.map(|figure| figure.map(|value| format!("{value:.0$}", column.decimals))))
            };
            let cells: Vec<_> = columns.iter().map(cell).collect();
            line(out, format_args!("| published | {} |", cells.join(" | ")));
        }
    }
    line(out, format_args!(""));
}

/// How far each arm is from the published arm that it stands for. Marked where that is further than was aimed at.
fn fidelity(out: &mut String, rows: &[Row], arms: &[ArmKind], tiers: &[u32]) {
    line(out, format_args!("## Against the published figures\n"));
    line(
        out,
        format_args!(
            "Prefix hits by vLLM's counters in points, output in percent; `!` is off by more than 10 points or 30 %.\n"
        ),
    );
    line(out, format_args!("| arm | published | sessions | hits | output |\n|---|---|---|---|---|"));
    for (arm, of) in arms.iter().filter_map(|arm| Some((arm, arm.published()?))) {
        for published in tiers.iter().filter_map(|tier| published(of, *tier)) {
            let mean = |figure| Spread::of(rows, &arm.name(), published.sessions, figure).map(|it| it.mean);
            let hits = mean(|row| row.prefix_hit_ratio_vllm).map(|ratio| 100.0 * (ratio - published.prefix_hit_ratio));
            let output = mean(|row| Some(row.output_tokens_per_min))
                .map(|output| 100.0 * (output / published.output_tokens_per_min - 1.0));
            let (hits, output) = (difference(hits, 1, 10.0), difference(output, 0, 30.0));
            let (arm, of, sessions) = (arm.name(), of.name(), published.sessions);
            line(out, format_args!("| {arm} | {of} | {sessions} | {hits} | {output} |"));
        }
    }
}

/// A difference with its sign, marked where it is over the limit; a live run has no counters of vLLM 0.26 to differ.
fn difference(value: Option<f64>, decimals: usize, limit: f64) -> String {
    let mark = |value: f64| if value.abs() > limit { " !" } else { "" };
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:+.decimals$}{}", mark(value)))
}

/// Joins what two arms say; where neither says anything, nothing.
fn arrows(figures: impl Iterator<Item = Option<String>>) -> String {
    let figures: Vec<_> = figures.collect();
    if figures.iter().all(Option::is_none) {
        return String::new();
    }
    figures.into_iter().map(|figure| figure.unwrap_or_else(|| "–".to_owned())).collect::<Vec<_>>().join(" → ")
}

fn line(out: &mut String, text: std::fmt::Arguments) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}
