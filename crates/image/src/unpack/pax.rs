//! Extended headers of an archive (POSIX pax). Records are split by length, not by line, because values may contain any byte.

use std::io;

use super::sparse::{KEYS, SparseRecords, non_empty};
use crate::error::bad;

/// The extended header of an entry.
#[derive(Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<i64>,
    pub(super) gid: Option<i64>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) sparse: SparseRecords,
}

const XATTR: &[u8] = b"SCHILY.xattr.";
/// Maximum number of extended attributes of one file. Linux lists at most 64 KiB of names.
const MAX_XATTRS: usize = 1024;

impl Pax {
    pub(super) fn parse(mut bytes: &[u8]) -> io::Result<Self> {
        let mut pax = Self::default();
        while !bytes.is_empty() {
            let (key, value, rest) = record(bytes).ok_or_else(|| bad("damaged pax header"))?;
            pax.take(key, value)?;
            bytes = rest;
        }
        Ok(pax)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match key {
            b"path" => self.path = non_empty(value),
            b"linkpath" => self.link = non_empty(value),
            b"size" => {
                let size = number(key, value)?.map(u64::try_from).transpose();
                self.size = size.map_err(|_| damaged(key))?;
            }
            b"uid" => self.uid = number(key, value)?,
            b"gid" => self.gid = number(key, value)?,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(time(value).ok_or_else(|| damaged(key))?),
            _ => {
                if let Some(key) = key.strip_prefix(KEYS) {
                    return self.sparse.take(key, value);
                }
                if let Some(name) = key.strip_prefix(XATTR) {
                    if self.xattrs.len() == MAX_XATTRS {
                        return Err(bad(format!("more than {MAX_XATTRS} attributes")));
                    }
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

fn damaged(key: &[u8]) -> io::Error {
    bad(format!("damaged pax header \"{}\"", key.escape_ascii()))
}

fn number(key: &[u8], value: &[u8]) -> io::Result<Option<i64>> {
    if value.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(value).map_err(|_| damaged(key))?;
    text.parse().map(Some).map_err(|_| damaged(key))
}

/// Splits off `LENGTH KEY=VALUE\n`. The length covers all of it.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|b| *b == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    if length > bytes.len() || length < space + 2 {
        return None;
    }
    let (record, rest) = bytes.split_at(length);
    let body = record[space + 1..].strip_suffix(b"\n")?;
    let equals = body.iter().position(|b| *b == b'=')?;
    if equals == 0 {
        return None;
    }
    Some((&body[..equals], &body[equals + 1..], rest))
}

/// Parses `seconds` or `seconds.fraction`.
fn time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = seconds.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanos: u32 = digits.parse().ok()?;
    if seconds.starts_with('-') && nanos > 0 {
        return Some((whole.checked_sub(1)?, 1_000_000_000 - nanos));
    }
    Some((whole, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &str, value: &[u8]) -> Vec<u8> {
        let body = key.len() + value.len() + 3;
        let mut length = body + 1;
        while length.to_string().len() + body != length {
            length += 1;
        }
        let mut line = format!("{length} {key}=").into_bytes();
        line.extend(value);
        line.push(b'\n');
        line
    }

    #[test]
    fn values_may_contain_any_byte() {
        let mut text = line("path", b"a/b");
        text.extend(line("SCHILY.xattr.security.capability", b"\x01\n\0=\n"));
        text.extend(line("uid", b"4000000000"));
        text.extend(line("mtime", b"-1.25"));
        text.extend(line("comment", b""));
        let pax = Pax::parse(&text).expect("pax");
        assert_eq!(pax.path.as_deref(), Some(&b"a/b"[..]));
        assert_eq!(pax.xattrs[0].1, b"\x01\n\0=\n");
        assert_eq!(pax.uid, Some(4_000_000_000));
        assert_eq!(pax.mtime, Some((-2, 750_000_000)));
    }

    #[test]
    fn records_without_a_value_leave_what_the_header_says() {
        for key in ["size", "uid", "gid", "mtime", "path", "linkpath"] {
            let mut text = line(key, b"7");
            text.extend(line(key, b""));
            let pax = Pax::parse(&text).expect(key);
            assert!(
                pax.path.is_none() && pax.link.is_none() && pax.mtime.is_none(),
                "{key}"
            );
            assert_eq!((pax.size, pax.uid, pax.gid), (None, None, None), "{key}");
        }
        let pax = Pax::parse(&line("uid", b"-2")).expect("negative");
        assert_eq!(pax.uid, Some(-2));
        assert_eq!(
            Pax::parse(&line("mtime", b"5.")).expect("time").mtime,
            Some((5, 0))
        );
    }

    #[test]
    fn damaged_ones_are_refused() {
        for wrong in [
            &b"x"[..],
            b"9 a=b\n",
            b"5 a=b",
            b"0 a=b\n",
            b"99999999999999999999 a=b\n",
            b"5 ab\n",
            b"5 =ab\n",
            b" a=b\n",
        ] {
            assert!(Pax::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(Pax::parse(&line("size", b"-1")).is_err());
        let many: Vec<u8> = (0..=MAX_XATTRS)
            .flat_map(|n| line(&format!("SCHILY.xattr.user.{n}"), b""))
            .collect();
        assert!(Pax::parse(&many).is_err());
        assert!(Pax::parse(&line("mtime", b"-9223372036854775808.5")).is_err());
        assert!(Pax::parse(&line("GNU.sparse.numbytes", b"1")).is_err());
    }
}
