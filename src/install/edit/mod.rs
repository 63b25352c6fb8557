//! Editing other programs' configuration: one value changes, every other byte stays.

pub(crate) mod document;
pub(crate) mod flag;
pub(super) mod table;

/// Why a text is not edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextEditError {
    /// The text cannot be parsed, so nothing is known about it.
    #[error("cannot be parsed: {0}")]
    Unreadable(String),
    /// A line edit does not have the intended effect, for example in flow style or with anchors.
    #[error("{0} cannot be set without changing something else; set it by hand")]
    Refused(String),
}
