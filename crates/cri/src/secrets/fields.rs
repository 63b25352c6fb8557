//! The fields of requests that hold no secret, by their numbers in `proto/api.proto`. Every other field counts as a secret,
//! also a field that a newer version of the CRI adds.
//!
//! [`SHOWN`](super::super::identity::SHOWN) and [`QUOTABLE`](super::super::identity::QUOTABLE) have the same list by name;
//! `tests/it/canary/quoted.rs` compares the two.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::super::method::Method;
use super::super::redact::image_reference;

/// A message: its fields that are no secret as a whole.
pub(super) struct Message(&'static [(u32, Field)]);

enum Field {
    /// May be quoted by an error text.
    Plain,
    /// A reference to an image or server, which may hold credentials in front of it and a query behind it.
    Reference,
    /// A command: the path of its program may be quoted, its arguments are secrets.
    Command,
    /// A message with its own list.
    Inner(&'static Message),
}

use Field::{Command, Inner, Plain, Reference};

/// Entries of maps and environments: key and value are secrets of their own, so that short ones are recognised.
static ENTRY: Message = Message(&[]);
/// Entries whose keys are names of the kernel: sysctls and files of a cgroup.
static KERNEL_ENTRY: Message = Message(&[(1, Plain)]);

static POD_METADATA: Message = Message(&[(1, Plain), (2, Plain), (3, Plain)]);
static CONTAINER_METADATA: Message = Message(&[(1, Plain)]);
static IMAGE: Message = Message(&[
    (1, Reference),
    (2, Inner(&ENTRY)),
    (18, Reference),
    (19, Plain),
    (20, Reference),
]);
static DNS: Message = Message(&[(1, Plain), (2, Plain), (3, Plain)]);
static PORT: Message = Message(&[(4, Plain)]);
static PROFILE: Message = Message(&[(2, Plain)]);
static SELINUX: Message = Message(&[(1, Plain), (2, Plain), (3, Plain), (4, Plain)]);
/// Messages of numbers.
static NUMBERS: Message = Message(&[]);
static USER_NAMESPACE: Message = Message(&[(2, Inner(&NUMBERS)), (3, Inner(&NUMBERS))]);
static NAMESPACES: Message = Message(&[(4, Plain), (5, Inner(&USER_NAMESPACE))]);
static SANDBOX_SECURITY: Message = Message(&[
    (1, Inner(&NAMESPACES)),
    (2, Inner(&SELINUX)),
    (3, Inner(&NUMBERS)),
    (5, Plain),
    (7, Plain),
    (8, Inner(&NUMBERS)),
    (9, Inner(&PROFILE)),
    (10, Inner(&PROFILE)),
]);
static HUGEPAGES: Message = Message(&[(1, Plain)]);
static RESOURCES: Message = Message(&[
    (6, Plain),
    (7, Plain),
    (8, Inner(&HUGEPAGES)),
    (9, Inner(&KERNEL_ENTRY)),
]);
static LINUX_POD: Message = Message(&[
    (1, Plain),
    (2, Inner(&SANDBOX_SECURITY)),
    (3, Inner(&KERNEL_ENTRY)),
    (4, Inner(&RESOURCES)),
    (5, Inner(&RESOURCES)),
]);
static POD: Message = Message(&[
    (1, Inner(&POD_METADATA)),
    (2, Plain),
    (3, Plain),
    (4, Inner(&DNS)),
    (5, Inner(&PORT)),
    (6, Inner(&ENTRY)),
    (7, Inner(&ENTRY)),
    (8, Inner(&LINUX_POD)),
]);
static MOUNT: Message = Message(&[
    (1, Plain),
    (2, Plain),
    (6, Inner(&NUMBERS)),
    (7, Inner(&NUMBERS)),
    (9, Inner(&IMAGE)),
    (10, Plain),
    (11, Plain),
]);
static DEVICE: Message = Message(&[(1, Plain), (2, Plain), (3, Plain)]);
static CDI: Message = Message(&[(1, Plain)]);
static CAPABILITIES: Message = Message(&[(1, Plain), (2, Plain), (3, Plain)]);
static CONTAINER_SECURITY: Message = Message(&[
    (1, Inner(&CAPABILITIES)),
    (3, Inner(&NAMESPACES)),
    (4, Inner(&SELINUX)),
    (5, Inner(&NUMBERS)),
    (6, Plain),
    (8, Plain),
    (9, Plain),
    (10, Plain),
    (12, Inner(&NUMBERS)),
    (13, Plain),
    (14, Plain),
    (15, Inner(&PROFILE)),
    (16, Inner(&PROFILE)),
]);
static LINUX_CONTAINER: Message =
    Message(&[(1, Inner(&RESOURCES)), (2, Inner(&CONTAINER_SECURITY))]);
static CONTAINER: Message = Message(&[
    (1, Inner(&CONTAINER_METADATA)),
    (2, Inner(&IMAGE)),
    (3, Command),
    (5, Plain),
    (6, Inner(&ENTRY)),
    (7, Inner(&MOUNT)),
    (8, Inner(&DEVICE)),
    (9, Inner(&ENTRY)),
    (10, Inner(&ENTRY)),
    (11, Plain),
    (15, Inner(&LINUX_CONTAINER)),
    (17, Inner(&CDI)),
]);
static AUTH: Message = Message(&[(4, Reference)]);

static RUN_POD_SANDBOX: Message = Message(&[(1, Inner(&POD)), (2, Plain)]);
static CREATE_CONTAINER: Message = Message(&[(1, Plain), (2, Inner(&CONTAINER)), (3, Inner(&POD))]);
static PULL_IMAGE: Message = Message(&[(1, Inner(&IMAGE)), (2, Inner(&AUTH)), (3, Inner(&POD))]);
static UPDATE_CONTAINER: Message =
    Message(&[(1, Plain), (2, Inner(&RESOURCES)), (4, Inner(&ENTRY))]);
static UPDATE_SANDBOX: Message =
    Message(&[(1, Plain), (2, Inner(&RESOURCES)), (3, Inner(&RESOURCES))]);
/// A request that names its object and nothing else.
static ID: Message = Message(&[(1, Plain)]);
static EXEC: Message = Message(&[(1, Plain), (2, Command)]);

/// The request of a method whose secrets are remembered, or whose error texts are redacted by value.
pub(super) const fn request_message(method: Method) -> Option<&'static Message> {
    Some(match method {
        Method::RunPodSandbox => &RUN_POD_SANDBOX,
        Method::CreateContainer => &CREATE_CONTAINER,
        Method::PullImage => &PULL_IMAGE,
        Method::UpdateContainerResources => &UPDATE_CONTAINER,
        Method::UpdatePodSandboxResources => &UPDATE_SANDBOX,
        Method::StopPodSandbox
        | Method::RemovePodSandbox
        | Method::StartContainer
        | Method::StopContainer
        | Method::RemoveContainer
        | Method::ReopenContainerLog => &ID,
        Method::ExecSync | Method::Exec => &EXEC,
        _ => return None,
    })
}

/// What a field says.
#[derive(Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Hidden wherever it is quoted.
    Secret(&'a [u8]),
    /// May be shown in an error text that quotes it.
    Plain(&'a [u8]),
    /// The program of a command, which may be shown, too. It may be a name without a slash.
    Program(&'a [u8]),
}

/// The message does not decode.
#[derive(Debug)]
pub(super) struct Malformed;

/// Calls `f` with the value of every text and bytes field. Numbers are no secrets.
pub(super) fn visit<'a>(
    of: &Message,
    mut message: &'a [u8],
    f: &mut impl FnMut(Value<'a>),
) -> Result<(), Malformed> {
    let mut has_program = false;
    while !message.is_empty() {
        let (number, wire_type) = decode_key(&mut message).map_err(|_| Malformed)?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, number, &mut message, DecodeContext::default())
                .map_err(|_| Malformed)?;
            continue;
        }
        let length = decode_varint(&mut message).map_err(|_| Malformed)?;
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (value, rest) = message.split_at_checked(length).ok_or(Malformed)?;
        message = rest;
        match of.0.iter().find(|(known, _)| *known == number) {
            Some((_, Inner(inner))) => visit(inner, value, f)?,
            Some((_, Plain)) => f(Value::Plain(value)),
            Some((_, Reference)) => reference(value, f),
            Some((_, Command)) if !std::mem::replace(&mut has_program, true) => program(value, f),
            Some((_, Command)) | None => f(Value::Secret(value)),
        }
    }
    Ok(())
}

/// Calls `f` with the shown part of a reference, and with the text around it as secrets.
fn reference<'a>(value: &'a [u8], f: &mut impl FnMut(Value<'a>)) {
    let Ok(text) = std::str::from_utf8(value) else {
        return f(Value::Secret(value));
    };
    let shown = image_reference(text);
    let name = shown.split_once("://").map_or(&*shown, |(_, name)| name);
    match text.rfind(name) {
        Some(at) => {
            f(Value::Secret(&value[..at]));
            f(Value::Plain(&value[at..at + name.len()]));
            f(Value::Secret(&value[at + name.len()..]));
        }
        None => f(Value::Secret(value)),
    }
}

/// Calls `f` with the path of a program, and with what people write behind it by mistake, such as `server --token=...`, as a
/// secret.
fn program<'a>(value: &'a [u8], f: &mut impl FnMut(Value<'a>)) {
    let end = value
        .iter()
        .position(|b| b.is_ascii_whitespace() || *b == b'=');
    let (path, rest) = value.split_at(end.unwrap_or(value.len()));
    f(Value::Program(path));
    f(Value::Secret(rest));
}
