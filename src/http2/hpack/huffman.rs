//! The code of RFC 7541, appendix B. It is canonical: codes of one length ascend with their symbols, so the lengths are
//! all there is to know. Only decoded: what is sent is nearly always an index into a table, and plain text is sooner
//! written than code.

/// Length of the code of each symbol, in bits; the last is the end of the string, which may not appear.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];

const LONGEST: usize = 30;
const END: u16 = 256;

/// The codes, ordered.
struct Codes {
    /// First code of each length.
    first: [u32; LONGEST + 1],
    /// How many there are of each length.
    count: [u32; LONGEST + 1],
    /// Where those of each length begin in `symbols`.
    start: [usize; LONGEST + 1],
    symbols: [u16; 257],
    /// Symbol and length of the code that a byte begins with; length 0 if that is longer than the byte.
    short: [(u8, u8); 256],
}

static CODES: Codes = codes();

const fn codes() -> Codes {
    let mut codes = Codes {
        first: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
        start: [0; LONGEST + 1],
        symbols: [0; 257],
        short: [(0, 0); 256],
    };
    let (mut code, mut placed, mut length) = (0u32, 0, 1);
    while length <= LONGEST {
        code <<= 1;
        codes.first[length] = code;
        codes.start[length] = placed;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                codes.symbols[placed] = symbol as u16;
                if length <= 8 {
                    let mut byte = (code as usize) << (8 - length);
                    let end = (code as usize + 1) << (8 - length);
                    while byte < end {
                        codes.short[byte] = (symbol as u8, length as u8);
                        byte += 1;
                    }
                }
                placed += 1;
                code += 1;
            }
            symbol += 1;
        }
        codes.count[length] = code - codes.first[length];
        length += 1;
    }
    codes
}

/// Appends the text; `None` if it is not encoded properly.
pub(super) fn decode(encoded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // What was read and not decoded yet, from the top bit down.
    let (mut window, mut bits) = (0u64, 0u32);
    let mut rest = encoded.iter();
    loop {
        while bits <= 56
            && let Some(byte) = rest.next()
        {
            window |= u64::from(*byte) << (56 - bits);
            bits += 8;
        }
        if bits == 0 {
            return Some(());
        }
        let [top, ..] = window.to_be_bytes();
        let (symbol, length) = match CODES.short[usize::from(top)] {
            (_, 0) => long(window)?,
            (symbol, length) => (symbol, u32::from(length)),
        };
        if length > bits {
            // Padding: less than a byte, and the beginning of the end of the string, which is all ones.
            let is_padding = bits < 8 && window.leading_ones() >= bits;
            return is_padding.then_some(());
        }
        out.push(symbol);
        window <<= length;
        bits -= length;
    }
}

/// A code of more than eight bits. Past the end of the string the window holds zeros.
fn long(window: u64) -> Option<(u8, u32)> {
    for length in 9..=LONGEST {
        let code = (window >> (64 - length)) as u32;
        let place = code.wrapping_sub(CODES.first[length]);
        if place < CODES.count[length] {
            let symbol = CODES.symbols[CODES.start[length] + place as usize];
            // All ones that are padding come out here as well, with more bits than are left.
            return match symbol {
                END => None,
                symbol => Some((symbol as u8, length as u32)),
            };
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The other way, to test against.
    pub(in super::super) fn encode(text: &[u8]) -> Vec<u8> {
        let (mut window, mut bits, mut out) = (0u64, 0u32, Vec::new());
        for byte in text {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let symbols = &CODES.symbols[CODES.start[length]..];
            let place = symbols.iter().position(|s| *s == u16::from(*byte));
            let code = CODES.first[length] + place.expect("a symbol") as u32;
            window = window << length | u64::from(code);
            bits += length as u32;
            while bits >= 8 {
                bits -= 8;
                out.push((window >> bits) as u8);
            }
        }
        if bits > 0 {
            out.push((window << (8 - bits) | (0xff >> bits)) as u8);
        }
        out
    }

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    #[test]
    fn every_symbol_survives() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encode(&all)), Some(all));
        for byte in 0..=255 {
            for count in 1..9 {
                let text = vec![byte; count];
                assert_eq!(decoded(&encode(&text)), Some(text));
            }
        }
    }

    #[test]
    fn the_words_of_the_specification() {
        // RFC 7541, C.4.1.
        let bytes = b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(decoded(bytes).as_deref(), Some(&b"www.example.com"[..]));
        assert_eq!(encode(b"www.example.com"), bytes);
    }

    #[test]
    fn wrong_padding_and_the_end_are_refused() {
        // "0" is 00000; the rest has to be ones.
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Some(&b"0"[..]));
        assert_eq!(decoded(&[0b0000_0110]), None);
        assert_eq!(decoded(&[0b0000_0111, 0xff]), None, "a byte of padding");
        assert_eq!(decoded(&[0xff; 4]), None, "the end");
        assert_eq!(decoded(&[0xff]), None);
        assert_eq!(decoded(b"").as_deref(), Some(&b""[..]));
    }
}
