//! Numbers as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 1,234,567.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// 850, 12.3k, 1.2M.
pub fn short(number: f64) -> String {
    match number {
        n if n >= 999_500.0 => format!("{:.1}M", n / 1e6),
        n if n >= 9_999.5 => format!("{:.0}k", n / 1e3),
        n if n >= 999.5 => format!("{:.1}k", n / 1e3),
        n if n >= 10.0 || n == n.round() => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

/// A share of 1 in percent; a dash where there is nothing to share.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => DASH.to_owned(),
        _ => share(part as f64 / whole as f64),
    }
}

/// 0.5 as 50.0 %. What is not quite all is never shown as all.
pub fn share(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    let tenths = if share < 1.0 { tenths.min(999.0) } else { tenths };
    format!("{:.1}\u{a0}%", tenths / 10.0)
}

/// 0.25 s, 12.5 s, 240 s.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.2}\u{a0}s"),
        s if s < 100.0 => format!("{s:.1}\u{a0}s"),
        s => format!("{s:.0}\u{a0}s"),
    }
}

/// What stands where nothing is known.
pub const DASH: &str = "–";

/// A value, or a dash.
pub fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| DASH.to_owned(), shown)
}

/// 2026-01-31 12:00:00.
pub fn date_time(at: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.replace('T', " ").trim_end_matches('Z').to_owned()
}

/// 12:00:00.
pub fn time_of_day(at: u64) -> String {
    date_time(UNIX_EPOCH + Duration::from_secs(at)).split_off(11)
}
