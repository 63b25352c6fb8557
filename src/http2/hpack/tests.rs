//! The examples of RFC 7541, appendix C, and many headers that nobody wrote down.

use http::{HeaderName, HeaderValue};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

use super::decode::{Decoder, Unreadable};
use super::encode::Encoder;
use super::*;

/// As text.
fn show(field: &Field) -> (String, String) {
    let (name, value) = match field {
        Field::Authority(authority) => (":authority", authority.to_string()),
        Field::Method(method) => (":method", method.to_string()),
        Field::Path(path) => (":path", path.to_string()),
        Field::Scheme(scheme) => (":scheme", scheme.to_string()),
        Field::Status(status) => (":status", status.as_str().to_owned()),
        Field::Header(name, value) => {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.as_str(), value.into_owned())
        }
        Field::Bad(_) => ("bad", String::new()),
    };
    (name.to_owned(), value)
}

fn read(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, Unreadable> {
    let mut fields = Vec::new();
    decoder.decode(block, |field, _| fields.push(show(&field)))?;
    Ok(fields)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    digits.chunks(2).map(|p| byte(p).expect("hex")).collect()
}

fn assert_session(decoder: &mut Decoder, blocks: &[(&str, &[&str])]) {
    for (block, want) in blocks {
        let fields = read(decoder, &hex(block)).expect("readable");
        let fields: Vec<_> = fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        assert_eq!(fields, *want);
    }
}

/// C.3 and C.4: the same requests, as text and in Huffman's code.
#[test]
fn requests_of_the_specification() {
    let first = [
        ":method: GET",
        ":scheme: http",
        ":path: /",
        ":authority: www.example.com",
    ];
    let second = [&first[..], &["cache-control: no-cache"]].concat();
    let third = [
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ];
    assert_session(
        &mut Decoder::default(),
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", &first),
            ("8286 84be 5808 6e6f 2d63 6163 6865", &second),
            (
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                &third,
            ),
        ],
    );
    assert_session(
        &mut Decoder::default(),
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &first),
            ("8286 84be 5886 a8eb 1064 9cbf", &second),
            (
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
                &third,
            ),
        ],
    );
}

/// C.5 and C.6: answers, with a table of 256 bytes that has to let go.
#[test]
fn answers_of_the_specification() {
    let date = |at: u32| format!("date: Mon, 21 Oct 2013 20:13:{at} GMT");
    let (dates, location) = ([date(21), date(22)], "location: https://www.example.com");
    let first = [
        ":status: 302",
        "cache-control: private",
        &dates[0],
        location,
    ];
    let second = [
        ":status: 307",
        "cache-control: private",
        &dates[0],
        location,
    ];
    let third = [
        ":status: 200",
        "cache-control: private",
        &dates[1],
        location,
        "content-encoding: gzip",
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ];
    let small = || {
        let mut decoder = Decoder::default();
        // As it would be announced.
        read(&mut decoder, &[0x3f, 0xe1, 0x01]).expect("a size");
        decoder
    };
    assert_session(
        &mut small(),
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 \
                 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                &first,
            ),
            ("4803 3330 37c1 c0bf", &second),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a \
                 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d \
                 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
                &third,
            ),
        ],
    );
    assert_session(
        &mut small(),
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d \
                 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                &first,
            ),
            ("4883 640e ffc1 c0bf", &second),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d \
                 d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 \
                 3d50 07",
                &third,
            ),
        ],
    );
}

#[test]
fn secrets_stay_secret() {
    // C.2.3: never indexed.
    let block = hex("1008 7061 7373 776f 7264 0673 6563 7265 74");
    let mut fields = Vec::new();
    let mut decoder = Decoder::default();
    decoder
        .decode(&block, |field, _| fields.push(field))
        .expect("readable");
    let Field::Header(name, value) = &fields[0] else {
        panic!("a header");
    };
    assert!(value.is_sensitive());
    // It goes on as it came, and into no table.
    let mut out = Vec::new();
    Encoder::default().header(&mut out, name, value);
    assert_eq!(out, block);
    assert_eq!(read(&mut decoder, &[0xbe]), Err(Unreadable));
}

#[test]
fn what_cannot_be_read() {
    let blocks: [&[u8]; 9] = [
        // Index 0, beyond the tables, and one that does not end.
        &[0x80],
        &[0xbe],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        // A name without a value, a string that is cut off.
        &[0x40, 0x01, b'a'],
        &[0x40, 0x01, b'a', 0x05, b'b'],
        // A table that is too large, and a size behind a header.
        &[0x3f, 0xe2, 0x1f],
        &[0x82, 0x20],
        // Bad code.
        &[0x40, 0x81, 0x00, 0x00],
        &[0x00],
    ];
    for block in blocks {
        assert_eq!(
            read(&mut Decoder::default(), block),
            Err(Unreadable),
            "{block:x?}"
        );
    }
    assert_eq!(
        read(&mut Decoder::default(), &[0x3f, 0xe1, 0x1f]),
        Ok(vec![])
    );
}

#[test]
fn what_no_message_may_hold() {
    let bad: [&[u8]; 6] = [
        b"\x00\x02Aa\x01b",
        b"\x00\x0aconnection\x05close",
        b"\x00\x02te\x04gzip",
        b"\x00\x07:method\x00",
        b"\x00\x05:path\x00",
        b"\x00\x01a\x01\n",
    ];
    for block in bad {
        let fields = read(&mut Decoder::default(), block).expect("readable");
        assert_eq!(fields[0].0, "bad", "{block:x?}");
    }
    // It enters the table like any other, and its name can be used from there.
    let block = b"\x40\x02Aa\x01b\xbe\x7e\x01c";
    assert_eq!(
        read(&mut Decoder::default(), block)
            .expect("readable")
            .len(),
        3
    );
}

/// Kubelets and crictl up to 1.30 send such (kubernetes/kubernetes#123463).
#[test]
fn an_authority_that_is_a_path_becomes_localhost() {
    for (block, want) in [
        (&b"\x41\x0d/run/cri.sock"[..], "localhost"),
        (b"\x41\x0e%2Frun%2Fa.soc", "localhost"),
        (b"\x41\x85\x62\xcb\x6a\x63\xcf", "localhost"),
        (b"\x41\x09[::1]:443", "[::1]:443"),
    ] {
        let mut decoder = Decoder::default();
        for block in [block, &[0xbe]] {
            let fields = read(&mut decoder, block).expect("readable");
            assert_eq!(fields, [(":authority".to_owned(), want.to_owned())]);
        }
    }
}

fn header(rng: &mut StdRng) -> (HeaderName, HeaderValue) {
    let names = ["content-type", "user-agent", "x-a", "x-b", "grpc-timeout"];
    let name = match rng.random_bool(0.7) {
        true => HeaderName::from_static(names.choose(rng).expect("some")),
        false => format!("x-{}", rng.random_range(0..200))
            .parse()
            .expect("a name"),
    };
    let len = [0, 1, 7, 8, 9, 30, 126, 127, 128, 300, 5000].choose(rng);
    let kind = rng.random_range(0..3u8);
    let value = vec![b'a' + kind; *len.expect("some")];
    let mut value = HeaderValue::from_bytes(&value).expect("a value");
    value.set_sensitive(rng.random_bool(0.05));
    (name, value)
}

#[test]
fn whatever_is_written_is_read() {
    let mut rng = StdRng::seed_from_u64(3);
    for _ in 0..50 {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut limit = TABLE_SIZE;
        for _ in 0..100 {
            for _ in 0..rng.random_range(0..3) {
                limit = rng.random_range(0..6000);
                if rng.random_bool(0.2) {
                    limit = 0;
                }
                encoder.limit(limit);
            }
            let headers: Vec<_> = (0..rng.random_range(0..12))
                .map(|_| header(&mut rng))
                .collect();
            let (mut out, mut at) = (Vec::new(), 0);
            encoder.begin(&mut out);
            for (name, value) in &headers {
                encoder.header(&mut out, name, value);
            }
            let read = decoder.decode(&out, |field, weight| {
                let (name, value) = &headers[at];
                assert_eq!(weight, name.as_str().len() + value.len() + OVERHEAD);
                let Field::Header(got, got_value) = field else {
                    panic!("a header");
                };
                assert_eq!((&got, &got_value), (name, value));
                assert_eq!(got_value.is_sensitive(), value.is_sensitive());
                at += 1;
            });
            assert_eq!((read, at), (Ok(()), headers.len()));
            assert!(decoder.size() <= limit.min(TABLE_SIZE));
        }
    }
}

#[test]
fn noise_is_refused_or_read_but_never_fatal() {
    let mut rng = StdRng::seed_from_u64(4);
    let mut encoder = Encoder::default();
    let mut readable = 0;
    for _ in 0..20_000 {
        let mut block = Vec::new();
        if rng.random_bool(0.5) {
            block = vec![0; rng.random_range(0..100)];
            rng.fill_bytes(&mut block);
        } else {
            for _ in 0..4 {
                let (name, value) = header(&mut rng);
                encoder.header(&mut block, &name, &value);
            }
            for _ in 0..rng.random_range(0..4) {
                let at = rng.random_range(0..block.len());
                block[at] = rng.random();
            }
        }
        let mut decoder = Decoder::default();
        readable += usize::from(read(&mut decoder, &block).is_ok());
        assert!(decoder.size() <= TABLE_SIZE);
    }
    assert!((100..19_900).contains(&readable), "{readable}");
}
