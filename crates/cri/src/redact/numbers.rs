//! Numbers and times in error texts: which are amounts, and which may be secrets.

use std::net::Ipv4Addr;

use time::format_description::well_known::Rfc3339;

use super::{is_in_run, is_in_word};

/// Most digits in a row of numbers that are shown: ports, sizes, codes and times have fewer, cards and keys more.
pub(super) const MOST_DIGITS: usize = 6;

/// Numbers with these names are no secrets, although an equals sign is between: mount options, and what OCI runtimes and
/// CNI plugins write about identities, file descriptors and links.
const NAMES: [&str; 14] = [
    "dstFd",
    "fd",
    "flags",
    "gid",
    "major",
    "minor",
    "mode",
    "mtu",
    "nr_blocks",
    "nr_inodes",
    "pid",
    "size",
    "srcFd",
    "uid",
];

/// Classes of devices in names of the Container Device Interface, `VENDOR/CLASS=NAME`, whose names may be numbers.
const DEVICE_CLASSES: [&str; 12] = [
    "accel", "device", "dpu", "fpga", "gpu", "hpu", "mig", "net", "nic", "npu", "tpu", "xpu",
];

/// Returns whether what follows this text may be a secret, although it is a number, an address or an id: the value of a
/// variable or a flag, or the character of an escape.
pub(super) fn is_value_behind(before: &str) -> bool {
    assigned(before).is_some() || before.ends_with(['%', '\\']) || before.ends_with("&#")
}

/// Returns whether a number that is such a value is none because of its name.
pub(super) fn is_amount_behind(before: &str) -> bool {
    assigned(before).is_some_and(|name| {
        // `cuda>=12.2` is a condition.
        let is_condition = name.ends_with(['<', '>']);
        is_condition || is_plain_name(name) || is_device_class(name)
    })
}

/// What stands before the equals sign at the end of a text.
fn assigned(before: &str) -> Option<&str> {
    before.trim_end_matches(['"', '\'']).strip_suffix('=')
}

/// Returns whether the text ends with one of [`NAMES`], which is no part of a longer name or a flag.
fn is_plain_name(text: &str) -> bool {
    let rest = text.trim_end_matches(is_in_run);
    NAMES.contains(&&text[rest.len()..])
}

/// Returns whether the text ends with the vendor and the class of a CDI device.
fn is_device_class(text: &str) -> bool {
    let Some((before, class)) = text.rsplit_once('/') else {
        return false;
    };
    let vendor = &before[before.trim_end_matches(is_in_run).len()..];
    // In a URL or a path, it is a parameter.
    let is_in_url = before[..before.len() - vendor.len()].ends_with(['/', '@', ':', '?', '&']);
    DEVICE_CLASSES.contains(&class) && vendor.contains('.') && !is_in_url
}

/// Returns whether a piece is a decimal number, or a hexadecimal one with its prefix.
pub(super) fn is_number(piece: &str) -> bool {
    digits(piece).is_some()
}

/// The number of digits of a decimal number, or of a hexadecimal one with its prefix; `None` if it is none.
pub(super) fn digits(piece: &str) -> Option<usize> {
    let (digits, radix) = match piece.strip_prefix("0x") {
        Some(hex) if !hex.is_empty() => (hex, 16),
        _ => (piece, 10),
    };
    let mut chars = digits.chars();
    chars.all(|c| c.is_digit(radix)).then_some(digits.len())
}

/// Numbers with units, such as `2m0s` and `64KiB`, and with the suffix of a size, such as `65536k` and `64Mi`.
pub(super) fn is_quantity(piece: &str) -> bool {
    const UNITS: [&str; 14] = [
        "h", "m", "s", "ms", "us", "µs", "ns", "b", "kb", "mb", "gb", "kib", "mib", "gib",
    ];
    // Letters of no other unit may be mixed with digits, so that fewer random texts pass.
    const SUFFIXES: [&str; 9] = ["k", "K", "g", "G", "t", "T", "Ki", "Mi", "Gi"];
    let digits = piece.bytes().filter(u8::is_ascii_digit).count();
    let suffix = piece.trim_start_matches(|c: char| c.is_ascii_digit());
    let mut units = piece
        .split(|c: char| c.is_ascii_digit())
        .filter(|unit| !unit.is_empty());
    piece.starts_with(|c: char| c.is_ascii_digit())
        && !piece.ends_with(|c: char| c.is_ascii_digit())
        && digits <= MOST_DIGITS
        && (SUFFIXES.contains(&suffix)
            || units.all(|unit| UNITS.contains(&unit.to_ascii_lowercase().as_str())))
}

/// An IPv4 address, or a range of two.
pub(super) fn is_address(word: &str) -> bool {
    match word.split_once('-') {
        Some((first, last)) => is_ipv4(first) && is_ipv4(last),
        None => is_ipv4(word),
    }
}

fn is_ipv4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok()
}

/// The time with which a text begins (RFC 3339).
pub(super) fn time_of_day(text: &str) -> Option<&str> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, 'T' | 'Z' | ':' | '.' | '-' | '+'))
        .unwrap_or(text.len());
    let time = text[..end].trim_end_matches([':', '.', '-', '+']);
    let is_cut = text[time.len()..].starts_with(is_in_word);
    let parsed = time::OffsetDateTime::parse(time, &Rfc3339).ok()?;
    (!is_cut && (1970..2200).contains(&parsed.year())).then_some(time)
}
