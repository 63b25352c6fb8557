//! The list of what may be shown, against what is read.

use criscope::cri::identity::SHOWN;
use criscope::cri::lists::{Container, Sandbox};
use criscope::cri::subject::{ResponseDetails, Subject};
use criscope::cri::{Method, peek};
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    MethodDescriptor, Value,
};

use super::filler::pool;
use crate::prelude::*;

/// Of the runtime about itself, from the answers to criscope's own questions. No caller's message is read for these.
const OWN_QUESTIONS: [&str; 2] = [
    "VersionResponse.runtime_name",
    "VersionResponse.runtime_version",
];

/// Read only together with an id, and here each message has one field.
const BESIDE_AN_ID: [&str; 1] = ["RestoredContainer.name"];

#[test]
fn every_field_on_the_list_exists_and_is_text() {
    let pool = pool();
    for name in SHOWN {
        let (message, field) = name.split_once('.').expect("MESSAGE.FIELD");
        let of = pool.get_message_by_name(&format!("runtime.v1.{message}"));
        let field = of.expect(name).get_field_by_name(field).expect(name);
        assert_eq!(field.kind(), Kind::String, "{name}");
    }
    let once: BTreeSet<_> = SHOWN.iter().collect();
    assert_eq!(once.len(), SHOWN.len(), "a field is listed twice");
}

/// Fills one field after the other and looks whether it comes out: what is read is what the list says, no more and no
/// less.
#[test]
fn what_is_read_is_on_the_list() {
    let pool = pool();
    let mut read = BTreeSet::new();
    for (method, of) in methods(&pool) {
        each_field(&of.input(), &mut |field, bytes, value| {
            if said(&peek::request(method, bytes)).contains(value) {
                read.insert(field.to_owned());
            }
        });
        each_field(&of.output(), &mut |field, bytes, value| {
            if answered(&peek::answer(method, bytes)).contains(value) {
                read.insert(field.to_owned());
            }
            if listed(method, bytes).contains(value) {
                read.insert(field.to_owned());
            }
        });
    }
    let listed: BTreeSet<_> = SHOWN
        .iter()
        .filter(|name| !OWN_QUESTIONS.contains(name) && !BESIDE_AN_ID.contains(name))
        .map(|name| (*name).to_owned())
        .collect();
    let secret: Vec<_> = read.difference(&listed).collect();
    assert_eq!(secret, Vec::<&String>::new(), "read, but not on the list");
    let idle: Vec<_> = listed.difference(&read).collect();
    assert_eq!(idle, Vec::<&String>::new(), "on the list, but never read");
}

/// Labels, annotations and other maps: neither a key nor a value comes out, not even under the two keys that are read.
#[test]
fn of_maps_only_a_time_and_a_word_are_read() {
    const SECRET: &str = "kwyjibo";
    let pool = pool();
    let mut maps = 0;
    for (method, of) in methods(&pool) {
        each_map(&of.input(), &mut |_, with| {
            maps += 1;
            for key in [
                "kubernetes.io/config.seen",
                "kubernetes.io/config.source",
                SECRET,
            ] {
                let said = said(&peek::request(method, &with(key, SECRET)));
                assert!(!said.contains(SECRET), "{method} {said}");
            }
        });
    }
    assert!(maps > 5, "{maps}");
}

/// Makes a message whose map has this entry.
pub(super) type WithEntry<'a> = dyn Fn(&str, &str) -> Vec<u8> + 'a;

/// Calls `f` for each map of text below `of`, with the name of its entries and what makes a message in which that map has one entry.
pub(super) fn each_map(of: &MessageDescriptor, f: &mut dyn FnMut(&str, &WithEntry<'_>)) {
    for path in map_paths(of) {
        let map = path.last().expect("a path has a field").kind();
        let entry = map
            .as_message()
            .expect("a map has entries")
            .name()
            .to_owned();
        f(&entry, &|key, text| {
            let entry = (
                MapKey::String(key.to_owned()),
                Value::String(text.to_owned()),
            );
            let mut value = Value::Map([entry].into());
            for (depth, field) in path.iter().enumerate().rev() {
                if field.is_list() && depth + 1 < path.len() {
                    value = Value::List(vec![value]);
                }
                let mut message = DynamicMessage::new(field.parent_message().clone());
                message.set_field(field, value);
                value = Value::Message(message);
            }
            let Value::Message(message) = value else {
                panic!("a path has a field");
            };
            message.encode_to_vec()
        });
    }
}

/// The way to every map from text to text below a message.
fn map_paths(of: &MessageDescriptor) -> Vec<Vec<FieldDescriptor>> {
    let mut all = Vec::new();
    for field in of.fields() {
        match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let text = |field: FieldDescriptor| field.kind() == Kind::String;
                if text(entry.map_entry_key_field()) && text(entry.map_entry_value_field()) {
                    all.push(vec![field]);
                }
            }
            Kind::Message(inner) => {
                for mut path in map_paths(&inner) {
                    path.insert(0, field.clone());
                    all.push(path);
                }
            }
            _ => {}
        }
    }
    all
}

/// Every method of the protocol.
pub(super) fn methods(pool: &DescriptorPool) -> Vec<(Method, MethodDescriptor)> {
    let services: Vec<_> = pool.services().collect();
    let all = services.iter().flat_map(|service| {
        let name = service.full_name().to_owned();
        service.methods().map(move |method| {
            let path = format!("/{name}/{}", method.name());
            let (known, _) = Method::from_path(&path).expect("a known method");
            (known, method)
        })
    });
    let all: Vec<_> = all.collect();
    assert_eq!(all.len(), 43);
    all
}

/// Calls `f` with a message for each string or bytes field below `of`, in which that field alone is set: with the
/// field's name, the message and the value.
pub(super) fn each_field(of: &MessageDescriptor, f: &mut dyn FnMut(&str, &[u8], &str)) {
    // Looks like an image, so that it is not cut up as one.
    const VALUE: &str = "registry.example/kwyjibo";
    for (path, leaf) in leaves(of) {
        let mut value = match leaf.kind() {
            Kind::String => Value::String(VALUE.to_owned()),
            _ => Value::Bytes(VALUE.as_bytes().to_vec().into()),
        };
        for field in path.iter().rev() {
            if field.is_list() {
                value = Value::List(vec![value]);
            }
            let mut message = DynamicMessage::new(field.parent_message().clone());
            message.set_field(field, value);
            value = Value::Message(message);
        }
        let Value::Message(message) = value else {
            panic!("a path has a field");
        };
        let name = format!("{}.{}", leaf.parent_message().name(), leaf.name());
        f(&name, &message.encode_to_vec(), VALUE);
    }
}

/// Every string and bytes field below a message, maps apart, with the way to it.
fn leaves(of: &MessageDescriptor) -> Vec<(Vec<FieldDescriptor>, FieldDescriptor)> {
    let mut all = Vec::new();
    for field in of.fields().filter(|field| !field.is_map()) {
        match field.kind() {
            Kind::String | Kind::Bytes => all.push((vec![field.clone()], field)),
            Kind::Message(inner) => {
                for (mut path, leaf) in leaves(&inner) {
                    path.insert(0, field.clone());
                    all.push((path, leaf));
                }
            }
            _ => {}
        }
    }
    all
}

/// Everything a subject says, in one text.
fn said(subject: &Subject) -> String {
    let Subject {
        pod,
        sandbox_id,
        container,
        container_id,
        image,
        handler,
        origin,
        timeout,
        request,
        limits,
    } = subject;
    format!(
        "{pod:?} {sandbox_id:?} {container:?} {container_id:?} {image:?} {handler:?} {origin:?} {timeout:?} {request:?} {limits:?}"
    )
}

fn answered(answer: &ResponseDetails) -> String {
    format!("{answer:?}")
}

#[derive(Clone, PartialEq, Message)]
struct Sandboxes {
    #[prost(message, repeated, tag = "1")]
    items: Vec<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
struct Containers {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Container>,
}

fn listed(method: Method, bytes: &[u8]) -> String {
    match method {
        Method::ListPodSandbox => {
            let list = Sandboxes::decode(bytes).expect("list");
            let show = |s: &Sandbox| format!("{} {:?}", s.id, s.pod());
            list.items.iter().map(show).collect()
        }
        Method::ListContainers => {
            let list = Containers::decode(bytes).expect("list");
            let show = |c: &Container| format!("{} {} {:?}", c.id, c.pod_sandbox_id, c.identity());
            list.containers.iter().map(show).collect()
        }
        _ => String::new(),
    }
}
