//! A name for a configuration.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::Config;

impl Config {
    /// A short name for these settings, to see from outside whether two nodes have the same: 12 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for (path, setting) in self.settings() {
            hash.update(format!("{path} = {}\n", setting.value));
        }
        let mut text = String::with_capacity(12);
        for byte in &hash.finalize()[..6] {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}
