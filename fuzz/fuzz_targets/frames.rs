//! Well-formed SPDY frames: each has a type, an id, flags and a length, then its content. Headers are compressed here,
//! because random bytes never inflate.
#![no_main]

use flate2::{Compress, Compression, FlushCompress};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cri_streaming::spdy::fuzz(&frames(bytes));
});

fn frames(mut bytes: &[u8]) -> Vec<u8> {
    // Without the dictionary, which is optional for clients.
    let mut deflate = Compress::new(Compression::fast(), true);
    let mut out = Vec::new();
    while let [kind, id, flags, len, rest @ ..] = bytes {
        let (content, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let id = u32::from(*id).to_be_bytes();
        let payload = match kind % 10 {
            0 => {
                out.extend(id);
                out.push(*flags);
                // Repeated, so that small inputs produce large contents.
                let content = content.repeat(1 + usize::from(kind / 10) * 4);
                out.extend(&u32::try_from(content.len()).expect("small").to_be_bytes()[1..]);
                out.extend(content);
                continue;
            }
            kind @ (1 | 2 | 8) => {
                let mut block = Vec::with_capacity(content.len() + 1024);
                deflate
                    .compress_vec(content, &mut block, FlushCompress::Sync)
                    .expect("compresses");
                let between: &[u8] = if kind == 1 { &[0; 6] } else { &[] };
                [&id[..], between, &block].concat()
            }
            3 | 7 | 9 => [&id[..], &[0, 0, 0, *flags]].concat(),
            _ => [&id[..], content].concat(),
        };
        out.extend([0x80, 3, 0, kind % 10, *flags]);
        out.extend(&u32::try_from(payload.len()).expect("small").to_be_bytes()[1..]);
        out.extend(payload);
    }
    out
}
