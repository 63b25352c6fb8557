//! Names of backends and of runtime handlers.

use super::{UnparsedValue, ValueError, ValueKind, quoted};

/// The name of a backend, `[a-z0-9][a-z0-9-]{0,31}`: a metric label, and part of key paths and log lines.
#[derive(Clone, Copy, Debug)]
pub struct BackendName;

impl ValueKind for BackendName {
    type Value = String;

    fn words(&self) -> String {
        "the name of a backend".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let right = (1..=32).contains(&text.len())
            && !text.starts_with('-')
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if right {
            Ok(text.to_owned())
        } else {
            Err(ValueError::BackendName(text.to_owned()))
        }
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }
}

/// The name of a runtime handler in a RuntimeClass; empty is the handler of pods that name none.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClassHandler;

impl ValueKind for RuntimeClassHandler {
    type Value = String;

    fn words(&self) -> String {
        "the handler of a RuntimeClass such as \"kata\"; \"\" for pods that name none".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        // Kubernetes requires a DNS label, but runtimes and crictl do not, so only impossible names are refused.
        if text.len() > 63 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(ValueError::Handler(text.to_owned()));
        }
        Ok(text.to_owned())
    }

    fn show(&self, value: &String) -> String {
        quoted(value.escape_default())
    }
}

/// The name of a handler of the built-in runtime: `[a-zA-Z0-9._-]{1,63}`, a metric label and a part of paths.
#[derive(Clone, Copy, Debug)]
pub struct HandlerName;

impl ValueKind for HandlerName {
    type Value = String;

    fn words(&self) -> String {
        "the name of a handler".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        let right = (1..=63).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            // The name is also the name of a directory.
            && !text.starts_with('.');
        if right {
            Ok(text.to_owned())
        } else {
            Err(ValueError::HandlerName(text.to_owned()))
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
    fn names_fit_a_label() {
        let longest = "a".repeat(32);
        for text in ["containerd", "0", "crio-2", "a-", longest.as_str()] {
            assert_eq!(
                BackendName.read(&UnparsedValue::Text(text)),
                Ok(text.to_owned())
            );
        }
        let longer = "a".repeat(33);
        for text in ["", "-a", "A", "a_b", "a.b", "ä", longer.as_str()] {
            assert!(
                BackendName.read(&UnparsedValue::Text(text)).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn the_empty_handler_is_a_handler() {
        assert_eq!(
            RuntimeClassHandler.read(&UnparsedValue::Text("")),
            Ok(String::new())
        );
        assert!(
            RuntimeClassHandler
                .read(&UnparsedValue::Text("a b"))
                .is_err()
        );
    }

    #[test]
    fn the_name_of_a_handler_is_that_of_a_directory() {
        for text in ["runc", "kata-qemu", "runc_2.0"] {
            assert_eq!(
                HandlerName.read(&UnparsedValue::Text(text)),
                Ok(text.to_owned())
            );
        }
        for text in ["", "..", ".a", "a/b", "a b"] {
            assert!(
                HandlerName.read(&UnparsedValue::Text(text)).is_err(),
                "{text}"
            );
        }
    }
}
