//! Paths in `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// Decodes the kernel's escapes: space, tab, line feed and backslash are written as three octal digits.
#[must_use]
pub fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::unescape;

    #[test]
    fn octal_escapes_are_decoded() {
        assert_eq!(unescape(br"/a\040b\134c\x"), Path::new(r"/a b\c\x"));
    }
}
