//! Counts as they stand in tables.

/// A count; nothing for none, so that what is there is seen.
pub(super) fn count(n: u64) -> String {
    match n {
        0 => String::new(),
        n => n.to_string(),
    }
}
