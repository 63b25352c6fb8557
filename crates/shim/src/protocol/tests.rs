//! The current protocol, and messages that other versions may send.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16);
    pairs.map(|pair| byte(pair).expect("hex")).collect()
}

fn create() -> Request {
    Request::Create(Create {
        id: "web".into(),
        bundle: "/b/web".into(),
        stdio: Stdio {
            tty: true,
            log: "/var/log/web.log".into(),
            max_line: 7,
            ..Stdio::default()
        },
        runtime: Runtime {
            argv: vec!["runc".into(), String::new()],
            env: vec!["A=b".into()],
            args: vec!["--force".into()],
            timeout_ms: 30_000,
            task: None,
        },
    })
}

#[test]
fn messages_round_trip() {
    let mut bytes = Vec::new();
    encode_request(9, &create(), &mut bytes);
    assert_eq!(frame_len(&bytes), Ok(Some(bytes.len())));
    assert_eq!(decode_request(&bytes[4..]), Ok((9, Ok(create()))));
    let mut bytes = Vec::new();
    encode_answer(9, &Answer::Pid(4711), &mut bytes);
    let answer = Incoming::Answer(9, Ok(Answer::Pid(4711)));
    assert_eq!(decode_incoming(&bytes[4..]), Ok(answer));
}

/// The bytes of version 2: they must remain decodable.
#[test]
fn frames_of_version_2_are_decoded() {
    let text = include_str!("vectors.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut read = 0;
    for line in lines {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("three words");
        let (kind, name, bytes) = (word(), word(), hex(word()));
        assert_eq!(frame_len(&bytes), Ok(Some(bytes.len())), "{name}");
        let mut again = Vec::new();
        match kind {
            "request" => {
                let (number, request) = decode_request(&bytes[4..]).expect(name);
                encode_request(number, &request.expect(name), &mut again);
            }
            _ => match decode_incoming(&bytes[4..]).expect(name) {
                Incoming::Answer(number, answer) => {
                    encode_answer(number, &answer.expect(name), &mut again);
                }
                Incoming::Event(event) => encode_event(&event.expect(name), &mut again),
            },
        }
        assert_eq!(again, bytes, "{kind} {name}");
        read += 1;
    }
    assert_eq!(read, 27, "vectors of all messages");
}

#[test]
fn fields_of_a_newer_version_are_ignored() {
    // Field 99 of `Verb`, a string, after the known fields.
    let verb = Verb {
        id: "web".into(),
        ..Verb::default()
    };
    let mut inner = verb.encode_to_vec();
    inner.extend_from_slice(&[0x9a, 0x06, 3, b'n', b'e', b'w']);
    let mut message = vec![0x12, inner.len() as u8];
    message.extend_from_slice(&inner);
    let mut bytes = Vec::new();
    enclose(3, message, &mut bytes);
    assert_eq!(
        decode_request(&bytes[4..]),
        Ok((3, Ok(Request::Start(verb))))
    );
}

#[test]
fn undecodable_messages_still_have_a_number() {
    // Kind 99, which does not exist.
    let unknown = vec![0x9a, 0x06, 0];
    // A string of 127 bytes, without those bytes.
    let damaged = vec![0x0a, 0x7f];
    for (message, why) in [(unknown, Unread::Unknown), (damaged, Unread::Malformed)] {
        let mut request = Vec::new();
        enclose(5, message.clone(), &mut request);
        assert_eq!(decode_request(&request[4..]), Ok((5, Err(why))));
        let answer = Incoming::Answer(5, Err(why));
        assert_eq!(decode_incoming(&request[4..]), Ok(answer));
        let mut event = Vec::new();
        enclose(0, message, &mut event);
        assert_eq!(decode_incoming(&event[4..]), Ok(Incoming::Event(Err(why))));
    }
}

#[test]
fn false_lengths_allocate_no_memory() {
    let mut bytes = vec![0x12];
    bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(decode_request(&bytes), Err(Malformed));
    assert_eq!(frame_len(&u32::MAX.to_le_bytes()), Err(Malformed));
}

#[test]
fn both_sides_need_a_common_version() {
    let hello = |version, oldest| Hello {
        version,
        oldest,
        ..Hello::default()
    };
    for (other, fits) in [
        (hello(2, 2), true),
        (hello(2, 1), true),
        (hello(5, 2), true),
        (hello(5, 3), false),
        (hello(1, 1), false),
    ] {
        assert_eq!(Hello::own().fits(&other), fits, "{other:?}");
    }
}
