//! Whether two requests are the same, except for what a kubelet changes when it repeats one.
//!
//! A kubelet makes the request anew for each try. Three things differ by chance and mean nothing: the order of map entries
//! (protobuf's encoder in Go), the order of the variables of services (a loop over a map), and the name of the empty file that
//! the kubelet makes for the termination message (eight random digits; it later reads the file of the container that there is). All
//! else is compared byte for byte, unknown fields too. The kubelet's own start changes an annotation (`config.seen`), a new
//! container of the pod or a new sandbox changes an `attempt`: those are other requests.

use std::borrow::Cow;

use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

use crate::cri::Method;

/// What a field of a message is, as far as it is not compared byte for byte.
#[derive(Clone, Copy)]
enum FieldRule {
    /// A message with such fields.
    Message(FieldRules),
    /// Messages with a key in field 1: the order counts only among equal keys.
    KeyedEntries,
    /// The path of a file on the node, which may be that of a termination message.
    HostPath,
}

/// The rules of a message, by field number. Fields without one are compared byte for byte.
type FieldRules = &'static [(u32, FieldRule)];

const RESOURCES: FieldRules = &[(9, FieldRule::KeyedEntries)];
const LINUX_SANDBOX: FieldRules = &[
    (3, FieldRule::KeyedEntries),
    (4, FieldRule::Message(RESOURCES)),
    (5, FieldRule::Message(RESOURCES)),
];
const SANDBOX_CONFIG: FieldRules = &[
    (6, FieldRule::KeyedEntries),
    (7, FieldRule::KeyedEntries),
    (8, FieldRule::Message(LINUX_SANDBOX)),
];
const RUN_POD_SANDBOX: FieldRules = &[(1, FieldRule::Message(SANDBOX_CONFIG))];
const IMAGE: FieldRules = &[(2, FieldRule::KeyedEntries)];
const LINUX_CONTAINER: FieldRules = &[(1, FieldRule::Message(RESOURCES))];
const MOUNT: FieldRules = &[(2, FieldRule::HostPath)];
const CONTAINER_CONFIG: FieldRules = &[
    (2, FieldRule::Message(IMAGE)),
    (6, FieldRule::KeyedEntries),
    (7, FieldRule::Message(MOUNT)),
    (9, FieldRule::KeyedEntries),
    (10, FieldRule::KeyedEntries),
    (15, FieldRule::Message(LINUX_CONTAINER)),
];
const CREATE_CONTAINER: FieldRules = &[
    (2, FieldRule::Message(CONTAINER_CONFIG)),
    (3, FieldRule::Message(SANDBOX_CONFIG)),
];

/// Returns whether `retry` repeats `earlier`, a request of the same method. `termination_dir` is the end of the directory in which
/// the kubelet makes files for termination messages: `/pods/UID/containers/NAME/`.
pub(super) fn is_same(method: Method, termination_dir: &str, earlier: &[u8], retry: &[u8]) -> bool {
    if earlier == retry {
        return true;
    }
    let rules = match method {
        Method::RunPodSandbox => RUN_POD_SANDBOX,
        Method::CreateContainer => CREATE_CONTAINER,
        _ => return false,
    };
    let earlier = canonical(earlier, rules, termination_dir);
    earlier.is_some() && earlier == canonical(retry, rules, termination_dir)
}

/// One field of a message.
struct WireField<'a> {
    number: u32,
    /// Key and value, as they came.
    whole: &'a [u8],
    /// The value, if the field has a length.
    value: Option<&'a [u8]>,
}

/// Takes the first field; `None` if the bytes are no message.
fn take_field<'a>(rest: &mut &'a [u8]) -> Option<WireField<'a>> {
    let start = *rest;
    let (number, wire_type) = decode_key(rest).ok()?;
    let value = match wire_type {
        WireType::Varint => {
            decode_varint(rest).ok()?;
            None
        }
        WireType::SixtyFourBit => {
            *rest = rest.get(8..)?;
            None
        }
        WireType::ThirtyTwoBit => {
            *rest = rest.get(4..)?;
            None
        }
        WireType::LengthDelimited => {
            let len = usize::try_from(decode_varint(rest).ok()?).ok()?;
            let (value, after) = rest.split_at_checked(len)?;
            *rest = after;
            Some(value)
        }
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    let whole = &start[..start.len() - rest.len()];
    Some(WireField {
        number,
        whole,
        value,
    })
}

/// The message in a form that is the same for each try; `None` if the bytes are no message.
fn canonical(mut rest: &[u8], rules: FieldRules, termination_dir: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(rest.len());
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let field = take_field(&mut rest)?;
        let rule = rules.iter().find(|(number, _)| *number == field.number);
        match (rule, field.value) {
            (Some((number, FieldRule::Message(rules))), Some(value)) => {
                put(
                    &mut out,
                    *number,
                    &canonical(value, rules, termination_dir)?,
                );
            }
            (Some((number, FieldRule::KeyedEntries)), Some(value)) => {
                entries.push((*number, entry_key(value)?, field.whole));
            }
            (Some((number, FieldRule::HostPath)), Some(path)) => {
                put(
                    &mut out,
                    *number,
                    &without_random_name(path, termination_dir),
                );
            }
            _ => out.extend_from_slice(field.whole),
        }
    }
    // A stable sort: of two variables with the same name, the second one counts.
    entries.sort_by_key(|(number, key, _)| (*number, *key));
    entries
        .iter()
        .for_each(|(_, _, whole)| out.extend_from_slice(whole));
    Some(out)
}

fn put(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// The key of an entry, which is empty if the entry has none.
fn entry_key(mut entry: &[u8]) -> Option<&[u8]> {
    while !entry.is_empty() {
        let field = take_field(&mut entry)?;
        if field.number == 1 {
            return field.value;
        }
    }
    Some(b"")
}

/// The path of a termination message with a NUL, which no path has, in place of the file's random name; or any other path.
fn without_random_name<'a>(path: &'a [u8], termination_dir: &str) -> Cow<'a, [u8]> {
    const NAME_LENGTH: usize = 8;
    let (dir, name) = path.split_at(path.len().saturating_sub(NAME_LENGTH));
    let is_random = name.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_random && dir.ends_with(termination_dir.as_bytes()) {
        [dir, b"\0"].concat().into()
    } else {
        path.into()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::cri::v1;

    const DIR: &str = "/pods/u1/containers/app/";

    /// The message with these fields, each of them with a length.
    fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        fields
            .iter()
            .for_each(|(number, value)| put(&mut out, *number, value));
        out
    }

    fn entry(key: &str, value: &str) -> Vec<u8> {
        message(&[(1, key.as_bytes()), (2, value.as_bytes())])
    }

    fn sandbox(fields: &[(u32, &[u8])]) -> Vec<u8> {
        message(&[(1, &message(fields))])
    }

    fn container(fields: &[(u32, &[u8])]) -> Vec<u8> {
        message(&[(1, b"sandbox"), (2, &message(fields))])
    }

    fn same_sandbox(one: &[u8], other: &[u8]) -> bool {
        is_same(Method::RunPodSandbox, DIR, one, other)
    }

    fn same_container(one: &[u8], other: &[u8]) -> bool {
        is_same(Method::CreateContainer, DIR, one, other)
    }

    #[test]
    fn the_order_of_map_entries_means_nothing() {
        let (a, b) = (entry("a", "1"), entry("b", ""));
        let one = sandbox(&[(6, &a), (6, &b), (7, &a)]);
        let other = sandbox(&[(6, &b), (6, &a), (7, &a)]);
        assert!(same_sandbox(&one, &other));
        // Labels are not annotations, and a value is no other value.
        let moved = sandbox(&[(6, &b), (7, &a), (7, &a)]);
        assert!(!same_sandbox(&one, &moved));
        let seen_later = sandbox(&[(6, &a), (6, &b), (7, &entry("a", "2"))]);
        assert!(!same_sandbox(&one, &seen_later));
        assert!(!is_same(Method::PullImage, DIR, &one, &other));
    }

    #[test]
    fn fields_that_are_unknown_count() {
        let a = entry("a", "1");
        let one = sandbox(&[(6, &a), (99, b"x")]);
        assert!(same_sandbox(&one, &one.clone()));
        assert!(!same_sandbox(&one, &sandbox(&[(6, &a), (99, b"y")])));
        assert!(!same_sandbox(&one, &sandbox(&[(6, &a)])));
        assert!(!same_sandbox(&one, b"\xff\xff"));
        assert!(!same_sandbox(b"\xfe\xff", b"\xff\xff"));
    }

    #[test]
    fn the_last_of_two_variables_with_one_name_counts() {
        let (a, b, other_a) = (entry("a", "1"), entry("b", "1"), entry("a", "2"));
        let one = container(&[(6, &a), (6, &b), (6, &other_a)]);
        assert!(same_container(
            &one,
            &container(&[(6, &b), (6, &a), (6, &other_a)])
        ));
        assert!(!same_container(
            &one,
            &container(&[(6, &other_a), (6, &b), (6, &a)])
        ));
    }

    #[test]
    fn only_the_random_name_of_a_termination_message_may_differ() {
        let with = |path: &str| container(&[(7, &message(&[(1, b"/at"), (2, path.as_bytes())]))]);
        let one = with("/var/lib/kubelet/pods/u1/containers/app/0123abcd");
        let cases = [
            ("/var/lib/kubelet/pods/u1/containers/app/ffffffff", true),
            ("/var/lib/other/pods/u1/containers/app/0123abcd", false),
            ("/var/lib/kubelet/pods/u2/containers/app/0123abcd", false),
            ("/var/lib/kubelet/pods/u1/containers/web/0123abcd", false),
            ("/var/lib/kubelet/pods/u1/containers/app/0123abcde", false),
            ("/var/lib/kubelet/pods/u1/containers/app/0123abcg", false),
            ("/var/lib/kubelet/pods/u1/containers/app/", false),
            ("/a", false),
        ];
        for (path, want) in cases {
            assert_eq!(same_container(&one, &with(path)), want, "{path}");
        }
    }

    /// The field numbers are those of the protocol.
    #[test]
    fn requests_of_a_kubelet_that_differ_by_chance() {
        let resources = |n: usize| v1::LinuxContainerResources {
            unified: [(n.to_string(), "x".to_owned())].into(),
            ..Default::default()
        };
        let sandbox = v1::PodSandboxConfig {
            labels: [("l".to_owned(), "x".to_owned())].into(),
            annotations: [("a".to_owned(), "x".to_owned())].into(),
            linux: Some(v1::LinuxPodSandboxConfig {
                sysctls: [("s".to_owned(), "x".to_owned())].into(),
                overhead: Some(resources(1)),
                resources: Some(resources(2)),
                ..Default::default()
            }),
            ..Default::default()
        };
        let variable = |key: &str| v1::KeyValue {
            key: key.to_owned(),
            value: "x".into(),
        };
        let request = |file: &str, names: [&str; 2]| {
            v1::CreateContainerRequest {
                pod_sandbox_id: "s".to_owned(),
                config: Some(v1::ContainerConfig {
                    image: Some(v1::ImageSpec {
                        annotations: [("i".to_owned(), "x".to_owned())].into(),
                        ..Default::default()
                    }),
                    envs: names.map(variable).into(),
                    mounts: vec![v1::Mount {
                        host_path: format!("/k{DIR}{file}"),
                        ..Default::default()
                    }],
                    linux: Some(v1::LinuxContainerConfig {
                        resources: Some(resources(3)),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                sandbox_config: Some(sandbox.clone()),
            }
            .encode_to_vec()
        };
        let one = request("00000001", ["a", "b"]);
        assert!(same_container(&one, &request("00000002", ["b", "a"])));
        assert!(!same_container(&one, &request("00000002", ["b", "c"])));
        let entries = |bytes: &[u8]| canonical(bytes, CREATE_CONTAINER, DIR).expect("a message");
        assert_eq!(entries(&one).len(), one.len() - 7, "nothing is left out");
    }
}
