//! What can be wrong with a configuration, and where. All of it is collected before anything is reported, so that a
//! file is repaired in one go.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::value::ValueError;

/// Everything that is wrong with a configuration, in the order of the file. Never empty.
///
/// Its `Display` is one line per error: `FILE:LINE: KEY: what is wrong`.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `Ok` if there is nothing to report; sorts by line, flags last.
    pub(super) fn from_list(mut list: Vec<ConfigError>) -> Result<(), Self> {
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
    /// A key without which nothing works.
    #[error("missing; write {0}")]
    Missing(String),
    /// The value is not one of this key's.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A second backend that is the built-in runtime.
    #[error("backend {0:?} is the built-in runtime already, and there is only one")]
    SecondBuiltin(String),
    /// An endpoint of the built-in runtime.
    #[error("the built-in runtime has no endpoint; take it away, or use kind = \"upstream\"")]
    NoEndpoint,
    /// `runtime.default_handler` names none.
    #[error("there is no handler {name:?}; {hint}")]
    UnknownHandler {
        /// The name.
        name: String,
        /// What may have been meant.
        hint: Hint,
    },
    /// Several handlers, none called `runc`, and none of them is the default.
    #[error(
        "missing; with several handlers and none called \"runc\", one must be the default: {0}"
    )]
    NoDefaultHandler(String),
    /// A setting that is about another one which is not set.
    #[error("has no effect without {0} = true")]
    Without(&'static str),
    /// One of two settings that are only of use together.
    #[error("is of no use without {0}")]
    OnlyHalf(&'static str),
    /// One of two directories lies in the other.
    #[error("{} lies in {other}; what survives a reboot and what must not cannot be in one place", .path.display())]
    OneInTheOther {
        /// The directory.
        path: PathBuf,
        /// The key of the other.
        other: &'static str,
    },
    /// The name of a backend that is not configured.
    #[error("there is no backend {name:?}; {hint}")]
    UnknownBackend {
        /// The name.
        name: String,
        /// What may have been meant.
        hint: Hint,
    },
    /// Several backends, and none of them is the default.
    #[error("missing; with more than one backend one must be the default: {0}")]
    NoDefault(String),
    /// `--upstream` made a second backend and nothing says which is the default.
    #[error(
        "adds the backend \"upstream\" beside {others}, and routing.default does not say which one is the default; set routing.default, or change the endpoint in the file instead"
    )]
    UpstreamConflict {
        /// The names in the file.
        others: String,
    },
    /// Two backends with one socket would show every pod twice.
    #[error("{path} is already the endpoint of backend {other:?}; every pod would be listed twice", path = .path.display())]
    SharedEndpoint {
        /// The socket.
        path: PathBuf,
        /// Who has it.
        other: String,
    },
    /// The endpoint is the socket criscope itself listens on.
    #[error("{} is the socket criscope itself listens on; calls would go round in a circle", .0.display())]
    Circle(PathBuf),
    /// A second rule for the same handler.
    #[error("the handler {handler:?} already has a rule on line {line}; the first match wins")]
    DuplicateRule {
        /// The handler.
        handler: String,
        /// Where the first rule is.
        line: usize,
    },
    /// A second row for the same method.
    #[error("{method} already has a row on line {line}")]
    DuplicateMethod {
        /// The method.
        method: &'static str,
        /// Where the first row is.
        line: usize,
    },
}

/// What may have been meant: the nearest known word, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Close enough to be a slip.
    Nearest(String),
    /// Nothing is close.
    Known(Vec<String>),
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nearest(word) => write!(f, "did you mean `{word}`?"),
            Self::Known(words) => write!(f, "known here: {}", words.join(", ")),
        }
    }
}
