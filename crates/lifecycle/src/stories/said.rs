//! What the story of a pod says first.

use crate::capture::PodHeadline;
use crate::diagnosis::{Diagnoser, Diagnosis};
use crate::view::RawMessage;

/// The headline of a pod, and what goes with it.
pub(super) struct SaidCause {
    pub(super) headline: String,
    pub(super) cause: String,
    pub(super) raw_message: Option<RawMessage>,
    pub(super) next: Option<String>,
}

impl SaidCause {
    /// A headline alone.
    pub(super) fn new(headline: String, cause: &str) -> Self {
        Self {
            headline,
            cause: cause.to_owned(),
            raw_message: None,
            next: None,
        }
    }

    /// What a diagnosis says.
    pub(super) fn from_diagnosis(diagnosis: &Diagnosis<'_>, pods: &Diagnoser<'_>) -> Self {
        Self {
            raw_message: diagnosis.raw_message(pods.programs()),
            next: pods.next_of_newest(diagnosis),
            ..Self::new(diagnosis.to_string(), diagnosis.name())
        }
    }

    /// What was said at the time of a capture.
    pub(super) fn from_capture(said: &PodHeadline) -> Self {
        Self {
            raw_message: said.raw_message.clone(),
            next: said.next.clone(),
            ..Self::new(said.headline.clone(), &said.cause)
        }
    }
}
