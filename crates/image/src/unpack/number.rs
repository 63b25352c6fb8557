//! Numbers in headers, as Go's `archive/tar` reads them.

use std::io;

use crate::error::bad;

/// Reads octal digits, or the binary form of GNU and star for larger and negative numbers. As in Go, an empty field is 0, and what
/// follows the digits after a zero byte or a space does not count.
pub(super) fn numeric(field: &[u8]) -> io::Result<i64> {
    let number = match field.first() {
        Some(first) if first & 0x80 != 0 => binary(field),
        _ => octal(field),
    };
    number.ok_or_else(|| bad("a damaged number in a header"))
}

/// Reads a number that cannot be negative.
pub(super) fn unsigned(field: &[u8]) -> io::Result<u64> {
    u64::try_from(numeric(field)?).map_err(|_| bad("a negative size in a header"))
}

/// Reads a time. An invalid one is the Unix epoch.
pub(super) fn seconds(field: &[u8]) -> i64 {
    numeric(field).unwrap_or(0)
}

/// The id of a user or group. Negative numbers, such as -2, stand for the largest ids, as the system call reads them.
pub(super) fn id(number: i64) -> io::Result<u32> {
    u32::try_from(number)
        .or_else(|_| i32::try_from(number).map(i32::cast_unsigned))
        .map_err(|_| bad(format!("user or group id {number}")))
}

/// Two's complement, in which the highest bit of the first byte only marks the form.
fn binary(field: &[u8]) -> Option<i64> {
    let is_negative = field.first()? & 0x40 != 0;
    let inverted = if is_negative { 0xff } else { 0 };
    let mut number = 0_u64;
    for (place, byte) in field.iter().enumerate() {
        let mask = if place == 0 { 0x7f } else { 0xff };
        if number >> 56 != 0 {
            return None;
        }
        number = number << 8 | u64::from((byte ^ inverted) & mask);
    }
    let number = i64::try_from(number).ok()?;
    Some(if is_negative { !number } else { number })
}

fn octal(field: &[u8]) -> Option<i64> {
    let digits = field.iter().skip_while(|byte| is_blank(**byte));
    let mut digits = digits.take_while(|byte| !is_blank(**byte));
    digits.try_fold(0_i64, |sum, digit| match digit {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_go_reads() {
        for (field, number) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"  644 \0\0", Some(0o644)),
            (b"\0\0 644\0", Some(0o644)),
            (b"644\0xyz", Some(0o644)),
            (b"00000644", Some(0o644)),
            (b"", Some(0)),
            (b"\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"\x80\0\0\0\x01\0\0\0\0", Some(1 << 32)),
            (b"\x80", Some(0)),
            (
                b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
                Some(i64::MAX),
            ),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\xff\xff\xff\xff\x80\0\0\0\0\0\0\0", Some(i64::MIN)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\x80\0\0\x01\0\0\0\0\0\0\0\0", None),
            (b"0000648\0", None),
            (b"x\0", None),
            (b"-1", None),
            (b"7777777777777777777777777", None),
        ] {
            assert_eq!(numeric(field).ok(), number, "{}", field.escape_ascii());
        }
        assert!(unsigned(b"\xff\xff\xff\xff").is_err());
        assert_eq!(seconds(b"\xff\xff\xff\xfe"), -2);
        assert_eq!(seconds(b"x"), 0);
    }

    #[test]
    fn negative_ids_are_the_largest_ones() {
        assert_eq!(id(-2).expect("nobody"), 4_294_967_294);
        assert_eq!(id(4_294_967_294).expect("nobody"), 4_294_967_294);
        // Others cut it, and the file would belong to root.
        assert!(id(1 << 32).is_err() && id(-(1 << 32)).is_err());
    }
}
