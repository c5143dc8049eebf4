//! Reads JSON text (RFC 8259) from front to back, and says where its values stand.
//!
//! It exists because of long prompts: a conversation is one string of a hundred kilobytes after another, and all that matters of
//! each is where it ends. Libraries look at every byte of it in turn, or at eight at once. The grammar is checked whole, but for
//! control characters and broken UTF-8 in strings.

use std::ops::Range;

use memchr::memchr2;

/// In code, escapes stand close together: so many bytes are looked at one by one before a search begins, which is quick over long
/// texts and slow to start.
const NEAR: usize = 16;

/// See the [module](self). Every method is None where the text breaks the grammar, and nothing is to be read on then.
pub struct Reader<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(json: &'a [u8]) -> Reader<'a> {
        Reader { json, at: 0 }
    }

    /// Goes into the list or object that `bracket` begins.
    pub fn enter(&mut self, bracket: u8) -> Option<()> {
        (self.token()? == bracket).then_some(())
    }

    /// Leaves a list or object that has been entered, if it is empty.
    pub fn leave_if(&mut self, bracket: u8) -> bool {
        self.skip_space();
        let leaves = self.json.get(self.at) == Some(&bracket);
        self.at += usize::from(leaves);
        leaves
    }

    /// Goes on behind an element or a field. Whether another follows; if not, the list or object that `bracket` ends is left.
    pub fn goes_on(&mut self, bracket: u8) -> Option<bool> {
        match self.token()? {
            b',' => Some(true),
            end => (end == bracket).then_some(false),
        }
    }

    /// Whether nothing but space follows.
    pub fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.json.len()
    }

    /// Goes behind a key and its colon. Where the key stands, quotes included.
    pub fn key(&mut self) -> Option<Range<usize>> {
        self.enter(b'"')?;
        let start = self.at - 1;
        self.end_string()?;
        let end = self.at;
        self.enter(b':')?;
        Some(start..end)
    }

    /// Goes behind a value, with all that is in it. Where it stands.
    pub fn value(&mut self) -> Option<Range<usize>> {
        self.skip_space();
        let start = self.at;
        // What closes the lists and objects around the place that has been read.
        let mut around = Vec::new();
        loop {
            if around.last() == Some(&b'}') {
                self.key()?;
            }
            if let Some(bracket) = self.enter_or_pass()? {
                let is_empty = self.leave_if(bracket);
                if !is_empty {
                    around.push(bracket);
                    continue;
                }
            }
            // A value has ended, and with it perhaps some of those around it.
            loop {
                let Some(bracket) = around.last() else { return Some(start..self.at) };
                let another = self.goes_on(*bracket)?;
                if another {
                    break;
                }
                around.pop();
            }
        }
    }

    /// Goes into a list or an object, or behind any other value. What closes the one that it is in then.
    fn enter_or_pass(&mut self) -> Option<Option<u8>> {
        match self.token()? {
            b'{' => return Some(Some(b'}')),
            b'[' => return Some(Some(b']')),
            b'"' => self.end_string()?,
            b't' => self.rest(b"rue")?,
            b'f' => self.rest(b"alse")?,
            b'n' => self.rest(b"ull")?,
            b'-' | b'0'..=b'9' => self.end_number()?,
            _ => return None,
        }
        Some(None)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.json.get(self.at) {
            self.at += 1;
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.json.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// The next byte that is no space.
    fn token(&mut self) -> Option<u8> {
        self.skip_space();
        self.byte()
    }

    fn rest(&mut self, rest: &[u8]) -> Option<()> {
        self.json[self.at..].starts_with(rest).then_some(())?;
        self.at += rest.len();
        Some(())
    }

    /// Goes behind a string whose first quote has been read.
    fn end_string(&mut self) -> Option<()> {
        loop {
            self.skip_plain()?;
            if self.byte()? == b'"' {
                return Some(());
            }
            match self.byte()? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' => {
                    let digits = self.json.get(self.at..self.at + 4)?;
                    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                    self.at += 4;
                }
                _ => return None,
            }
        }
    }

    /// Goes to the next quote or backslash.
    fn skip_plain(&mut self) -> Option<()> {
        let rest = &self.json[self.at..];
        let (near, far) = rest.split_at(rest.len().min(NEAR));
        self.at += match near.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
            Some(plain) => plain,
            None => near.len() + memchr2(b'"', b'\\', far)?,
        };
        Some(())
    }

    /// Goes behind a number whose first byte has been read.
    fn end_number(&mut self) -> Option<()> {
        let first = match self.json[self.at - 1] {
            b'-' => self.byte()?,
            digit => digit,
        };
        match first {
            b'0' => {}
            b'1'..=b'9' => self.skip_digits(),
            _ => return None,
        }
        if self.json.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.json.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.json.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// One digit or more.
    fn digits(&mut self) -> Option<()> {
        self.byte()?.is_ascii_digit().then_some(())?;
        self.skip_digits();
        Some(())
    }

    fn skip_digits(&mut self) {
        while self.json.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }
}
