//! Version 1 of the shim's protocol, for pods whose shim was started by criscope 0.1 before the protocol used protobuf. A shim
//! lives as long as its pod, so this can be removed in the first release that no longer supports an update from 0.1 without
//! draining the node.
//!
//! Both directions are implemented, so that tests can simulate such a shim; the daemon needs only [`encode_request`] and
//! [`decode_incoming`].

mod codec;

use self::codec::Field;
use criscope_shim::protocol::{self, Answer, Event, Incoming, Malformed, Request, Unread};

/// Returns whether the first frame of a shim, without its length, is the hello of version 1: an event (number 0) of kind 3.
/// Messages of later versions do not begin with a zero byte, which is not a valid protobuf tag.
pub fn is_hello(frame: &[u8]) -> bool {
    frame.len() == 13 && frame.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 3])
}

/// Appends a request with its number; returns whether version 1 supports it. Such a shim is no longer asked to create a PID
/// namespace: its init would have the node's root.
pub fn encode_request(number: u64, request: &Request, out: &mut Vec<u8>) -> bool {
    let mut body = Vec::new();
    number.put(&mut body);
    match request {
        Request::Create(create) => put(&mut body, 1, create),
        Request::Start(verb) => put(&mut body, 2, verb),
        Request::Kill(kill) => put(&mut body, 3, kill),
        Request::State(_) => body.push(4),
        Request::Exec(exec) => put(&mut body, 5, exec),
        Request::Attach(attach) => put(&mut body, 6, attach),
        Request::Resize(resize) => put(&mut body, 7, resize),
        Request::ReopenLog(target) => put(&mut body, 8, target),
        Request::CloseStdin(target) => put(&mut body, 9, target),
        Request::Delete(verb) => put(&mut body, 10, verb),
        Request::Forget(target) => put(&mut body, 11, target),
        Request::Shutdown(shutdown) => put(&mut body, 12, shutdown),
        Request::PidNamespace(_)
        | Request::Update(_)
        | Request::Stats(_)
        | Request::EndCommand(_) => return false,
        Request::Hello(_) => put(&mut body, 14, &1u32),
    }
    protocol::frame(out, |out| out.extend_from_slice(&body));
    true
}

fn put(body: &mut Vec<u8>, tag: u8, fields: &impl Field) {
    body.push(tag);
    fields.put(body);
}

/// Decodes a request as a shim of version 1 does.
///
/// # Errors
/// If the request is not sent any more.
pub fn decode_request(mut frame: &[u8]) -> Result<(u64, Request), Malformed> {
    let from = &mut frame;
    let number = u64::take(from)?;
    let request = match u8::take(from)? {
        1 => Request::Create(Field::take(from)?),
        2 => Request::Start(Field::take(from)?),
        3 => Request::Kill(Field::take(from)?),
        4 => Request::State(Field::take(from)?),
        5 => Request::Exec(Field::take(from)?),
        6 => Request::Attach(Field::take(from)?),
        7 => Request::Resize(Field::take(from)?),
        8 => Request::ReopenLog(Field::take(from)?),
        9 => Request::CloseStdin(Field::take(from)?),
        10 => Request::Delete(Field::take(from)?),
        11 => Request::Forget(Field::take(from)?),
        12 => Request::Shutdown(Field::take(from)?),
        14 => Request::Hello(Field::take(from)?),
        _ => return Err(Malformed),
    };
    Ok((number, request))
}

/// Decodes a message of a shim.
///
/// # Errors
/// If the frame has no number.
pub fn decode_incoming(mut frame: &[u8]) -> Result<Incoming, Malformed> {
    let number = u64::take(&mut frame)?;
    Ok(match number {
        0 => Incoming::Event(event(frame)),
        number => Incoming::Answer(number, answer(frame)),
    })
}

fn event(mut frame: &[u8]) -> Result<Event, Unread> {
    let from = &mut frame;
    match take::<u8>(from)? {
        1 => take(from).map(Event::Exit),
        2 => take(from).map(Event::Oom),
        3 => take(from).map(Event::Hello),
        _ => Err(Unread::Unknown),
    }
}

fn answer(mut frame: &[u8]) -> Result<Answer, Unread> {
    let from = &mut frame;
    match take::<u8>(from)? {
        1 => Ok(Answer::Done(protocol::Empty {})),
        2 => take(from).map(Answer::Pid),
        3 => take(from).map(Answer::State),
        4 => take(from).map(Answer::Failed),
        _ => Err(Unread::Unknown),
    }
}

fn take<T: Field>(from: &mut &[u8]) -> Result<T, Unread> {
    T::take(from).map_err(|_| Unread::Malformed)
}

/// Encodes a response as a shim of version 1 does.
pub fn encode_answer(number: u64, answer: &Answer, out: &mut Vec<u8>) {
    protocol::frame(out, |out| {
        number.put(out);
        match answer {
            Answer::Done(_) => out.push(1),
            Answer::Pid(pid) => {
                out.push(2);
                pid.put(out);
            }
            Answer::State(state) => {
                out.push(3);
                state.put(out);
            }
            Answer::Failed(failure) => {
                out.push(4);
                failure.put(out);
            }
            // Version 1 has no request with such an answer.
            Answer::Metrics(_) => {}
        }
    });
}

/// Encodes an event as a shim of version 1 does; returns whether version 1 supports it.
pub fn encode_event(event: &Event, out: &mut Vec<u8>) -> bool {
    let mut body = Vec::new();
    0u64.put(&mut body);
    match event {
        Event::Exit(exit) => {
            body.push(1);
            exit.put(&mut body);
        }
        Event::Oom(oom) => {
            body.push(2);
            oom.put(&mut body);
        }
        Event::Hello(_) => {
            body.push(3);
            1u32.put(&mut body);
        }
        Event::PidNamespaceEnded(_) | Event::Unreadable(_) => return false,
    }
    protocol::frame(out, |out| out.extend_from_slice(&body));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let pairs = text.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16);
        pairs.map(|pair| byte(pair).expect("hex")).collect()
    }

    /// The frames were written by the code of version 1 before it was replaced.
    #[test]
    fn frames_of_version_1_are_decoded_and_encoded() {
        let (mut read, mut hellos) = (0, 0);
        for line in include_str!("vectors.txt").lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("three words");
            let (kind, name, bytes) = (word(), word(), hex(word()));
            let frame = &bytes[4..];
            let mut again = Vec::new();
            match (kind, name) {
                ("request", "pid-namespace") => {
                    assert_eq!(decode_request(frame), Err(Malformed));
                    again.clone_from(&bytes);
                }
                ("request", _) => {
                    let (number, request) = decode_request(frame).expect(name);
                    assert!(encode_request(number, &request, &mut again));
                }
                _ => match decode_incoming(frame).expect(name) {
                    Incoming::Answer(number, answer) => {
                        encode_answer(number, &answer.expect(name), &mut again);
                    }
                    Incoming::Event(event) => {
                        assert!(encode_event(&event.expect(name), &mut again));
                    }
                },
            }
            assert_eq!(again, bytes, "{kind} {name}");
            hellos += usize::from(is_hello(frame));
            read += 1;
        }
        assert_eq!((read, hellos), (21, 1));
    }

    #[test]
    fn an_exit_is_decoded_and_a_truncated_frame_is_not() {
        let line = include_str!("vectors.txt").lines();
        let mut line = line.filter_map(|line| line.strip_prefix("event exit "));
        let bytes = hex(line.next().expect("an exit"));
        let Ok(Incoming::Event(Ok(Event::Exit(exit)))) = decode_incoming(&bytes[4..]) else {
            panic!("no exit");
        };
        assert_eq!((exit.code, exit.signal, exit.oom_kills), (137, 9, 2));
        for cut in 12..bytes.len() {
            let read = decode_incoming(&bytes[4..cut]);
            assert_eq!(read, Ok(Incoming::Event(Err(Unread::Malformed))), "{cut}");
        }
    }

    #[test]
    fn later_hellos_are_not_taken_for_version_1() {
        let mut bytes = Vec::new();
        let hello = Event::Hello(protocol::Hello::own(protocol::OLDEST));
        protocol::encode_event(&hello, &mut bytes);
        assert!(!is_hello(&bytes[4..]));
    }

    #[test]
    fn a_daemon_of_version_1_receives_the_reason_of_the_refusal() {
        let mut hello = Vec::new();
        let request = Request::Hello(protocol::Hello::default());
        encode_request(7, &request, &mut hello);
        assert_eq!(protocol::decode_request(&hello[4..]), Err(Malformed));
        let told = protocol::refuse_version_1(&hello[4..]).expect("an answer");
        let Ok(Incoming::Answer(7, Ok(Answer::Failed(failure)))) = decode_incoming(&told[4..])
        else {
            panic!("no failure");
        };
        assert_eq!(failure.kind, protocol::SYSTEM);
        assert!(failure.message.contains("protocol"), "{}", failure.message);
    }
}
