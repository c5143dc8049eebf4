//! Text for a terminal.

use std::io::{IsTerminal, Write, stdout};

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};

/// What every terminal can show in a line.
pub const WIDTH: usize = 80;

/// Writes to standard output. A reader that has gone (`head`) is no fault.
pub fn write(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Whether colours are wanted: by someone who looks and has not said otherwise (<https://no-color.org>).
pub fn coloured() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A table without lines.
pub fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// A cell in this colour, if colours are wanted.
pub fn in_colour(text: &str, colour: Color, coloured: bool) -> Cell {
    let cell = Cell::new(text);
    if coloured { cell.fg(colour) } else { cell }
}

/// A table's text, each line without the space at its end.
pub fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A name in at most so many characters: its beginning and its end tell it apart.
pub fn shortened(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let end = (most - 1) / 2;
    let start: String = name.chars().take(most - 1 - end).collect();
    start + "…" + &name.chars().skip(count - end).collect::<String>()
}

/// Text in lines of at most [`WIDTH`] characters, broken between words.
pub fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut line = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        match line {
            0 => {}
            _ if line + 1 + length > WIDTH => {
                out.push('\n');
                line = 0;
            }
            _ => {
                out.push(' ');
                line += 1;
            }
        }
        out.push_str(word);
        line += length;
    }
    out + "\n"
}
