//! Where a report goes: a file of its own, and its place in the documentation.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, IoContext, Result};

/// Writes what was measured, and what was to be kept, to `file`.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_json(
    file: &Path,
    results: &impl Serialize,
    budgets: &impl Serialize,
) -> Result<()> {
    let whole = serde_json::json!({ "results": results, "budgets": budgets });
    fs::write(file, format!("{whole:#}\n")).during(|| format!("writing {}", file.display()))
}

/// Puts the report between its two markers in `file`.
///
/// # Errors
/// When the file or its markers are not there, or it cannot be written.
pub(crate) fn write_between([begin, end]: [&str; 2], report: &str, file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).during(|| format!("reading {}", file.display()))?;
    let parts = text
        .split_once(begin)
        .and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
    let Some((head, tail)) = parts else {
        return Err(Error::Setup(format!("{} has no markers", file.display())));
    };
    let text = format!("{head}{begin}\n{report}\n{end}{tail}");
    fs::write(file, text).during(|| format!("writing {}", file.display()))
}
