//! The parts of a list or map, found in its text.

/// The items of a list, or the names and values of a map, one after the other. The text must be valid JSON.
#[derive(Clone, Copy, Default)]
pub(super) struct Parts<'de> {
    /// The rest, up to the end of the list or map or beyond it.
    rest: &'de str,
    /// Where the document has it.
    offset: usize,
}

impl<'de> Parts<'de> {
    pub(super) fn new(rest: &'de str, offset: usize) -> Self {
        Self { rest, offset }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        self.offset += bytes;
    }
}

impl<'de> Iterator for Parts<'de> {
    type Item = (&'de str, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let before = self
            .rest
            .bytes()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':'))
            .count();
        self.skip(before);
        let length = length(self.rest.as_bytes());
        if length == 0 {
            self.rest = "";
            return None;
        }
        let part = (&self.rest[..length], self.offset);
        self.skip(length);
        Some(part)
    }
}

/// Bytes of the value at the beginning; 0 if the list or map ends there.
fn length(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at += string(&text[at..]),
            b'[' | b'{' => {
                depth += 1;
                at += 1;
            }
            b']' | b'}' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            b']' | b'}' => return at,
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            _ => {
                at += 1;
                if depth == 0 {
                    continue;
                }
            }
        }
        if depth == 0 {
            return at.min(text.len());
        }
    }
    text.len()
}

/// Bytes of a text with its quotes.
fn string(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}
