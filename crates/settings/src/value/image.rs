//! Names of images and network interfaces.

use super::{UnparsedValue, ValueError, ValueKind, quoted};
use criscope_cri::image_pattern::ImagePattern;

/// Names of images, with `*` at either end as a wildcard.
#[derive(Clone, Copy, Debug)]
pub struct ImagePatternValue;

impl ValueKind for ImagePatternValue {
    type Value = ImagePattern;

    fn words(&self) -> String {
        "the name of an image such as \"registry.k8s.io/pause:*\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<ImagePattern, ValueError> {
        let text = raw.text(self)?;
        ImagePattern::new(text).ok_or_else(|| ValueError::ImagePattern(text.to_owned()))
    }

    fn show(&self, value: &ImagePattern) -> String {
        quoted(value.as_str().escape_default())
    }
}

/// The prefix of interface names. The kernel limits names to 15 bytes, and the number needs some of them.
#[derive(Clone, Copy, Debug)]
pub struct InterfacePrefix;

impl ValueKind for InterfacePrefix {
    type Value = String;

    fn words(&self) -> String {
        "1 to 12 letters, digits, `-` or `_`, such as \"eth\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let right = (1..=12).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if right {
            Ok(text.to_owned())
        } else {
            Err(ValueError::Type {
                expected: self.words(),
                found: raw.found(),
            })
        }
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_open_only_at_their_ends() {
        let matches = |pattern, name| {
            let pattern = ImagePatternValue
                .read(&UnparsedValue::Text(pattern))
                .expect("right");
            pattern.matches(name)
        };
        let name = "registry.k8s.io/pause:3.10";
        for pattern in [name, "registry.k8s.io/pause:*", "*pause*", "*:3.10"] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in ["registry.k8s.io/pause", "pause*", "*pause", "*nginx*"] {
            assert!(!matches(pattern, name), "{pattern}");
        }
        // The prefix and the suffix must not overlap.
        assert!(!matches("*aa*", "a"));
        for text in ["", "*", "**", "a*b", "a b", "***a"] {
            assert!(
                ImagePatternValue.read(&UnparsedValue::Text(text)).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn interfaces_leave_room_for_their_number() {
        assert!(
            InterfacePrefix
                .read(&UnparsedValue::Text("abcdefghijkl"))
                .is_ok()
        );
        for text in ["", "abcdefghijklm", "a/b", "a b", "a.b"] {
            assert!(
                InterfacePrefix.read(&UnparsedValue::Text(text)).is_err(),
                "{text}"
            );
        }
    }
}
