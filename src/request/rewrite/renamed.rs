use memchr::memchr2;

use super::model_field::ModelField;
use crate::request::json;
use crate::request::usage::BYTE_ORDER_MARK;

/// What an event's data begins with.
const DATA: &[u8] = b"data:";

/// Puts the name that the client used into an answer as it passes, in place of the engine's.
pub struct Renamed {
    /// As a JSON string.
    name: Vec<u8>,
    field: ModelField,
    /// None where the answer is one JSON value.
    line: Option<Line>,
    /// Whether the last byte was a CR: an LF after it ends no line of its own.
    after_cr: bool,
}

/// How the line of a stream that has begun goes on.
#[derive(Clone, Copy)]
enum Line {
    /// It is the first, and so many bytes of it are those of [`BYTE_ORDER_MARK`].
    First(usize),
    /// So many bytes of it are those of [`DATA`].
    Start(usize),
    Data,
    /// Another field or a comment, or nothing so far.
    Other {
        blank: bool,
    },
}

impl Renamed {
    /// For an answer that is JSON.
    pub fn whole(name: &str) -> Renamed {
        Renamed { name: json::quoted(name).into_bytes(), field: ModelField::default(), line: None, after_cr: false }
    }

    /// For a stream of events.
    pub fn stream(name: &str) -> Renamed {
        Renamed { line: Some(Line::First(0)), ..Renamed::whole(name) }
    }

    /// Takes the next piece of the answer, and writes what the client gets to `out`.
    pub fn feed(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        let Some(mut line) = self.line else {
            return self.field.feed(piece, &self.name, out);
        };
        while let Some(first) = piece.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                out.push(*first);
                piece = &piece[1..];
                continue;
            }
            match line {
                Line::First(0 | MARK_LEN) if *first != BYTE_ORDER_MARK[0] => line = Line::Start(0),
                Line::First(matched) if BYTE_ORDER_MARK.get(matched) == Some(first) => {
                    out.push(*first);
                    piece = &piece[1..];
                    line = Line::First(matched + 1);
                }
                Line::First(_) => line = Line::Other { blank: false },
                Line::Start(DATA_LEN) => line = Line::Data,
                Line::Start(matched) if *first == DATA[matched] => {
                    out.push(*first);
                    piece = &piece[1..];
                    line = Line::Start(matched + 1);
                }
                Line::Start(matched) => line = Line::Other { blank: matched == 0 },
                Line::Data | Line::Other { .. } => {
                    let end = memchr2(b'\n', b'\r', piece);
                    let (part, rest) = piece.split_at(end.unwrap_or(piece.len()));
                    line = self.pass(line, part, out);
                    piece = rest;
                    if let Some((end, rest)) = rest.split_first() {
                        out.push(*end);
                        self.after_cr = *end == b'\r';
                        piece = rest;
                        if matches!(line, Line::Other { blank: true }) {
                            self.field = ModelField::default();
                        }
                        line = Line::Start(0);
                    }
                }
            }
        }
        self.line = Some(line);
    }

    fn pass(&mut self, line: Line, part: &[u8], out: &mut Vec<u8>) -> Line {
        match line {
            Line::Other { blank } => {
                out.extend_from_slice(part);
                Line::Other { blank: blank && part.is_empty() }
            }
            data => {
                self.field.feed(part, &self.name, out);
                data
            }
        }
    }
}

const DATA_LEN: usize = DATA.len();
const MARK_LEN: usize = BYTE_ORDER_MARK.len();
