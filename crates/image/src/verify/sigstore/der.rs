//! The extensions of a certificate (RFC 5280, 4.1), which webpki checks but does not expose. The certificate must have been
//! accepted by webpki before.

const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
/// `[3] EXPLICIT` in a TBSCertificate.
const EXTENSIONS: u8 = 0xa3;

/// An extension: the content of its object identifier, and its value.
#[derive(Debug)]
pub(super) struct Extension<'a> {
    pub(super) id: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Splits off the first value: its tag, its content, and what follows.
pub(super) fn value(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // At most 64 KiB: 0x80 alone would be an indefinite length, which DER has not.
        0x81..=0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (
                bytes
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte)),
                rest,
            )
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn expect(input: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = value(input)?;
    (tag == wanted).then_some((content, rest))
}

/// All extensions of a certificate.
pub(super) fn extensions(certificate: &[u8]) -> Option<Vec<Extension<'_>>> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    while !fields.is_empty() {
        let (tag, content, rest) = value(fields)?;
        if tag == EXTENSIONS {
            let (list, _) = expect(content, SEQUENCE)?;
            return each(list);
        }
        fields = rest;
    }
    Some(Vec::new())
}

fn each(mut list: &[u8]) -> Option<Vec<Extension<'_>>> {
    let mut found = Vec::new();
    while !list.is_empty() {
        let (extension, rest) = expect(list, SEQUENCE)?;
        let (id, after) = expect(extension, OBJECT_ID)?;
        // `critical` may stand in between.
        let value = match value(after)? {
            (OCTET_STRING, value, _) => value,
            (_, _, after) => expect(after, OCTET_STRING)?.0,
        };
        found.push(Extension { id, value });
        list = rest;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_lie_are_no_values() {
        assert_eq!(value(&[4, 1, 7, 9]), Some((4, &[7][..], &[9][..])));
        assert_eq!(value(&[4, 0x81, 1, 7]), Some((4, &[7][..], &[][..])));
        for wrong in [
            &[4][..],
            &[4, 2, 7],
            &[4, 0x80, 0, 0],
            &[4, 0x82, 1],
            &[4, 0x84, 0, 0, 0, 1, 7],
        ] {
            assert_eq!(value(wrong), None, "{wrong:?}");
            assert!(extensions(wrong).is_none());
        }
    }
}
