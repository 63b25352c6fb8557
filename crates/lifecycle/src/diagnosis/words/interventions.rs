//! Sentences on what others did to a container before it ended.

use std::fmt::{self, Display, Formatter};

use super::duration;
use super::request::size;
use crate::diagnosis::interventions::{InterventionBefore, WhatHappened};

impl Display for InterventionBefore<'_> {
    /// `nodetool ran a command in app just then`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (by, container) = (self.by.in_words(), &self.container);
        match self.what {
            WhatHappened::Command { before } if before.is_zero() => {
                write!(f, "{by} ran a command in {container} just then")
            }
            WhatHappened::Command { before } => {
                write!(
                    f,
                    "{by} had run a command in {container} {} before",
                    duration(before)
                )
            }
            WhatHappened::Session { before } => {
                let by = if self.by.is_kubelet() {
                    "a client of the Kubernetes API, such as kubectl exec,"
                } else {
                    by
                };
                write!(
                    f,
                    "{by} had begun a command in {container} {} before",
                    duration(before)
                )
            }
            WhatHappened::EndRemoved => {
                write!(f, "{by} removed {container} after it had ended")
            }
            WhatHappened::Hook => write!(f, "{by} ran a hook in {container} just then"),
            WhatHappened::MemoryLimit { bytes, before } => write!(
                f,
                "{by} had set the memory limit of {container} to {} {} before",
                size(bytes),
                duration(before)
            ),
        }
    }
}
