//! Quantities in the notation of Kubernetes (`resource.Quantity`), which goresctrl uses: `50M`, `64Mi`, `10k`, `1.5G`, `1e6`.

/// Most digits of a number, so that no arithmetic overflows.
const DIGITS: usize = 18;

/// Parses a quantity that is not negative; fractions are rounded up.
pub(super) fn parse(text: &str) -> Result<u64, &'static str> {
    const SYNTAX: &str = "not a quantity such as 1000 or 50M";
    let number = text.strip_prefix('+').unwrap_or(text);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = number.split_at(end.unwrap_or(number.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || digits.len() > DIGITS || fraction.contains('.') {
        return Err(SYNTAX);
    }
    let digits: u128 = digits.parse().map_err(|_| SYNTAX)?;
    let (binary, decimal) = scale(suffix).ok_or(SYNTAX)?;
    // The number of fractional digits is at most DIGITS.
    let decimal = decimal - i32::try_from(fraction.len()).unwrap_or_default();
    let power = 10_u128.pow(decimal.unsigned_abs());
    let value = digits << binary;
    let value = if decimal < 0 {
        Some(value.div_ceil(power))
    } else {
        value.checked_mul(power)
    };
    let value = value.and_then(|value| i64::try_from(value).ok());
    value.map(i64::cast_unsigned).ok_or("too large")
}

/// The powers of 2 and of 10 that a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    let scale = match suffix {
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // More cannot be a number of bytes.
            let bounds = -DIGITS.cast_signed() as i32..=DIGITS.cast_signed() as i32;
            return bounds.contains(&exponent).then_some((0, exponent));
        }
    };
    Some(scale)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, value) in [
            ("0", 0),
            ("80", 80),
            ("+80", 80),
            ("10k", 10_000),
            ("50M", 50_000_000),
            ("64Mi", 64 << 20),
            ("1.5G", 1_500_000_000),
            ("1.5Gi", 3 << 29),
            (".5k", 500),
            ("2.", 2),
            ("1e6", 1_000_000),
            ("1E3", 1_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e-1", 1),
            // Rounded up.
            ("1500m", 2),
            ("0.1", 1),
            ("1n", 1),
            ("7Ei", 7 << 60),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "k",
            ".",
            "K",
            "10K",
            "64 M",
            "64MB",
            "-1",
            "1.2.3",
            "1e",
            "1e99",
            "8Ei",
            "10E",
            "0x10",
            "1234567890123456789",
            "1e19",
        ] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }
}
