//! Arrays, texts, and a keyword for no value.

use super::{UnparsedValue, ValueError, ValueKind, quoted_text};

/// An array of values of one kind.
#[derive(Clone, Copy, Debug)]
pub struct ListOf<K> {
    /// The kind of its elements.
    pub of: K,
    /// The accepted values.
    pub words: &'static str,
}

impl<K: ValueKind> ValueKind for ListOf<K> {
    type Value = Vec<K::Value>;

    fn words(&self) -> String {
        self.words.to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Self::Value, ValueError> {
        let UnparsedValue::List(entries) = raw else {
            return Err(ValueError::Type {
                expected: self.words(),
                found: raw.found(),
            });
        };
        let mut values = Vec::new();
        let mut wrong = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            match self.of.read(&UnparsedValue::new(entry.get_ref())) {
                Ok(value) => values.push(value),
                Err(error) => wrong.push((i + 1, error)),
            }
        }
        if wrong.is_empty() {
            Ok(values)
        } else {
            Err(ValueError::Entries(wrong))
        }
    }

    fn show(&self, value: &Self::Value) -> String {
        let entries: Vec<_> = value.iter().map(|entry| self.of.show(entry)).collect();
        format!("[{}]", entries.join(", "))
    }
}

/// The description of a list of directories.
pub const DIRECTORIES_DESCRIPTION: &str = "an array of absolute paths of directories";

/// A text of visible characters and spaces.
#[derive(Clone, Copy, Debug)]
pub struct VisibleText;

impl ValueKind for VisibleText {
    type Value = String;

    fn words(&self) -> String {
        "a string".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        if text.is_empty() || text.contains(|c: char| c.is_control()) {
            return Err(ValueError::Text(text.to_owned()));
        }
        Ok(text.to_owned())
    }

    fn show(&self, value: &String) -> String {
        quoted_text(value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::DirectoryPath;
    use super::super::tests::read_toml as read;
    use super::*;

    const DIRS: ListOf<DirectoryPath> = ListOf {
        of: DirectoryPath,
        words: "an array of paths",
    };

    #[test]
    fn every_wrong_entry_of_a_list_is_told() {
        let paths = read(&DIRS, r#"["/a", "/b c"]"#).expect("right");
        assert_eq!(DIRS.show(&paths), r#"["/a", "/b c"]"#);
        assert_eq!(read(&DIRS, "[]"), Ok(Vec::new()));
        assert_eq!(
            read(&DIRS, r#"["a", "/b", 3]"#),
            Err("entry 1: \"a\" is not an absolute path; entry 3: expected the absolute path of a directory, found 3".to_owned())
        );
        assert_eq!(
            read(&DIRS, r#""/a""#),
            Err("expected an array of paths, found \"/a\"".to_owned())
        );
    }

    #[test]
    fn texts_are_written_as_they_are_read() {
        let text = read(&VisibleText, r#""a \"b\" \\ ü""#).expect("right");
        assert_eq!(text, r#"a "b" \ ü"#);
        assert_eq!(VisibleText.show(&text), r#""a \"b\" \\ ü""#);
        for text in ["\"\"", "\"a\\u0000\"", "\"a\\nb\""] {
            assert!(read(&VisibleText, text).is_err(), "{text}");
        }
    }
}
