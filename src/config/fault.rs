//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in the file. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    pub const START: Position = Position { line: 1, column: 1 };

    /// The place that comes after `before`, which is the text from the start of the file.
    pub(super) fn after(before: &str) -> Position {
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Position { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// One thing that is wrong. `at` is missing only where no text could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: Option<Position>,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{at}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Everything that is wrong with one file, in the order of its lines; never empty.
///
/// Shown with one fault a line, each as `PATH: line N, column M: what was expected`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    path: PathBuf,
    faults: Vec<Fault>,
}

impl Faults {
    pub(super) fn new(path: &Path, mut faults: Vec<Fault>) -> Faults {
        faults.sort_by_key(|fault| fault.at);
        Faults { path: path.to_owned(), faults }
    }

    pub(super) fn one(path: &Path, at: Option<Position>, message: impl Into<String>) -> Faults {
        let fault = Fault { at, message: message.into() };
        Faults::new(path, vec![fault])
    }

    /// In the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter()
    }

    /// All of them on one line, for a log or an error at start.
    pub fn sentence(&self) -> String {
        let faults: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        format!("{}: {}", self.path.display(), faults.join("; "))
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{}: {fault}", self.path.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
