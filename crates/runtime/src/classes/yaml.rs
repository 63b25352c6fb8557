//! Reads YAML of files of classes.

use serde::de::DeserializeOwned;

use super::ClassFileError;

/// Maximum size of a file in bytes, and of its text with aliases expanded.
pub(super) const MAX_FILE_BYTES: usize = 1 << 20;

/// Parses a document. An empty one is the default.
pub(super) fn parse<T: DeserializeOwned + Default>(text: &str) -> Result<T, ClassFileError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_total_scalar_bytes: MAX_FILE_BYTES,
        },
        // Errors on one line.
        with_snippet: false,
    };
    let parsed: Option<T> = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ClassFileError::Invalid(error.to_string()))?;
    Ok(parsed.unwrap_or_default())
}
