//! `homing explain`: where a saved request would go now, and why.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::Admin;
use super::text;
use crate::config::settings;

/// Shows it, as lines or as the JSON of `/explain`.
///
/// # Errors
/// If the file cannot be read, or the balancer does not say it.
pub fn explain(admin: &Admin, file: &Path, json: bool) -> Result<(), String> {
    let unreadable = |error: String| format!("homing: {}: {error}", file.display());
    // The largest body that can be configured, and the largest head.
    let most = settings::BODY.max.0 + settings::HEADER_BYTES.max.0;
    let mut saved = Vec::new();
    let read = File::open(file).and_then(|file| file.take(most + 1).read_to_end(&mut saved));
    read.map_err(|error| unreadable(error.to_string()))?;
    if saved.len() as u64 > most {
        return Err(unreadable("larger than any request may be".into()));
    }
    let explained = admin.post("/explain", &saved)?;
    text::write(&if json { format!("{explained:#}\n") } else { lines(&explained) });
    Ok(())
}

fn lines(explained: &Value) -> String {
    let word = |name: &str| explained[name].as_str().unwrap_or("-");
    let source = match explained["source"].as_str() {
        Some(source) => format!("{}, told by {source}", word("conversation")),
        None => "none told".to_owned(),
    };
    let mut lines = vec![
        ("request", format!("{} {}", word("method"), word("path"))),
        ("caller", word("caller").to_owned()),
        ("model", word("model").to_owned()),
        ("conversation", source),
    ];
    match word("outcome") {
        "goes" => lines.extend([
            ("goes to", word("replica").to_owned()),
            ("decision", word("decision").to_owned()),
            ("because", word("reason").to_owned()),
        ]),
        "follows" => lines.extend([
            ("goes to", word("replica").to_owned()),
            ("because", "it follows its conversation, and is not counted".to_owned()),
        ]),
        "waits" => lines.extend([
            ("waits", "for room in a cache".to_owned()),
            ("because", format!("no replica has room for it; {} wait already", explained["parked"])),
        ]),
        "refused" => lines.extend([
            ("refused", format!("{} {}", explained["status"], word("code"))),
            ("because", word("message").to_owned()),
        ]),
        _ => lines.push(("answered", "by Homing itself".to_owned())),
    }
    lines.iter().map(|(name, value)| format!("{name:14}{value}\n")).collect()
}
