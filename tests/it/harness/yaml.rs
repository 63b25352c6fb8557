//! Reads YAML into the values of JSON, which everything here can be made from.

use std::path::Path;

use serde_json::Value;

/// The one document of a file.
pub(crate) fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
