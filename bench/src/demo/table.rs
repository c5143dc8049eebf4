use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;

use super::conversation::{Dialect, Turn};

/// Where each turn of each conversation went, and what of it was cached.
pub fn conversations(rows: &[(Dialect, &[Turn])], replicas: &[SocketAddr]) -> String {
    let turns = rows.iter().map(|(_, turns)| turns.len()).max().unwrap_or(0);
    let mut out = String::new();
    let heads: String = (1..=turns).map(|turn| format!("  {:10}", format!("turn {turn}"))).collect();
    line(&mut out, format_args!("conversation  client     {heads}  prompt tokens  cached"));
    for (index, (dialect, turns)) in rows.iter().enumerate() {
        let client = match dialect {
            Dialect::OpenAi => "chat",
            Dialect::Anthropic => "messages",
        };
        let went: String =
            turns.iter().map(|turn| format!("  {} {:8}", number(&turn.replica, replicas), turn.decision)).collect();
        let (prompt, share) = tokens(turns.iter());
        line(&mut out, format_args!("{:>12}  {client:11}{went}  {prompt:>13}  {share:>5.1}%", index + 1));
    }
    let mut decisions: BTreeMap<&str, usize> = BTreeMap::new();
    rows.iter().flat_map(|(_, turns)| *turns).for_each(|turn| *decisions.entry(&turn.decision).or_default() += 1);
    let counts: Vec<String> = decisions.iter().map(|(decision, count)| format!("{decision} {count}")).collect();
    let (_, share) = tokens(rows.iter().flat_map(|(_, turns)| *turns));
    line(&mut out, format_args!("\ndecisions: {};  cached share of all prompt tokens: {share:.1}%", counts.join(", ")));
    out
}

fn line(out: &mut String, text: std::fmt::Arguments) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

/// Which of the replicas this is, from 1; 0 for one that is not among them.
fn number(replica: &str, replicas: &[SocketAddr]) -> usize {
    replicas.iter().position(|address| address.to_string() == replica).map_or(0, |index| index + 1)
}

/// Prompt tokens, and the share of them that was cached, in percent.
fn tokens<'a>(turns: impl Iterator<Item = &'a Turn>) -> (u64, f64) {
    let (prompt, cached) =
        turns.fold((0, 0), |(prompt, cached), turn| (prompt + turn.prompt_tokens, cached + turn.cached_tokens));
    (prompt, 100.0 * cached as f64 / prompt.max(1) as f64)
}
