use memchr::memchr2;

/// The longest key that matters, in bytes.
const KEY_MAX: usize = "response".len();

/// Puts another name into the `model` of a JSON object as it passes, and into that of its `response` or `message`: where the
/// answers and events of each dialect have it.
///
/// It knows no more of JSON than nesting and strings, so what is no JSON passes as it is, unless it has such a field all the same.
#[derive(Default)]
pub struct ModelField {
    /// Containers open now.
    depth: usize,
    /// Whether the outermost is an object.
    in_object: bool,
    /// Whether the second is the object in which a model may stand too.
    in_inner: bool,
    /// Whether the next string is a key.
    key_next: bool,
    /// The last key of an object that matters; nothing where it is too long to matter.
    key: Vec<u8>,
    string: Option<Text>,
    escaped: bool,
}

/// A string that has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Key,
    /// The name that gives way.
    Model,
    Other,
}

impl ModelField {
    /// Takes the next piece, and writes it to `out`. `name` is a JSON string, in its quotes.
    pub fn feed(&mut self, mut piece: &[u8], name: &[u8], out: &mut Vec<u8>) {
        while !piece.is_empty() {
            piece = match self.string {
                Some(text) => self.in_string(text, piece, out),
                None => self.between(piece, name, out),
            };
        }
    }

    /// Passes what stands before the next string. Returns what is left.
    fn between<'a>(&mut self, piece: &'a [u8], name: &[u8], out: &mut Vec<u8>) -> &'a [u8] {
        for (at, byte) in piece.iter().enumerate() {
            match byte {
                b'"' => {
                    let (before, rest) = piece.split_at(at);
                    out.extend_from_slice(before);
                    self.begin_string(name, out);
                    return &rest[1..];
                }
                b'{' | b'[' => self.open(*byte == b'{'),
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.key_next = false;
                }
                b',' => self.key_next = self.matters(),
                b':' => self.key_next = false,
                _ => {}
            }
        }
        out.extend_from_slice(piece);
        &[]
    }

    /// Whether what stands directly in the innermost container may be a model.
    fn matters(&self) -> bool {
        (self.depth == 1 && self.in_object) || (self.depth == 2 && self.in_inner)
    }

    fn open(&mut self, object: bool) {
        self.depth += 1;
        match self.depth {
            1 => self.in_object = object,
            2 => self.in_inner = object && self.in_object && matches!(self.key.as_slice(), b"response" | b"message"),
            _ => {}
        }
        self.key_next = self.matters();
    }

    fn begin_string(&mut self, name: &[u8], out: &mut Vec<u8>) {
        let text = match self.key_next {
            true => Text::Key,
            false if self.matters() && self.key == b"model" => Text::Model,
            false => Text::Other,
        };
        match text {
            Text::Model => out.extend_from_slice(name),
            _ => out.push(b'"'),
        }
        if text == Text::Key {
            self.key.clear();
        }
        self.string = Some(text);
    }

    /// Passes a string up to its end, or leaves it out. Returns what is left.
    fn in_string<'a>(&mut self, text: Text, piece: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let mut end = piece.len();
        let mut at = 0;
        while at < piece.len() {
            if std::mem::take(&mut self.escaped) {
                at += 1;
                continue;
            }
            let Some(found) = memchr2(b'"', b'\\', &piece[at..]) else { break };
            at += found + 1;
            if piece[at - 1] == b'"' {
                end = at;
                self.string = None;
                break;
            }
            self.escaped = true;
        }
        let (passed, rest) = piece.split_at(end);
        match text {
            Text::Model => {}
            Text::Key => {
                let ended = usize::from(self.string.is_none());
                self.extend_key(&passed[..passed.len() - ended]);
                out.extend_from_slice(passed);
            }
            Text::Other => out.extend_from_slice(passed),
        }
        if text != Text::Key && self.string.is_none() {
            self.key_next = false;
        }
        rest
    }

    fn extend_key(&mut self, part: &[u8]) {
        let room = (KEY_MAX + 1).saturating_sub(self.key.len());
        self.key.extend_from_slice(&part[..part.len().min(room)]);
    }
}
