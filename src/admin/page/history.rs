//! Tokens per second: a model's last hour or day as a chart and as a table.

use std::time::{SystemTime, UNIX_EPOCH};

use maud::{Markup, PreEscaped, html};

use super::chart::Picture;
use super::figures::{count, or_dash, percent, seconds, short, time_of_day};
use crate::admin::query::Query;
use crate::fleet::Fleet;
use crate::history::{Bucket, Span};

/// The width of the picture where none is asked for, in CSS pixels.
const WIDTH: u32 = 960;

const COLUMNS: [&str; 10] = [
    "Until",
    "Requests",
    "Cached",
    "Computed",
    "Unmeasured",
    "Completion",
    "First byte p50",
    "First byte p95",
    "Parked",
    "Waits, longest",
];

/// The model and the span to choose, and their picture and table.
pub fn section(fleet: &Fleet, query: &Query) -> Markup {
    let span = query.span().unwrap_or(Span::Hour);
    let asked = query.get("model");
    let named = fleet.models().iter().find(|model| asked.as_deref() == Some(model.label()));
    let Some(model) = named.or(fleet.models().first()) else { return html! {} };
    let width = query.get("width").and_then(|width| width.parse().ok()).unwrap_or(WIDTH);
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let until = until / span.step_s() * span.step_s();
    let kept: Vec<Bucket> = model.history.lock().buckets(span).copied().collect();
    let from = until.saturating_sub(span.length_s());
    let buckets: Vec<Bucket> = kept.into_iter().filter(|bucket| from < bucket.at && bucket.at <= until).collect();
    let label =
        format!("Tokens per second of {} over the last {}. The table below says the same.", model.label(), span.name());
    let picture = Picture { span, until, buckets: &buckets, width };
    let chart = picture.svg(&label, |bucket| hover(bucket, span)).unwrap_or_else(|error| {
        log::warn!("the chart cannot be drawn: {error}");
        String::new()
    });
    html! {
        form .filter data-part="history" aria-label="What the charts show" {
            label { "Model"
                select name="model" {
                    @for one in fleet.models() {
                        option value=(one.label()) selected[one.label() == model.label()] { (one.label()) }
                    }
                }
            }
            label { "Span"
                select name="span" {
                    @for one in [Span::Hour, Span::Day] {
                        option value=(one.name()) selected[one == span] { "last " (one.name()) }
                    }
                }
            }
        }
        (headline(&buckets, span))
        (legend())
        figure { (PreEscaped(chart)) }
        details {
            summary { "The numbers as a table" }
            (table(&buckets, span))
        }
    }
}

fn headline(buckets: &[Bucket], span: Span) -> Markup {
    let sum = |figure: fn(&Bucket) -> u64| buckets.iter().map(figure).sum::<u64>();
    let (cached, computed) = (sum(|bucket| bucket.cached_tokens), sum(|bucket| bucket.computed_tokens));
    html! {
        p .headline {
            strong { (percent(cached, cached + computed)) } " of the measured prompt tokens of the last " (span.name())
            " were cached: " (count(cached)) " of " (count(cached + computed)) ". "
            (count(sum(|bucket| bucket.requests))) " requests, "
            (count(sum(|bucket| bucket.completion_tokens))) " completion tokens, "
            (count(sum(|bucket| bucket.waits))) " waits for room."
        }
    }
}

fn legend() -> Markup {
    let names = [
        ("cached", "cached"),
        ("computed", "computed"),
        ("unmeasured", "unmeasured"),
        ("completion", "completion"),
        ("p50", "first byte p50"),
        ("p95", "first byte p95"),
        ("parked", "parked"),
    ];
    html! {
        ul .legend aria-label="Colours" {
            @for (class, name) in names { li { span .swatch .(class) {} (name) } }
        }
    }
}

/// What a bucket says under the pointer. It holds no text of anyone's.
fn hover(bucket: &Bucket, span: Span) -> String {
    let rate = |tokens: u64| short(tokens as f64 / span.step_s() as f64);
    let time = |value: Option<f32>| or_dash(value, |value| seconds(value.into()));
    format!(
        "{} to {} UTC\n{} requests\nprompt tokens/s: {} cached, {} computed, {} unmeasured ({} cached)\n\
         completion tokens/s: {}\nfirst byte: p50 {}, p95 {}\nparked {}; {} waits, longest {}",
        time_of_day(bucket.at.saturating_sub(span.step_s())),
        time_of_day(bucket.at),
        count(bucket.requests),
        rate(bucket.cached_tokens),
        rate(bucket.computed_tokens),
        rate(bucket.unmeasured_tokens),
        percent(bucket.cached_tokens, bucket.cached_tokens + bucket.computed_tokens),
        rate(bucket.completion_tokens),
        time(bucket.first_byte_p50_s),
        time(bucket.first_byte_p95_s),
        count(bucket.parked),
        count(bucket.waits),
        seconds(bucket.longest_wait_s.into()),
    )
}

fn table(buckets: &[Bucket], span: Span) -> Markup {
    html! {
        p .since { "Tokens in each " (span.step_s()) " s, the latest first. Stretches in which nothing happened are left out." }
        div .scroll .long tabindex="0" role="region" aria-label="The numbers of the charts" {
            table .numbers {
                thead { tr { @for column in COLUMNS { th scope="col" { (column) } } } }
                tbody {
                    @for bucket in buckets.iter().rev().filter(|bucket| !bucket.is_quiet()) { (row(bucket)) }
                }
            }
        }
    }
}

fn row(bucket: &Bucket) -> Markup {
    let time = |value: Option<f32>| or_dash(value, |value| seconds(value.into()));
    let waits = match bucket.waits {
        0 => "0".to_owned(),
        waits => format!("{}, {}", count(waits), seconds(bucket.longest_wait_s.into())),
    };
    let cells = [
        count(bucket.requests),
        count(bucket.cached_tokens),
        count(bucket.computed_tokens),
        count(bucket.unmeasured_tokens),
        count(bucket.completion_tokens),
        time(bucket.first_byte_p50_s),
        time(bucket.first_byte_p95_s),
        count(bucket.parked),
        waits,
    ];
    html! {
        tr {
            th scope="row" { (time_of_day(bucket.at)) }
            @for cell in cells { td { (cell) } }
        }
    }
}
