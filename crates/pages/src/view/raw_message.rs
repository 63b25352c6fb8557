//! The text of an error as the program that failed wrote it.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// The text of an error, and who wrote it. Redacted, on one line, shortened in the middle. `Display`: `containerd: UNKNOWN ...`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawMessage {
    /// The program: `kubelet`, `criscope`, or a runtime by its name; `runtime` if its name is unknown.
    pub from: String,
    /// The text. That of a call begins with its status code.
    pub text: String,
}

impl Display for RawMessage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.from, self.text)
    }
}
