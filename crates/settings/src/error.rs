//! Errors in a configuration, with their positions. All of them are collected and reported together, so that a file can be
//! repaired in one pass.

use std::fmt;
use std::io;

use super::suggest::nearest;
use super::value::ValueError;

/// All errors in a configuration, in the order of the files and their lines. Never empty.
///
/// `Display` writes one line per error: `FILE:LINE: KEY: what is wrong`.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `Ok` if there is nothing to report; sorts by file and line, flags last.
    pub fn from_list(mut list: Vec<ConfigError>) -> Result<(), Self> {
        if list.is_empty() {
            return Ok(());
        }
        list.sort_by(|a, b| a.place.order().cmp(&b.place.order()));
        Err(Self(list))
    }

    /// The errors.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }
}

impl IntoIterator for ConfigErrors {
    type Item = ConfigError;
    type IntoIter = std::vec::IntoIter<ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// One error.
#[derive(Debug)]
pub struct ConfigError {
    /// Position of the error.
    pub place: ValuePlace,
    /// The whole path of the key, such as `server.mode`; empty if the error does not concern a key.
    pub key: String,
    /// The error.
    pub problem: ConfigProblem,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place != ValuePlace::Nowhere {
            write!(f, "{}: ", self.place)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}

/// The position of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// A line of the file, from 1.
    Line {
        /// The file as it was named.
        file: String,
        /// From 1.
        line: usize,
    },
    /// The file as a whole.
    File {
        /// The file as it was named.
        file: String,
    },
    /// A command line flag, with its dashes.
    Flag(&'static str),
    /// A missing key has no position.
    Nowhere,
}

impl ValuePlace {
    fn order(&self) -> (u8, &str, usize) {
        match self {
            Self::File { file } => (0, file, 0),
            Self::Line { file, line } => (1, file, *line),
            Self::Flag(_) => (2, "", 0),
            Self::Nowhere => (3, "", 0),
        }
    }
}

impl fmt::Display for ValuePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::File { file } => f.write_str(file),
            Self::Flag(flag) => f.write_str(flag),
            Self::Nowhere => Ok(()),
        }
    }
}

/// The kind of error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// Standard input cannot be read again.
    #[error("standard input cannot be read a second time; name a file to be able to reload it")]
    ReadOnce,
    /// The text is not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// An unknown key, and suggestions for it.
    #[error("unknown key; {0}")]
    UnknownKey(ValueSuggestion),
    /// A single value in the place of a table, or the reverse.
    #[error("expected {expected}, found {found}")]
    Shape {
        /// The expected type.
        expected: &'static str,
        /// The actual type.
        found: &'static str,
    },
    /// A required key is missing.
    #[error("missing; write {0}")]
    Missing(String),
    /// The value is invalid for this key.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Inconsistent values, with the message of the module that checks them.
    #[error("{0}")]
    Conflict(String),
}

/// Suggestions: the nearest known word, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSuggestion {
    /// Close enough to be a typing error.
    Nearest(String),
    /// Nothing is close.
    Known(Vec<String>),
}

impl ValueSuggestion {
    /// The nearest of the names, or all of them.
    pub fn among(word: &str, names: &[&str]) -> Self {
        match nearest(word, names.iter().copied()) {
            Some(near) => Self::Nearest(near.to_owned()),
            None => Self::Known(names.iter().map(|&name| name.to_owned()).collect()),
        }
    }
}

impl fmt::Display for ValueSuggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nearest(word) => write!(f, "did you mean `{word}`?"),
            Self::Known(words) => write!(f, "known here: {}", words.join(", ")),
        }
    }
}
