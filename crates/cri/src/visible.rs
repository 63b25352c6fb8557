//! Makes text from elsewhere safe to display: a name, a runtime's message or a process name must not move the cursor, set
//! colours, change the direction of a line or hide a part of itself.

/// Replaces invisible characters.
const HIDDEN: char = '\u{fffd}';

/// The text with a space for each control character, and U+FFFD for each character that is invisible or changes the
/// direction of the text.
pub fn visible(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            c if c.is_control() => ' ',
            c if is_hidden(c) => HIDDEN,
            c => c,
        })
        .collect()
}

/// The same in ASCII. A terminal without UTF-8 may interpret bytes above 0x7f as controls.
pub fn visible_ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            c if c.is_control() => ' ',
            c if c.is_ascii() => c,
            '…' => '~',
            _ => '?',
        })
        .collect()
}

/// Directional formatting characters (UAX #9), line separators, and invisible characters (general category Cf, and others
/// without a glyph).
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_controls_turns_or_hides() {
        assert_eq!(visible("a\u{1b}[2J\nb\u{9b}c"), "a [2J b c");
        assert_eq!(
            visible("web\u{202e}dab\u{200b}\u{feff}"),
            "web\u{fffd}dab\u{fffd}\u{fffd}"
        );
        assert_eq!(visible("größe-日本"), "größe-日本");
    }

    #[test]
    fn ascii_is_ascii() {
        assert_eq!(
            visible_ascii("a\u{1b}[31m größe…\u{202e}"),
            "a [31m gr??e~?"
        );
        let all: String = (0..0x1_1000).filter_map(char::from_u32).collect();
        let shown = visible_ascii(&all);
        assert!(shown.bytes().all(|b| (0x20..0x7f).contains(&b)));
    }
}
