//! Ids and times.

use std::time::{SystemTime, UNIX_EPOCH};

use super::error::{Error, Result};

/// Returns a new id: 64 hexadecimal digits.
///
/// # Errors
/// If getrandom(2) fails.
pub(crate) fn new_id() -> Result<String> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        let more =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty());
        filled += more.map_err(|e| Error::Internal(format!("no random numbers: {e}")))?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns whether a text has the form of [`new_id`].
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The current time, in nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_nanos().try_into().unwrap_or(i64::MAX)
}

/// The boot id of the kernel.
pub(crate) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}
