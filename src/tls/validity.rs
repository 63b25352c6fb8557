//! Reads the expiry of a certificate. rustls verifies this field in certificates of peers, and offers no way to read it.

use ring::error::Unspecified;
use ring::io::der::{Tag, expect_tag_and_get_value, nested, read_tag_and_get_value};
use time::{PrimitiveDateTime, UtcOffset};
use untrusted::{Input, Reader};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The form of both, with the century (RFC 5280, section 4.1.2.5).
const TIME_FORMAT: &str = "[year][month][day][hour][minute][second]Z";

/// The field `notAfter` of a certificate in DER, in seconds since 1970; `None` if it is not a certificate.
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let read = Input::from(certificate).read_all(Unspecified, |input| {
        nested(input, Tag::Sequence, Unspecified, |input| {
            let end = nested(input, Tag::Sequence, Unspecified, to_be_signed)?;
            input.skip_to_end();
            Ok(end)
        })
    });
    seconds(read.ok()?)
}

/// The tag and the text of `notAfter` (RFC 5280, section 4.1).
fn to_be_signed<'a>(input: &mut Reader<'a>) -> Result<(u8, Input<'a>), Unspecified> {
    // The version, which certificates of version 1 lack; then the serial number.
    if input.peek(Tag::ContextSpecificConstructed0.into()) {
        read_tag_and_get_value(input)?;
    }
    expect_tag_and_get_value(input, Tag::Integer)?;
    // The algorithm and the issuer.
    expect_tag_and_get_value(input, Tag::Sequence)?;
    expect_tag_and_get_value(input, Tag::Sequence)?;
    let end = nested(input, Tag::Sequence, Unspecified, |validity| {
        read_tag_and_get_value(validity)?;
        read_tag_and_get_value(validity)
    })?;
    input.skip_to_end();
    Ok(end)
}

fn seconds((tag, text): (u8, Input<'_>)) -> Option<i64> {
    let text = str::from_utf8(text.as_slice_less_safe()).ok()?;
    let text = match tag {
        // A year of two digits lies between 1950 and 2049.
        UTC_TIME if text.as_bytes().first()? >= &b'5' => format!("19{text}"),
        UTC_TIME => format!("20{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let form = time::format_description::parse_borrowed::<2>(TIME_FORMAT).ok()?;
    let time = PrimitiveDateTime::parse(&text, &form).ok()?;
    Some(time.assume_offset(UtcOffset::UTC).unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tag: u8, text: &str) -> Option<i64> {
        seconds((tag, Input::from(text.as_bytes())))
    }

    #[test]
    fn both_forms_of_time_are_read() {
        assert_eq!(at(UTC_TIME, "700101000001Z"), Some(1));
        assert_eq!(at(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(at(UTC_TIME, "500101000000Z"), Some(-631_152_000));
        assert_eq!(at(GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        // Of a certificate that never expires (RFC 5280, section 4.1.2.5).
        assert_eq!(
            at(GENERALIZED_TIME, "99991231235959Z"),
            Some(253_402_300_799)
        );
        for odd in [
            "",
            "7001010000Z",
            "700101000001+0100",
            "701301000001Z",
            "äöü",
        ] {
            assert_eq!(at(UTC_TIME, odd), None, "{odd}");
        }
        assert_eq!(at(4, "700101000001Z"), None);
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for odd in [
            &b""[..],
            b"\x30",
            b"\x30\x00",
            b"\x30\x80\x00\x00",
            b"\x30\x02\x30\x00",
        ] {
            assert_eq!(not_after(odd), None, "{odd:?}");
        }
    }
}
