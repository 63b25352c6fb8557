//! The version of this program and the commit it was built from.
//!
//! Only the binary knows the commit. If the library contained it, every commit would compile all of it again.

use std::sync::OnceLock;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Hexadecimal digits of a commit that are shown.
const DIGITS: usize = 12;

static COMMIT: OnceLock<&'static str> = OnceLock::new();

/// Sets the commit, once for the whole process; empty: unknown.
pub fn set_commit(commit: &'static str) {
    if !commit.is_empty() {
        COMMIT.get_or_init(|| commit);
    }
}

/// The commit this program was built from, if that was known.
pub fn commit() -> Option<&'static str> {
    COMMIT.get().copied()
}

/// The version, with the commit if that is known.
pub fn with_commit() -> &'static str {
    static VERSION_TEXT: OnceLock<String> = OnceLock::new();
    match commit() {
        Some(commit) => VERSION_TEXT.get_or_init(|| format!("{VERSION} ({commit})")),
        None => VERSION,
    }
}

/// Abbreviates the commit that HEAD points to according to git's log of HEAD; empty if the log is.
///
/// Lines of the log are `OLD NEW AUTHOR...`, and the last one counts.
pub const fn head(log: &'static [u8]) -> &'static str {
    let Some((_, ended)) = log.split_last() else {
        return "";
    };
    let mut line = ended;
    let mut at = ended.len();
    while at > 0 {
        at -= 1;
        if ended[at] == b'\n' {
            line = ended.split_at(at + 1).1;
            break;
        }
    }
    let mut space = 0;
    while space < line.len() && line[space] != b' ' {
        space += 1;
    }
    if line.len() <= space + DIGITS {
        return "";
    }
    let commit = line.split_at(space + 1).1.split_at(DIGITS).0;
    match std::str::from_utf8(commit) {
        Ok(commit) => commit,
        Err(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_the_log_names_the_commit() {
        let zero = b"0000000000000000000000000000000000000000 0123456789abcdef0123456789abcdef01234567 \xe9 <a@b> 0 +0000\tclone\n";
        assert_eq!(head(zero), "0123456789ab");
        let two = b"0 1 a\n0123 fedcba9876543210fedcba98 a <a@b> 0 +0000\tcommit: b\n";
        assert_eq!(head(two), "fedcba987654");
        for none in [&b""[..], b"\n", b"0123\n", b"0123 \n", b"0123 4567\n"] {
            assert_eq!(head(none), "");
        }
    }
}
