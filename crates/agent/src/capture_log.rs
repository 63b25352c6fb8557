//! A capture in the log of a pod, written on the node and read by the plugin.
//!
//! A container's log is text, and does not keep the order of lines of different streams. So standard output gets everything:
//! first the messages, then the capture in base64, between two marker lines.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Marker line before the capture.
pub(crate) const CAPTURE_BEGIN: &str = "-----BEGIN CRISCOPE CAPTURE-----";

/// Marker line after the capture.
pub(crate) const CAPTURE_END: &str = "-----END CRISCOPE CAPTURE-----";

/// Splits a log into the capture and the other lines. The capture is `None` if the log does not have all of it.
pub(crate) fn read(log: &str) -> (Option<Vec<u8>>, Vec<&str>) {
    let mut messages = Vec::new();
    let mut capture: Option<Vec<u8>> = None;
    let mut lines = log.lines();
    while let Some(line) = lines.next() {
        if line != CAPTURE_BEGIN {
            messages.push(line);
            continue;
        }
        let mut bytes = Vec::new();
        for line in lines.by_ref() {
            if line == CAPTURE_END {
                capture = Some(std::mem::take(&mut bytes));
                break;
            }
            match STANDARD.decode(line) {
                Ok(decoded) => bytes.extend(decoded),
                Err(_) => return (None, messages),
            }
        }
    }
    (capture, messages)
}
