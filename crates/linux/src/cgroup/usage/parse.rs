//! Parsers for the formats of cgroup files (cgroup-v2.rst, cgroup-v1/*.rst).

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use nix::errno::Errno;

use super::{Error, Pressure, Stalled, limited};

/// Larger than nearly all files, so that a file is read with two calls: its text, and its end.
const TEXT: usize = 4096;

/// The text of a file; `None` if it does not exist, or its cgroup was removed while it was read.
pub(super) fn text(dir: &Path, name: &str) -> Result<Option<String>, Error> {
    let path = dir.join(name);
    match read_text(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(source) => Err(Error::Io { path, source }),
    }
}

/// Reads a file without asking for its size, which is zero.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::with_capacity(TEXT);
    let mut file = File::open(path)?.take(u64::MAX);
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Pressure files return `EOPNOTSUPP` if PSI is disabled.
fn is_absent(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw);
    matches!(
        number,
        Some(Errno::ENOENT | Errno::ENODEV | Errno::ENOTDIR | Errno::EOPNOTSUPP)
    )
}

fn format(dir: &Path, name: &str) -> Error {
    Error::Format {
        path: dir.join(name),
    }
}

/// One number.
pub(super) fn number(dir: &Path, name: &str) -> Result<Option<u64>, Error> {
    let Some(text) = text(dir, name)? else {
        return Ok(None);
    };
    let value = text.trim().parse().map_err(|_| format(dir, name))?;
    Ok(Some(value))
}

/// A limit: a number, or `max`; version 1 has -1 or a very large number for no limit.
pub(super) fn limit(dir: &Path, name: &str) -> Result<Option<u64>, Error> {
    match text(dir, name)?.as_deref().map(str::trim) {
        None | Some("max" | "-1") => Ok(None),
        Some(text) => {
            let value = text.parse().map_err(|_| format(dir, name))?;
            Ok(limited(value))
        }
    }
}

/// A name and a number per line.
pub(super) struct Flat(String);

impl Flat {
    pub(super) fn get(&self, name: &str) -> u64 {
        self.find(name).unwrap_or(0)
    }

    pub(super) fn find(&self, name: &str) -> Option<u64> {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse().ok()
    }

    /// Converts a number of microseconds to nanoseconds.
    pub(super) fn nanoseconds(&self, name: &str) -> u64 {
        self.get(name).saturating_mul(1000)
    }
}

pub(super) fn flat(dir: &Path, name: &str) -> Result<Option<Flat>, Error> {
    let Some(text) = text(dir, name)? else {
        return Ok(None);
    };
    if !is_flat(&text) {
        return Err(format(dir, name));
    }
    Ok(Some(Flat(text)))
}

fn is_flat(text: &str) -> bool {
    text.lines().all(|line| {
        let value = line.split_once(' ').map(|(_, value)| value.trim());
        value.is_some_and(|value| value.parse::<u64>().is_ok())
    })
}

/// Fuzz target: parses a text in each of the kernel's formats.
pub fn fuzz(text: &str) {
    let _ = (is_flat(text), pressure_text(text), device(text));
}

/// `MAJOR:MINOR`
pub(super) fn device(word: &str) -> Option<(u32, u32)> {
    let (major, minor) = word.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same for `full`.
pub(super) fn pressure(dir: &Path, name: &str) -> Result<Option<Pressure>, Error> {
    let Some(text) = text(dir, name)? else {
        return Ok(None);
    };
    let read = pressure_text(&text).ok_or_else(|| format(dir, name))?;
    Ok(Some(read))
}

fn pressure_text(text: &str) -> Option<Pressure> {
    let full = match pressure_line(text, "full") {
        Some(line) => Some(stalled(line)?),
        None => None,
    };
    Some(Pressure {
        some: stalled(pressure_line(text, "some")?)?,
        full,
    })
}

fn pressure_line<'a>(text: &'a str, kind: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))
}

fn stalled(line: &str) -> Option<Stalled> {
    Some(Stalled {
        avg10: pressure_value(line, "avg10")?.parse().ok()?,
        avg60: pressure_value(line, "avg60")?.parse().ok()?,
        avg300: pressure_value(line, "avg300")?.parse().ok()?,
        total: pressure_value(line, "total")?
            .parse::<u64>()
            .ok()?
            .saturating_mul(1000),
    })
}

fn pressure_value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut words = line.split(' ');
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}
