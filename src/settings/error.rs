//! What can be wrong with a configuration, and where. All of it is collected before anything is reported, so that a
//! file is repaired in one go.

use std::fmt;
use std::io;

use super::suggest::nearest;
use super::value::ValueError;

/// Everything that is wrong with a configuration, in the order of the file. Never empty.
///
/// Its `Display` is one line per error: `FILE:LINE: KEY: what is wrong`.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `Ok` if there is nothing to report; sorts by line, flags last.
    pub(crate) fn from_list(mut list: Vec<ConfigError>) -> Result<(), Self> {
        if list.is_empty() {
            return Ok(());
        }
        list.sort_by_key(|error| error.place.order());
        Err(Self(list))
    }

    /// The errors.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
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

/// One thing that is wrong.
#[derive(Debug)]
pub struct ConfigError {
    /// Where it was written.
    pub place: Place,
    /// The whole path of the key, such as `server.mode`; empty if no key is at fault.
    pub key: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line { file, line } => write!(f, "{file}:{line}: ")?,
            Place::File { file } => write!(f, "{file}: ")?,
            Place::Flag(flag) => write!(f, "{flag}: ")?,
            Place::Nowhere => {}
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

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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
    /// What is missing has no place.
    Nowhere,
}

impl Place {
    fn order(&self) -> (u8, usize) {
        match self {
            Self::File { .. } => (0, 0),
            Self::Line { line, .. } => (1, *line),
            Self::Flag(_) => (2, 0),
            Self::Nowhere => (3, 0),
        }
    }
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// Standard input was read once and is gone.
    #[error("standard input cannot be read a second time; name a file to be able to reload it")]
    ReadOnce,
    /// The text is not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// No such key, and what may have been meant.
    #[error("unknown key; {0}")]
    UnknownKey(Hint),
    /// A single value stands where a table belongs, or the other way round.
    #[error("expected {expected}, found {found}")]
    Shape {
        /// What belongs there.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
    /// A required key.
    #[error("missing; write {0}")]
    Missing(String),
    /// The value is not one of this key's.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Values that do not fit together, in the words of the module that checks them.
    #[error("{0}")]
    Conflict(String),
}

/// What may have been meant: the nearest known word, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Close enough to be a slip.
    Nearest(String),
    /// Nothing is close.
    Known(Vec<String>),
}

impl Hint {
    /// The nearest of the names, else all of them.
    pub(crate) fn among(word: &str, names: &[&str]) -> Self {
        match nearest(word, names.iter().copied()) {
            Some(near) => Self::Nearest(near.to_owned()),
            None => Self::Known(names.iter().map(|&name| name.to_owned()).collect()),
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nearest(word) => write!(f, "did you mean `{word}`?"),
            Self::Known(words) => write!(f, "known here: {}", words.join(", ")),
        }
    }
}
