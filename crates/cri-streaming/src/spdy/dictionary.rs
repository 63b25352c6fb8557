//! The compression dictionary for header blocks (SPDY/3, section 2.6.10.1): common names and values in the form of a
//! header block, then plain text.

/// Each is preceded by its length in four bytes.
const DICTIONARY_WORDS: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

const DICTIONARY_TEXT: &str = "\
    100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized\
    403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
    chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
    text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// Length of the dictionary, in bytes.
const DICTIONARY_LEN: usize = 1423;

/// The dictionary.
pub(crate) static HEADER_DICTIONARY: [u8; DICTIONARY_LEN] = build();

/// Adler-32 of the dictionary, which identifies it in a zlib stream.
pub(super) const DICTIONARY_ADLER32: u32 = 0xe3c6_a7c2;

const fn build() -> [u8; DICTIONARY_LEN] {
    let mut all = [0; DICTIONARY_LEN];
    let mut at = 0;
    let mut word = 0;
    while word < DICTIONARY_WORDS.len() {
        let bytes = DICTIONARY_WORDS[word].as_bytes();
        all[at + 3] = bytes.len() as u8;
        at = put(&mut all, at + 4, bytes);
        word += 1;
    }
    assert!(put(&mut all, at, DICTIONARY_TEXT.as_bytes()) == DICTIONARY_LEN);
    all
}

const fn put(all: &mut [u8; DICTIONARY_LEN], at: usize, bytes: &[u8]) -> usize {
    let mut i = 0;
    while i < bytes.len() {
        all[at + i] = bytes[i];
        i += 1;
    }
    at + i
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn the_dictionary_matches_the_specification() {
        let (a, b) = HEADER_DICTIONARY.iter().fold((1u32, 0u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        });
        assert_eq!(b << 16 | a, DICTIONARY_ADLER32);
        let sum = Sha256::digest(HEADER_DICTIONARY);
        assert_eq!(sum[..4], [0x51, 0xd2, 0x73, 0x41]);
        assert_eq!(sum[29..], [0x40, 0x7f, 0x02]);
    }
}
