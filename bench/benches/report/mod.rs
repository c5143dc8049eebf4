//! Prints what was measured, as a table for people and a line of JSON for programs.

use serde::Serialize;

/// A figure.
#[derive(Serialize)]
pub struct Row {
    what: String,
    value: f64,
    unit: String,
    /// As a multiple of the first of its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// What the ratio, or else the value, is to be at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
}

impl Row {
    pub fn new(what: &str, value: f64, unit: String) -> Row {
        Row { what: what.to_owned(), value, unit, ratio: None, at_most: None }
    }

    pub fn ratio(self, ratio: f64) -> Row {
        Row { ratio: Some(ratio), ..self }
    }

    pub fn at_most(self, most: f64) -> Row {
        Row { at_most: Some(most), ..self }
    }
}

/// Prints the table, then all of it as one line of JSON.
pub fn print(title: &str, rows: &[Row]) {
    let width = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    println!("{title}");
    for row in rows {
        let Row { what, value, unit, ratio, at_most } = row;
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2} x"));
        let at_most = at_most.map_or(String::new(), |most| format!("at most {most}"));
        println!("  {what:width$}  {value:>10.2} {unit:<16} {ratio:>8}  {at_most}");
    }
    println!("{}", serde_json::json!({"title": title, "rows": rows}));
}
