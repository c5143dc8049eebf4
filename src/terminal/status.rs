//! `homing status`: a table a model, a row a replica.

use std::io::{IsTerminal, stdout};
use std::time::{Duration, UNIX_EPOCH};

use comfy_table::{Cell, CellAlignment, Color};
use serde::Deserialize;
use serde_json::Value;

use super::Admin;
use super::text::{self, WIDTH, coloured, in_colour, shortened, wrapped};
use crate::figures::{DASH, count, date_time, percent, seconds, short};

/// How often it is shown anew.
const EVERY: Duration = Duration::from_secs(2);

/// The last second of the year 9999, in seconds since 1970: later ones have no date.
const SINCE_MAX: u64 = 253_402_300_799;

/// The least that is left of a replica's name.
const NAME_MIN: usize = 12;

const COLUMNS: [&str; 10] =
    ["Replica", "State", "In\nflight", "Runs", "Waits", "KV", "Held", "Conv.", "Sticky", "Spilled\nin"];

/// What `/routing` says, as far as it is shown.
#[derive(Deserialize)]
struct Routing {
    models: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    model: String,
    affinity: String,
    spill_threshold: u32,
    spill_threshold_source: String,
    conversations: u64,
    conversations_max: u64,
    since: u64,
    totals: Totals,
    admission: Admission,
    advice: Option<Advice>,
    replicas: Vec<Replica>,
}

#[derive(Deserialize)]
struct Totals {
    in_flight: u64,
    placed: u64,
    sticky: u64,
    spilled: u64,
    client_pinned: u64,
    balanced: u64,
    unrouted: u64,
}

#[derive(Deserialize)]
struct Admission {
    why: String,
    parked: u64,
    longest_wait_s: f64,
}

#[derive(Deserialize)]
struct Advice {
    sentence: String,
}

#[derive(Deserialize)]
struct Replica {
    replica: String,
    state: String,
    /// Why it is not up.
    state_why: Option<String>,
    in_flight: u64,
    sticky: u64,
    spilled_in: u64,
    conversations: u64,
    held_tokens: u64,
    capacity_tokens: Option<u64>,
    running: Option<u64>,
    waiting: Option<u64>,
    kv_cache_usage: Option<f64>,
}

/// Shows how the balancer stands, as tables or as the JSON of `/routing`.
///
/// # Errors
/// If the balancer does not say it.
pub fn show(admin: &Admin, json: bool) -> Result<(), String> {
    let routing = admin.get("/routing")?;
    text::write(&if json { format!("{routing:#}\n") } else { tables(routing)? });
    Ok(())
}

/// Shows it every two seconds, until the process ends. A balancer that does not answer meanwhile is waited for.
///
/// # Errors
/// If it does not answer at first.
pub fn watch(admin: &Admin) -> Result<(), String> {
    let mut shown = tables(admin.get("/routing")?)?;
    loop {
        // Over what stood there, line by line: so nothing flickers.
        text::write(&match stdout().is_terminal() {
            true => format!("\x1b[H{}\x1b[J", shown.replace('\n', "\x1b[K\n")),
            false => shown + "\n",
        });
        std::thread::sleep(EVERY);
        shown = admin.get("/routing").and_then(tables).unwrap_or_else(|error| error + "\n");
    }
}

fn tables(routing: Value) -> Result<String, String> {
    let routing: Routing = serde_json::from_value(routing)
        .map_err(|error| format!("homing: what answers is no Homing of this version: {error}"))?;
    let coloured = coloured();
    let models: Vec<String> = routing.models.iter().map(|model| model.table(coloured)).collect();
    Ok(models.join("\n"))
}

impl Model {
    fn table(&self, coloured: bool) -> String {
        let Totals { in_flight, placed, sticky, spilled, client_pinned, balanced, unrouted } = self.totals;
        let parked = match self.admission.parked {
            0 => "0".to_owned(),
            parked => format!("{}, for {} at most", count(parked), seconds(self.admission.longest_wait_s)),
        };
        let head = format!(
            "affinity {}, spill threshold {} ({}), in flight {}, sticky {}, parked {parked}",
            self.affinity,
            self.spill_threshold,
            self.spill_threshold_source,
            count(in_flight),
            percent(sticky, sticky + spilled),
        );
        let requests = placed + sticky + spilled + client_pinned + balanced + unrouted;
        let since = date_time(UNIX_EPOCH + Duration::from_secs(self.since.min(SINCE_MAX)));
        let foot = format!(
            "requests {} since {since} UTC, conversations {} of at most {}",
            count(requests),
            count(self.conversations),
            count(self.conversations_max)
        );
        let mut out = shortened(&self.model, WIDTH) + "\n" + &wrapped(&head);
        out += &wrapped(&format!("admission {}", self.admission.why));
        out += &self.rows(coloured);
        for (replica, why) in self.replicas.iter().filter_map(|replica| Some((replica, replica.state_why.as_ref()?))) {
            out += &wrapped(&format!("{} is {}: {why}", replica.replica, replica.state));
        }
        if let Some(advice) = &self.advice {
            out += &wrapped(&format!("Likely wrong: {}.", advice.sentence));
        }
        out + &wrapped(&foot)
    }

    /// The replicas, their names shortened where a line would be too long.
    fn rows(&self, coloured: bool) -> String {
        let whole = self.rows_of(usize::MAX, false);
        let over = whole.lines().map(|line| line.chars().count()).max().unwrap_or(0).saturating_sub(WIDTH);
        let longest = self.replicas.iter().map(|replica| replica.replica.chars().count()).max().unwrap_or(0);
        self.rows_of(longest.saturating_sub(over).max(NAME_MIN), coloured)
    }

    fn rows_of(&self, name_max: usize, coloured: bool) -> String {
        let mut table = text::table();
        table.set_header(COLUMNS);
        for replica in &self.replicas {
            let colour = match replica.state.as_str() {
                "up" => Color::Green,
                "out" => Color::Red,
                _ => Color::Yellow,
            };
            let name = Cell::new(shortened(&replica.replica, name_max));
            let mut row = vec![name, in_colour(&replica.state, colour, coloured)];
            row.extend(replica.figures().map(Cell::new));
            table.add_row(row);
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            let side = if index < 2 { CellAlignment::Left } else { CellAlignment::Right };
            column.set_cell_alignment(side);
            column.set_padding((0, 1));
        }
        text::lines(&table)
    }
}

impl Replica {
    fn figures(&self) -> [String; 8] {
        let known = |value: Option<u64>| value.map_or_else(|| DASH.to_owned(), |value| short(value as f64));
        let share = |part: f64| format!("{:.0}%", (100.0 * part).min(999.0));
        let held = match self.capacity_tokens {
            Some(capacity) => share(self.held_tokens as f64 / capacity.max(1) as f64),
            None => short(self.held_tokens as f64),
        };
        [
            short(self.in_flight as f64),
            known(self.running),
            known(self.waiting),
            self.kv_cache_usage.map_or_else(|| DASH.to_owned(), share),
            held,
            short(self.conversations as f64),
            short(self.sticky as f64),
            short(self.spilled_in as f64),
        ]
    }
}
