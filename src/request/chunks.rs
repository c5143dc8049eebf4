//! Where a chunked body ends (RFC 9112, section 7.1), read more strictly than most do: what two readers might take for
//! different sizes is an error.

use std::fmt;

/// Bytes of all extensions and trailers of one body, which nobody needs and everybody has to read.
const BESIDES_MAX: usize = 16 << 10;

/// Digits of a chunk's size: 2^60 bytes is more than any limit on bodies.
const DIGITS_MAX: u8 = 15;

/// Follows a chunked body, piece by piece.
#[derive(Clone, Debug)]
pub struct Chunks {
    at: At,
    /// Bytes of extensions and trailers so far.
    besides: usize,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size {
        digits: u8,
        size: u64,
    },
    Extension {
        size: u64,
    },
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataReturn,
    DataEnd,
    /// The first byte of a trailer, or of the line that ends them.
    Trailers,
    Trailer,
    TrailerEnd,
    LastEnd,
    Over,
}

/// The framing of a body breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidChunk;

impl fmt::Display for InvalidChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the chunks of a body break the rules of HTTP")
    }
}

impl std::error::Error for InvalidChunk {}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks { at: At::Size { digits: 0, size: 0 }, besides: 0 }
    }
}

impl Chunks {
    /// Whether the body has been read whole.
    pub fn is_over(&self) -> bool {
        self.at == At::Over
    }

    /// Goes on with what comes next on the connection. Returns how much of it belongs to the body.
    ///
    /// # Errors
    /// If the framing breaks the rules; nothing that follows means anything then.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, InvalidChunk> {
        let mut read = 0;
        while read < bytes.len() && !self.is_over() {
            if let At::Data { left } = self.at {
                let part = left.min((bytes.len() - read) as u64);
                read += part as usize;
                self.at = if part == left { At::DataReturn } else { At::Data { left: left - part } };
            } else {
                self.at = self.step(bytes[read])?;
                read += 1;
            }
        }
        Ok(read)
    }

    fn step(&mut self, byte: u8) -> Result<At, InvalidChunk> {
        Ok(match (self.at, byte) {
            (At::Size { digits, size }, _) if byte.is_ascii_hexdigit() && digits < DIGITS_MAX => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                At::Size { digits: digits + 1, size: 16 * size + u64::from(digit) }
            }
            (At::Size { digits: 1.., size }, b'\r') => At::SizeEnd { size },
            (At::Size { digits: 1.., size }, b';') => At::Extension { size },
            (At::Extension { size }, b'\r') => At::SizeEnd { size },
            (At::Extension { .. } | At::Trailer, _) if is_text(byte) => return self.besides(self.at),
            (At::SizeEnd { size: 0 }, b'\n') => At::Trailers,
            (At::SizeEnd { size }, b'\n') => At::Data { left: size },
            (At::DataReturn, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => At::Size { digits: 0, size: 0 },
            (At::Trailers, b'\r') => At::LastEnd,
            // A trailer begins with its name, not with a space that would continue the line before.
            (At::Trailers, _) if byte.is_ascii_graphic() => return self.besides(At::Trailer),
            (At::Trailer, b'\r') => At::TrailerEnd,
            (At::TrailerEnd, b'\n') => At::Trailers,
            (At::LastEnd, b'\n') => At::Over,
            _ => return Err(InvalidChunk),
        })
    }

    fn besides(&mut self, next: At) -> Result<At, InvalidChunk> {
        self.besides += 1;
        if self.besides > BESIDES_MAX { Err(InvalidChunk) } else { Ok(next) }
    }
}

/// What may stand in a line: all but control characters.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}
