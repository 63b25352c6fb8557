//! One file of hooks: schema 1.0.0 of oci-hooks(5).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use criscope_linux::untrusted;
use oci_spec::runtime::Hook;
use regex::Regex;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Maximum size of a file: 1 MiB.
const FILE_LIMIT: u64 = 1 << 20;
/// The version of the schema.
const VERSION: &str = "1.0.0";

/// Why a file of hooks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HookFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is not JSON, or does not have the form of the schema.
    #[error(transparent)]
    Parse(#[from] serde_json::Error),
    /// The file has another version, or none, which means 0.1.0.
    #[error("hook version {0:?} is not supported, only {VERSION:?}")]
    Version(String),
    /// The path of the hook is not absolute.
    #[error("hook.path must be absolute")]
    Path,
    /// The timeout of the hook is not positive.
    #[error("hook.timeout must be greater than 0 seconds")]
    Timeout,
    /// The hook has no conditions, so that it would never apply.
    #[error("when has no condition")]
    NoCondition,
    /// The hook has no stages, so that it would never apply.
    #[error("stages is empty")]
    NoStage,
}

/// Only the version, which decides about the form of the rest.
#[derive(Deserialize)]
struct Versioned {
    #[serde(default)]
    version: String,
}

/// A hook, the conditions of its containers, and its stages.
#[derive(Debug, Deserialize)]
pub(super) struct HookFile {
    pub(super) hook: Hook,
    pub(super) when: When,
    pub(super) stages: Vec<Stage>,
}

/// When a hook runs (OCI runtime specification, "POSIX-platform Hooks").
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Stage {
    Prestart,
    CreateRuntime,
    CreateContainer,
    StartContainer,
    Poststart,
    Poststop,
}

/// Conditions, and all of them must be met. An unknown one is an error: without it the hook would apply to other containers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct When {
    always: Option<bool>,
    /// Each pair must match an annotation.
    #[serde(deserialize_with = "pairs")]
    annotations: Vec<(Pattern, Pattern)>,
    /// One must match the first argument of the process.
    commands: Vec<Pattern>,
    has_bind_mounts: Option<bool>,
}

/// A regular expression, which may match any part of a text.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Pattern(Regex);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Regex::new(&text).map(Self).map_err(|error| {
            // The error of the parser has several lines, with the expression in one of them.
            let error = error.to_string();
            let reason = error.lines().next_back().unwrap_or_default();
            format!("regular expression {text:?}: {reason}")
        })
    }
}

/// An object whose keys are expressions too.
fn pairs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(Pattern, Pattern)>, D::Error> {
    let all = BTreeMap::<String, Pattern>::deserialize(from)?;
    let pairs: Result<_, String> = all
        .into_iter()
        .map(|(key, value)| Ok((Pattern::try_from(key)?, value)))
        .collect();
    pairs.map_err(D::Error::custom)
}

impl When {
    fn is_empty(&self) -> bool {
        self.always.is_none()
            && self.annotations.is_empty()
            && self.commands.is_empty()
            && self.has_bind_mounts.is_none()
    }

    /// Returns whether a container meets all conditions. As in the reference implementation `false` is never met.
    pub(super) fn matches(
        &self,
        annotations: &HashMap<&str, &str>,
        command: Option<&str>,
        has_bind_mounts: bool,
    ) -> bool {
        let command = command.unwrap_or_default();
        self.always != Some(false)
            && self.has_bind_mounts.is_none_or(|on| on && has_bind_mounts)
            && self.annotations.iter().all(|(key, value)| {
                let mut all = annotations.iter();
                all.any(|(name, text)| key.0.is_match(name) && value.0.is_match(text))
            })
            && (self.commands.is_empty() || self.commands.iter().any(|one| one.0.is_match(command)))
    }
}

impl HookFile {
    pub(super) fn read(path: &Path) -> Result<Self, HookFileError> {
        Self::parse(&untrusted::read_text(path, FILE_LIMIT)?)
    }

    fn parse(text: &str) -> Result<Self, HookFileError> {
        let Versioned { version } = serde_json::from_str(text)?;
        if version != VERSION {
            return Err(HookFileError::Version(version));
        }
        let file: Self = serde_json::from_str(text)?;
        if !file.hook.path().is_absolute() {
            return Err(HookFileError::Path);
        }
        if file.hook.timeout().is_some_and(|seconds| seconds <= 0) {
            return Err(HookFileError::Timeout);
        }
        if file.when.is_empty() {
            return Err(HookFileError::NoCondition);
        }
        if file.stages.is_empty() {
            return Err(HookFileError::NoStage);
        }
        Ok(file)
    }

    /// Returns whether its program exists. That of `startContainer` is in the container.
    pub(super) fn has_program(&self) -> bool {
        let mut stages = self.stages.iter();
        let in_container = stages.all(|stage| matches!(stage, Stage::StartContainer));
        in_container || self.hook.path().exists()
    }
}

/// Fuzz target: parses any text as a file, and looks for a container.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(text: &str) {
    if let Ok(file) = HookFile::parse(text) {
        let annotations = HashMap::from([("key", text)]);
        file.when.matches(&annotations, Some(text), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn when(text: &str) -> When {
        serde_json::from_str(text).expect("conditions")
    }

    #[test]
    fn all_conditions_must_be_met() {
        let annotations = HashMap::from([("com.example.a", "fluid-dynamics"), ("b", "")]);
        for (text, expected) in [
            (r#"{"always": true}"#, true),
            (r#"{"always": false}"#, false),
            (r#"{"hasBindMounts": true}"#, true),
            (r#"{"hasBindMounts": false}"#, false),
            (r#"{"always": true, "hasBindMounts": false}"#, false),
            (r#"{"commands": ["/init$", "sh"]}"#, true),
            (r#"{"commands": ["^sh$"]}"#, false),
            (r#"{"always": false, "commands": ["sh"]}"#, false),
            (
                r#"{"annotations": {"^com\\.example\\.": ".*dynamics$"}}"#,
                true,
            ),
            // The value must belong to a key that matches.
            (r#"{"annotations": {"^b$": "fluid"}}"#, false),
            (r#"{"annotations": {"^b$": "", "a$": "solid"}}"#, false),
            (r#"{"annotations": {"^b$": "", "a$": "fluid"}}"#, true),
            (
                r#"{"annotations": {"^b$": ""}, "commands": ["init"]}"#,
                false,
            ),
        ] {
            let found = when(text).matches(&annotations, Some("/bin/sh"), true);
            assert_eq!(found, expected, "{text}");
        }
        assert!(!when(r#"{"commands": ["sh"]}"#).matches(&annotations, None, true));
        assert!(!when(r#"{"hasBindMounts": true}"#).matches(&annotations, None, false));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told() {
        let with = |hook: &str, when: &str, stages: &str| {
            let text = format!(
                r#"{{"version": "1.0.0", "hook": {hook}, "when": {when}, "stages": {stages}}}"#
            );
            HookFile::parse(&text)
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let (hook, always, stages) = (
            r#"{"path": "/h"}"#,
            r#"{"always": true}"#,
            r#"["poststop"]"#,
        );
        assert_eq!(with(hook, always, stages), Ok(()));
        for (found, expected) in [
            (with(r#"{"path": "h"}"#, always, stages), "must be absolute"),
            (
                with(r#"{"path": "/h", "timeout": 0}"#, always, stages),
                "greater than 0",
            ),
            (with("{}", always, stages), "path"),
            (with(hook, "{}", stages), "no condition"),
            (
                with(hook, r#"{"annotation": {"a": "b"}}"#, stages),
                "unknown field `annotation`",
            ),
            (
                with(hook, r#"{"commands": ["("]}"#, stages),
                "\"(\": error: unclosed group",
            ),
            (
                with(hook, r#"{"annotations": {"[": ""}}"#, stages),
                "unclosed character class",
            ),
            (with(hook, always, "[]"), "stages is empty"),
            (
                with(hook, always, r#"["precreate"]"#),
                "unknown variant `precreate`",
            ),
        ] {
            let error = found.expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        for (text, expected) in [
            ("", "EOF"),
            (
                r#"{"hook": "/h", "stages": ["prestart"]}"#,
                "version \"\" is not supported",
            ),
            (r#"{"version": "2.0.0"}"#, "only \"1.0.0\""),
            (r#"{"version": "1.0.0", "stages": []}"#, "missing field"),
        ] {
            let error = HookFile::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_program_of_a_hook_in_the_container_is_not_on_the_node() {
        let file = |stages: &str| {
            let text = format!(
                r#"{{"version": "1.0.0", "hook": {{"path": "/no/such"}}, "when": {{"always": true}}, "stages": [{stages}]}}"#
            );
            HookFile::parse(&text).expect("a file").has_program()
        };
        assert!(file(r#""startContainer""#));
        assert!(!file(r#""startContainer", "poststop""#));
    }
}
