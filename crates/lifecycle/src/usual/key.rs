//! Kinds of work whose durations are compared.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use criscope_cri::Method;

/// Longest name kept, in bytes: longer ones are not learned.
const MAX_NAME_BYTES: usize = 256;

/// A kind of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkKey {
    /// A call with this method, for sandboxes with this runtime handler.
    Call(Method, Box<str>),
    /// A CNI plugin and its command, within one call.
    Plugin(Box<str>),
    /// Pulls of one repository, with any tag.
    Repository(Box<str>),
}

impl WorkKey {
    /// Calls with this method.
    pub(crate) fn call(method: Method, handler: Option<&str>) -> Self {
        Self::Call(method, handler.unwrap_or_default().into())
    }

    /// The repository of an image reference.
    pub(crate) fn repository(image: &str) -> Self {
        let name = image.split('@').next().unwrap_or(image);
        // A colon before the last slash belongs to the registry's port.
        let from = name.rfind('/').map_or(0, |at| at + 1);
        let end = name[from..].find(':').map_or(name.len(), |at| from + at);
        Self::Repository(name[..end].into())
    }

    /// Returns whether its name is short enough to be kept.
    pub(crate) fn is_short(&self) -> bool {
        let (Self::Call(_, name) | Self::Plugin(name) | Self::Repository(name)) = self;
        name.len() <= MAX_NAME_BYTES
    }
}

impl fmt::Display for WorkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(method, handler) => write!(f, "call:{}:{handler}", method.name()),
            Self::Plugin(name) => write!(f, "cni:{name}"),
            Self::Repository(name) => write!(f, "image:{name}"),
        }
    }
}

/// The key was written by another version.
#[derive(Debug, thiserror::Error)]
#[error("unknown key {0:?}")]
pub(crate) struct UnknownWorkKey(String);

impl FromStr for WorkKey {
    type Err = UnknownWorkKey;

    fn from_str(text: &str) -> Result<Self, UnknownWorkKey> {
        read(text).ok_or_else(|| UnknownWorkKey(text.to_owned()))
    }
}

fn read(text: &str) -> Option<WorkKey> {
    let (kind, name) = text.split_once(':')?;
    match kind {
        "call" => {
            let (method, handler) = name.split_once(':')?;
            let mut methods = Method::ALL.into_iter();
            let method = methods.find(|known| known.name() == method)?;
            Some(WorkKey::Call(method, handler.into()))
        }
        "cni" => Some(WorkKey::Plugin(name.into())),
        "image" => Some(WorkKey::Repository(name.into())),
        _ => None,
    }
}

impl Serialize for WorkKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WorkKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
