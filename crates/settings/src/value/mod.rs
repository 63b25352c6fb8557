//! Kinds of values: how each is parsed, validated and formatted. Pure, apart from looking up user and group names.

mod backend;
mod image;
mod list;
mod log;
mod method;
mod net;
mod number;
mod path;
mod pod;
mod time;
mod ulimit;
mod url;

use std::fmt;

use toml::de::{DeArray, DeTable, DeValue};

pub use backend::{BackendName, HandlerName, RuntimeClassHandler};
pub use image::{ImagePatternValue, InterfacePrefix};
pub use list::{DIRECTORIES_DESCRIPTION, ListOf, VisibleText};
pub use log::FilterDirective;
pub use method::CriMethodName;
pub use net::{CollectorUrl, HostName, ListenAddress, ServerName};
pub use number::{BoundedNumber, ByteCount, RatioNumber, UserIdNumber};
pub use path::{
    DirectoryPath, FilePath, GroupNameOrId, OptionalSocketPath, PermissionBits, SocketPath,
    UserAndGroup, fits, lexical, show_endpoint,
};
pub use pod::{CapabilitySet, SeccompNotation, SysctlValues, default_capabilities};
pub use time::{BoundedDuration, ms, secs};
pub use ulimit::ResourceLimits;
pub use url::{HttpBaseUrl, TcpAddress, TracePageUrl};

/// A kind of value: what the parser and the reference need.
pub trait ValueKind: fmt::Debug {
    /// The Rust type.
    type Value;
    /// The accepted values, for the reference and for errors: `a duration such as "10s"`.
    fn words(&self) -> String;
    /// Parses and validates a value.
    ///
    /// # Errors
    /// If it is of another type, or not valid.
    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Self::Value, ValueError>;
    /// Formats the value in the syntax of the file.
    fn show(&self, value: &Self::Value) -> String;
    /// Returns whether the file can contain this value.
    fn is_set(&self, _: &Self::Value) -> bool {
        true
    }
}

/// An optional key.
#[derive(Clone, Copy, Debug)]
pub struct OptionalValue<K>(pub K);

impl<K: ValueKind> ValueKind for OptionalValue<K> {
    type Value = Option<K::Value>;

    fn words(&self) -> String {
        self.0.words()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Self::Value, ValueError> {
        self.0.read(raw).map(Some)
    }

    fn show(&self, value: &Self::Value) -> String {
        value
            .as_ref()
            .map_or_else(String::new, |value| self.0.show(value))
    }

    fn is_set(&self, value: &Self::Value) -> bool {
        value.is_some()
    }
}

/// A value of the file or a flag, before it is parsed as its kind.
#[derive(Clone, Copy, Debug)]
pub enum UnparsedValue<'a> {
    /// A string; also the value of every flag.
    Text(&'a str),
    /// Clamped to the range of the type; such a large number exceeds every limit.
    Integer(i128),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// An array.
    List(&'a DeArray<'a>),
    /// A table.
    Table(&'a DeTable<'a>),
    /// A date or time, which no setting is.
    Date,
}

impl<'a> UnparsedValue<'a> {
    /// A value of the file.
    pub fn new(value: &'a DeValue<'a>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text),
            DeValue::Integer(number) => {
                let text = number.as_str();
                let clamped = if text.starts_with('-') {
                    i128::MIN
                } else {
                    i128::MAX
                };
                Self::Integer(i128::from_str_radix(text, number.radix()).unwrap_or(clamped))
            }
            DeValue::Float(number) => Self::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(value) => Self::Boolean(*value),
            DeValue::Datetime(_) => Self::Date,
            DeValue::Array(entries) => Self::List(entries),
            DeValue::Table(table) => Self::Table(table),
        }
    }

    /// A description of its type.
    pub fn found(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Boolean(value) => value.to_string(),
            Self::List(_) => "an array".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Date => "a date".to_owned(),
        }
    }

    /// Returns the text of the value.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn text(&self, kind: &impl ValueKind) -> Result<&'a str, ValueError> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(ValueError::Type {
                expected: kind.words(),
                found: other.found(),
            }),
        }
    }
}

/// An invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A value of another type or format.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The expected type or format.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// A number outside its range.
    #[error("{found} is out of range; it must be from {least} to {most}")]
    Range {
        /// The actual value.
        found: String,
        /// The minimum.
        least: String,
        /// The maximum.
        most: String,
    },
    /// A number without its required unit.
    #[error("{0} has no unit; write \"{0}s\" or \"{0}ms\"")]
    NoUnit(i128),
    /// An ambiguous unit: `MB` may be decimal or binary.
    #[error("{found} is ambiguous; write {meant:?}")]
    AmbiguousUnit {
        /// The actual value.
        found: String,
        /// The spelling with a binary unit.
        meant: String,
    },
    /// A socket that is not in the file system.
    #[error("{0:?} is not a unix socket; write unix:///path")]
    NotUnix(String),
    /// A relative path of a socket.
    #[error("{0:?} is not an absolute path; write unix:///path")]
    Relative(String),
    /// A relative path.
    #[error("{0:?} is not an absolute path")]
    NotAbsolute(String),
    /// No file or directory can have this name.
    #[error("{0:?} cannot be a path")]
    NotAPath(String),
    /// No file can have this name.
    #[error("{0:?} cannot be the path of a socket")]
    NotAFile(String),
    /// Longer than `sun_path` of unix(7) less its final zero.
    #[error("the path is {0} bytes long; the kernel takes at most 107 for a unix socket")]
    PathTooLong(usize),
    /// Not permission bits.
    #[error("{0} is not a mode; write the permission bits in octal as a string, such as \"0660\"")]
    Mode(String),
    /// Not `user:group`.
    #[error("{0:?} is not an owner; write \"uid:gid\" or \"user:group\"")]
    Owner(String),
    /// An unknown user.
    #[error("there is no user {0:?} on this machine")]
    UnknownUser(String),
    /// An unknown group.
    #[error("there is no group {0:?} on this machine")]
    UnknownGroup(String),
    /// The user database could not be read.
    #[error("cannot look up {name:?}: {cause}")]
    Lookup {
        /// User or group.
        name: String,
        /// The error of the system.
        cause: String,
    },
    /// A host name in the place of an IP address, or a missing port.
    #[error(
        "{0:?} is not an IP address with a port; write one such as \"127.0.0.1:9478\", or \"off\""
    )]
    Address(String),
    /// An invalid host name.
    #[error(
        "{0:?} is not a host name; write one such as \"node1.example.com\", or \".example.com\" for all below it"
    )]
    HostName(String),
    /// Not a URL of a collector; the text is not repeated, because it may contain a password.
    #[error("not the URL of an OTLP collector: {0}; write one such as http://127.0.0.1:4317")]
    Collector(&'static str),
    /// A host name in the place of an IP address, or a missing port.
    #[error("{0:?} is not an IP address with a port; write one such as \"127.0.0.1:0\"")]
    TcpAddress(String),
    /// Not a base URL; the text is not repeated, because it may contain a password.
    #[error("not a base URL: {0}; write one such as https://node.example:10010")]
    BaseUrl(&'static str),
    /// Not a URL of traces; the text is not repeated, because it may contain a password.
    #[error(
        "not the URL of a trace: {0}; write one such as https://jaeger.example/trace/{{trace_id}}"
    )]
    TraceUrl(&'static str),
    /// An invalid filter directive.
    #[error("{text:?} is not a log level: {cause}")]
    Directive {
        /// The actual value.
        text: String,
        /// Why it is invalid.
        cause: String,
    },
    /// A name that cannot be a metric label and a table name.
    #[error(
        "{0:?} is not a name for a backend; use 1 to 32 of a-z, 0-9 and `-`, and begin with a letter or digit"
    )]
    BackendName(String),
    /// Not a CRI call.
    #[error("there is no call {text:?} in the CRI; {hint}")]
    Method {
        /// The actual value.
        text: String,
        /// Suggestions.
        hint: String,
    },
    /// An invalid name of a handler.
    #[error("{0:?} is not the name of a runtime handler; use at most 63 visible characters")]
    Handler(String),
    /// An invalid name of a handler's table.
    #[error(
        "{0:?} is not a name for a handler; use 1 to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`, and do not begin with `.`"
    )]
    HandlerName(String),
    /// An empty text, or one with invisible characters.
    #[error("{0:?} is empty or has control characters")]
    Text(String),
    /// Not a capability of capabilities(7).
    #[error("there is no capability {0}")]
    Capability(String),
    /// A kernel parameter that is not namespaced.
    #[error("{0:?} is not a kernel parameter that a pod can set for itself")]
    Sysctl(String),
    /// An invalid resource limit, or a second one of a type.
    #[error(
        "{0} is not a resource limit, or its type occurs twice; write it like \"nofile=1024:4096\", the soft limit first"
    )]
    Ulimit(String),
    /// `*` elsewhere than at an end, or nothing else.
    #[error("{0:?} is not the name of an image; `*` may only begin and end it")]
    ImagePattern(String),
    /// Invalid elements of an array, numbered from 1.
    #[error("{}", entries(.0))]
    Entries(Vec<(usize, ValueError)>),
}

fn entries(wrong: &[(usize, ValueError)]) -> String {
    let wrong: Vec<_> = wrong
        .iter()
        .map(|(number, error)| format!("entry {number}: {error}"))
        .collect();
    wrong.join("; ")
}

/// True or false.
#[derive(Clone, Copy, Debug)]
pub struct BooleanValue;

impl ValueKind for BooleanValue {
    type Value = bool;

    fn words(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<bool, ValueError> {
        match raw {
            UnparsedValue::Boolean(value) => Ok(*value),
            other => Err(ValueError::Type {
                expected: self.words(),
                found: other.found(),
            }),
        }
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }
}

/// A keyword.
#[derive(Clone, Copy, Debug)]
pub struct KeywordChoice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + fmt::Debug + PartialEq> ValueKind for KeywordChoice<T> {
    type Value = T;

    fn words(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(word, _)| format!("{word:?}")).collect();
        words.join(" or ")
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<T, ValueError> {
        self.0
            .iter()
            .find(|(word, _)| matches!(raw, UnparsedValue::Text(text) if text == word))
            .map(|(_, value)| *value)
            .ok_or_else(|| ValueError::Type {
                expected: self.words(),
                found: raw.found(),
            })
    }

    fn show(&self, value: &T) -> String {
        let word = self.0.iter().find(|(_, candidate)| candidate == value);
        quoted(word.map_or("", |(word, _)| word))
    }
}

/// Formats a text as a TOML string.
fn quoted(text: impl fmt::Display) -> String {
    format!("\"{text}\"")
}

/// Formats a text without control characters as a TOML string.
fn quoted_text(text: &str) -> String {
    quoted(text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a value in TOML.
    pub(super) fn read_toml<K: ValueKind>(kind: &K, text: &str) -> Result<K::Value, String> {
        let text = format!("a = {text}");
        let table = toml::de::DeTable::parse(&text).expect("toml");
        let value = table.get_ref().get("a").expect("there");
        kind.read(&UnparsedValue::new(value.get_ref()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_choice_names_all_its_words() {
        let kind = KeywordChoice(&[("json", 1), ("text", 2)]);
        assert_eq!(kind.read(&UnparsedValue::Text("text")), Ok(2));
        assert_eq!(kind.show(&1), "\"json\"");
        assert_eq!(
            kind.read(&UnparsedValue::Text("JSON"))
                .expect_err("refused")
                .to_string(),
            "expected \"json\" or \"text\", found \"JSON\""
        );
    }

    #[test]
    fn integers_beyond_every_type_stay_out_of_range() {
        let text = format!("a = {}", "9".repeat(60));
        let table = toml::de::DeTable::parse_recoverable(&text).0;
        let value = table.get_ref().get("a").expect("parsed");
        assert!(matches!(
            UnparsedValue::new(value.get_ref()),
            UnparsedValue::Integer(i128::MAX)
        ));
    }
}
