//! Tests of what an update changes.

use criscope_nri::api::{
    LinuxContainer, LinuxDeviceCgroup, LinuxRdt, OptionalBool, OptionalRepeatedString,
    OptionalString,
};

use super::*;

fn class(value: &str) -> Option<OptionalString> {
    let value = value.to_owned();
    Some(OptionalString { value })
}

fn container() -> Container {
    Container {
        linux: Some(LinuxContainer {
            resources: Some(LinuxResources {
                memory: Some(LinuxMemory {
                    swappiness: Some(OptionalUInt64 { value: 60 }),
                    ..LinuxMemory::default()
                }),
                devices: vec![LinuxDeviceCgroup::default()],
                ..LinuxResources::default()
            }),
            rdt: Some(LinuxRdt {
                clos_id: class("gold"),
                schemata: Some(OptionalRepeatedString::default()),
                ..LinuxRdt::default()
            }),
            ..LinuxContainer::default()
        }),
        ..Container::default()
    }
}

#[test]
fn what_an_update_does_not_change_is_named() {
    let wanted = LinuxResources {
        blockio_class: class("slow"),
        rdt_class: class("silver"),
        memory: Some(LinuxMemory {
            limit: Some(OptionalInt64 { value: 1 }),
            kernel: Some(OptionalInt64 { value: 1 }),
            kernel_tcp: Some(OptionalInt64 { value: 1 }),
            swappiness: Some(OptionalUInt64 { value: 1 }),
            disable_oom_killer: Some(OptionalBool { value: true }),
            use_hierarchy: Some(OptionalBool { value: true }),
            ..LinuxMemory::default()
        }),
        devices: vec![LinuxDeviceCgroup {
            allow: true,
            ..LinuxDeviceCgroup::default()
        }],
        ..LinuxResources::default()
    };
    assert_eq!(
        unchanged(&wanted, &container()).join(" "),
        "blockio_class rdt_class devices memory.kernel memory.kernel_tcp memory.swappiness \
         memory.disable_oom_killer memory.use_hierarchy"
    );
}

#[test]
fn a_plugin_may_repeat_what_a_container_has() {
    let container = container();
    let has = container.linux.clone().expect("linux").resources;
    let wanted = LinuxResources {
        rdt_class: class("gold"),
        ..has.expect("resources")
    };
    assert!(unchanged(&wanted, &container).is_empty());
    assert!(unchanged(&LinuxResources::default(), &container).is_empty());
    let none = LinuxResources {
        rdt_class: class("/PodQos"),
        ..LinuxResources::default()
    };
    assert_eq!(unchanged(&none, &container), ["rdt_class"]);
    assert!(unchanged(&none, &Container::default()).is_empty());
}
