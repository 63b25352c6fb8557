//! Extracts the error message from the output of an OCI runtime. runc writes logrus lines, as text or JSON, with warnings
//! before the error; crun writes plain lines.

use serde::Deserialize;

/// The maximum length of a message in bytes.
const MAX_REASON_BYTES: usize = 1024;

/// A line of logrus.
#[derive(Debug, Default, Deserialize)]
struct Line {
    level: String,
    msg: String,
}

/// Returns the message of the last error (lines with `level` and `msg`), else the last plain line, else the last message that
/// is not a warning, else the last warning. One line, at most 1 KiB.
pub fn reason(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let (mut error, mut plain, mut other, mut warning) = (None, None, None, None);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match parse_line(line) {
            None if is_panic(plain) => {}
            None => plain = Some(line),
            Some(Line { level, msg }) => match &*level {
                "error" | "fatal" | "panic" => error = Some(msg),
                "warning" => warning = Some(msg),
                _ => other = Some(msg),
            },
        }
    }
    let message = error
        .or_else(|| plain.map(str::to_owned))
        .or(other)
        .or(warning)
        .unwrap_or_else(|| "no error output".to_owned());
    let mut message = message.replace(['\n', '\r'], " ");
    message.truncate(message.floor_char_boundary(MAX_REASON_BYTES));
    message
}

/// Returns whether a plain line begins a stack trace, whose first line is more informative than its last.
fn is_panic(plain: Option<&str>) -> bool {
    plain.is_some_and(|line| line.starts_with("panic: ") || line.starts_with("fatal error: "))
}

fn parse_line(line: &str) -> Option<Line> {
    if line.starts_with('{') {
        serde_json::from_str(line).ok()
    } else {
        fields(line)
    }
}

/// Parses a line of `key=value` pairs, where values with blanks are quoted; `None` for any other line.
fn fields(mut rest: &str) -> Option<Line> {
    let (mut level, mut msg) = (None, None);
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        if key.is_empty() || key.contains([' ', '"']) {
            return None;
        }
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => match after.split_once(' ') {
                Some((value, after)) => (value.to_owned(), after),
                None => (after.to_owned(), ""),
            },
        };
        match key {
            "level" => level = Some(value),
            "msg" => msg = Some(value),
            _ => {}
        }
        rest = after.trim_start();
    }
    Some(Line {
        level: level?,
        msg: msg?,
    })
}

/// Splits text after its closing quote, and decodes Go's escapes (`%q`) in the first part.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => {
                let digits = match chars.next()? {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    'n' => {
                        value.push('\n');
                        continue;
                    }
                    'r' => {
                        value.push('\r');
                        continue;
                    }
                    't' => {
                        value.push('\t');
                        continue;
                    }
                    // Control characters.
                    'a' | 'b' | 'f' | 'v' => {
                        value.push(' ');
                        continue;
                    }
                    other => {
                        value.push(other);
                        continue;
                    }
                };
                let (number, rest) = chars.as_str().split_at_checked(digits)?;
                let number = u32::from_str_radix(number, 16).ok()?;
                // A single byte above 127 is not valid UTF-8.
                let is_text = digits > 2 || number < 128;
                let char = char::from_u32(number).filter(|_| is_text);
                value.push(char.unwrap_or(char::REPLACEMENT_CHARACTER));
                chars = rest.chars();
            }
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests;
