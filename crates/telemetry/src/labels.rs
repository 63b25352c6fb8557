//! Labels whose values are names in the configuration.

use std::sync::Arc;

use criscope_cri::Named;

use super::metric::{DEFAULT_HANDLER, OTHER_HANDLERS, SEVERAL_BACKENDS};

/// A value of the label `backend`; see [`BackendLabels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendLabel(usize);

/// The fixed names. The configuration adds the names of the backends.
impl Named for BackendLabel {
    const NAMES: &'static [&'static str] = &[SEVERAL_BACKENDS];

    fn index(self) -> usize {
        self.0
    }
}

/// The values of the label `backend`.
#[derive(Clone, Debug)]
pub struct BackendLabels(Arc<[Box<str>]>);

impl BackendLabels {
    pub(super) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let several = [SEVERAL_BACKENDS.to_owned()];
        let names = names.into_iter().chain(several);
        Self(names.map(String::into_boxed_str).collect())
    }

    /// The value for a backend's name. Any other name counts as several backends.
    pub fn value(&self, name: &str) -> BackendLabel {
        let several = self.0.len() - 1;
        let known = self.0[..several].iter().position(|n| **n == *name);
        BackendLabel(known.unwrap_or(several))
    }

    pub(super) fn names(&self) -> &[Box<str>] {
        &self.0
    }
}

/// A value of the label `runtime_handler`; see [`HandlerLabels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerLabel(usize);

/// The names are those that no configuration changes.
impl Named for HandlerLabel {
    const NAMES: &'static [&'static str] = &[DEFAULT_HANDLER, OTHER_HANDLERS];

    fn index(self) -> usize {
        self.0
    }
}

/// The values of the label `runtime_handler`.
#[derive(Clone, Debug)]
pub struct HandlerLabels(Arc<[Box<str>]>);

impl HandlerLabels {
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut values: Vec<Box<str>> = vec![DEFAULT_HANDLER.into()];
        for name in names {
            if name != OTHER_HANDLERS && !values.contains(&Box::from(name)) {
                values.push(name.into());
            }
        }
        values.push(OTHER_HANDLERS.into());
        Self(values.into())
    }

    /// The value for a runtime handler; `None` is an unknown one.
    pub fn value(&self, name: Option<&str>) -> HandlerLabel {
        let other = self.0.len() - 1;
        HandlerLabel(match name {
            Some("") => 0,
            // The first and last values are reserved.
            Some(name) => (1..other).find(|i| *self.0[*i] == *name).unwrap_or(other),
            None => other,
        })
    }

    pub(super) fn names(&self) -> &[Box<str>] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_count_as_several_backends() {
        let backends = BackendLabels::new(["main".to_owned(), "other".to_owned()]);
        assert_eq!(backends.value("main").index(), 0);
        for name in ["main+other", "", "evil\n", SEVERAL_BACKENDS] {
            assert_eq!(backends.value(name).index(), 2, "{name}");
        }
    }

    #[test]
    fn handlers_without_a_rule_share_a_label_value() {
        let handlers = HandlerLabels::new(["kata", "gvisor", "kata", "default", "other"]);
        assert_eq!(handlers.value(Some("")).index(), 0);
        assert_eq!(handlers.value(Some("kata")).index(), 1);
        assert_eq!(handlers.value(Some("gvisor")).index(), 2);
        for other in [None, Some("runc"), Some("other"), Some("default")] {
            assert_eq!(handlers.value(other).index(), 3, "{other:?}");
        }
    }
}
