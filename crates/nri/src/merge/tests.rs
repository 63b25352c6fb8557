//! Tests of merging.

use std::collections::BTreeMap;

use super::super::MergedUpdate;
use super::*;
use crate::api::*;

fn container() -> Container {
    Container {
        id: "new".to_owned(),
        env: vec!["PATH=/bin".to_owned(), "SECRET=x".to_owned()],
        args: vec!["sleep".to_owned()],
        mounts: vec![mount("/data", "/old")],
        annotations: BTreeMap::from([("a".to_owned(), "1".to_owned())]),
        ..Default::default()
    }
}

fn mount(destination: &str, source: &str) -> Mount {
    Mount {
        destination: destination.to_owned(),
        source: source.to_owned(),
        ..Default::default()
    }
}

fn env(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

fn adjustment(adjust: ContainerAdjustment) -> CreateContainerResponse {
    CreateContainerResponse {
        adjust: Some(adjust),
        ..Default::default()
    }
}

fn with_env(list: &[(&str, &str)]) -> CreateContainerResponse {
    adjustment(ContainerAdjustment {
        env: list.iter().map(|(key, value)| env(key, value)).collect(),
        ..Default::default()
    })
}

fn creation() -> MergedCreation {
    MergedCreation::new(PodSandbox::default(), container())
}

fn seen(creation: &MergedCreation) -> &Container {
    creation.request.container.as_ref().expect("a container")
}

fn limit(id: &str, bytes: i64, ignore_failure: bool) -> ContainerUpdate {
    ContainerUpdate {
        container_id: id.to_owned(),
        linux: Some(LinuxContainerUpdate {
            resources: Some(memory(bytes)),
        }),
        ignore_failure,
    }
}

fn memory(bytes: i64) -> LinuxResources {
    LinuxResources {
        memory: Some(LinuxMemory {
            limit: Some(OptionalInt64 { value: bytes }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn limit_of(update: &ContainerUpdate) -> Option<i64> {
    let resources = update.linux.as_ref()?.resources.as_ref()?;
    Some(resources.memory.as_ref()?.limit.as_ref()?.value)
}

#[test]
fn later_plugins_see_what_earlier_ones_have_set() {
    let mut creation = creation();
    let first = adjustment(ContainerAdjustment {
        env: vec![env("NEW", "1"), env("-SECRET", "")],
        mounts: vec![mount("/data", "/new")],
        args: vec!["run".to_owned()],
        annotations: BTreeMap::from([("b".to_owned(), "2".to_owned())]),
        ..Default::default()
    });
    creation.merge(first, "10-a").expect("merges");
    let seen = seen(&creation);
    assert_eq!(seen.env, ["PATH=/bin", "NEW=1"]);
    assert_eq!(seen.args, ["run"]);
    assert_eq!(seen.mounts.len(), 1);
    assert_eq!(seen.mounts[0].source, "/new");
    assert_eq!(seen.annotations.len(), 2);
    let (adjusted, _) = creation.into_parts();
    let keys: Vec<_> = adjusted.env.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["-SECRET", "NEW"]);
}

#[test]
fn what_one_plugin_has_set_another_may_set_only_after_removing_it() {
    let mut creation = creation();
    creation
        .merge(with_env(&[("A", "1")]), "10-a")
        .expect("merges");
    let conflict = creation.merge(with_env(&[("A", "2")]), "20-b");
    let conflict = conflict.expect_err("a conflict").to_string();
    assert_eq!(
        conflict,
        "NRI plugins 20-b and 10-a both set environment variable A"
    );
    creation
        .merge(with_env(&[("-A", ""), ("A", "3")]), "30-c")
        .expect("removed first");
    let again = creation.merge(with_env(&[("A", "4")]), "40-d");
    assert!(again.is_err(), "it belongs to 30-c now");
    let (adjusted, _) = creation.into_parts();
    let all: Vec<_> = adjusted.env.iter().map(|e| (&*e.key, &*e.value)).collect();
    assert_eq!(all, [("A", "3")]);
}

#[test]
fn an_annotation_removed_by_a_later_plugin_is_gone() {
    let mut creation = creation();
    let annotate = |key: &str, value: &str| {
        adjustment(ContainerAdjustment {
            annotations: BTreeMap::from([(key.to_owned(), value.to_owned())]),
            ..Default::default()
        })
    };
    creation.merge(annotate("x", "1"), "10-a").expect("merges");
    creation.merge(annotate("-x", ""), "20-b").expect("merges");
    assert!(!seen(&creation).annotations.contains_key("x"));
    let (adjusted, _) = creation.into_parts();
    assert_eq!(adjusted.annotations.into_keys().collect::<Vec<_>>(), ["-x"]);
}

#[test]
fn arguments_are_replaced_after_an_empty_one() {
    let mut creation = creation();
    let args = |list: &[&str]| {
        adjustment(ContainerAdjustment {
            args: list.iter().map(|&one| one.to_owned()).collect(),
            ..Default::default()
        })
    };
    creation.merge(args(&["a"]), "10-a").expect("merges");
    assert!(creation.merge(args(&["b"]), "20-b").is_err());
    creation.merge(args(&["", "c"]), "30-c").expect("replaced");
    assert_eq!(creation.into_parts().0.args, ["c"]);
}

#[test]
fn hooks_of_all_plugins_are_kept() {
    let mut creation = creation();
    for plugin in ["10-a", "20-b"] {
        let hooks = Hooks {
            poststart: vec![Hook {
                path: format!("/{plugin}"),
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = adjustment(ContainerAdjustment {
            hooks: Some(hooks),
            ..Default::default()
        });
        creation.merge(answer, plugin).expect("merges");
    }
    let mut validate = ValidateContainerAdjustmentRequest::default();
    creation.validated(&mut validate);
    let owners = validate.owners.expect("owners").owners;
    assert_eq!(owners["new"].simple[&(Field::OciHooks as i32)], "10-a,20-b");
    assert_eq!(
        creation
            .into_parts()
            .0
            .hooks
            .expect("hooks")
            .poststart
            .len(),
        2
    );
}

#[test]
fn resources_conflict_by_field_and_by_key() {
    let linux = |resources| {
        adjustment(ContainerAdjustment {
            linux: Some(LinuxContainerAdjustment {
                resources: Some(resources),
                ..Default::default()
            }),
            ..Default::default()
        })
    };
    let shares = LinuxResources {
        cpu: Some(LinuxCpu {
            shares: Some(OptionalUInt64 { value: 7 }),
            cpus: "0".to_owned(),
            ..Default::default()
        }),
        unified: BTreeMap::from([("memory.high".to_owned(), "1".to_owned())]),
        ..Default::default()
    };
    let mut creation = creation();
    creation.merge(linux(memory(5)), "10-a").expect("merges");
    creation
        .merge(linux(shares.clone()), "20-b")
        .expect("merges");
    assert!(creation.merge(linux(memory(6)), "30-c").is_err());
    let error = creation
        .merge(linux(shares), "30-c")
        .expect_err("a conflict");
    assert!(error.to_string().ends_with("CPU shares"), "{error}");
    let adjusted = creation.into_parts().0.linux.expect("linux");
    let resources = adjusted.resources.expect("resources");
    assert_eq!(resources.cpu.expect("cpu").cpus, "0");
    assert_eq!(
        resources.memory.expect("memory").limit.expect("set").value,
        5
    );
}

#[test]
fn a_namespace_belongs_to_one_plugin_even_if_it_is_removed() {
    let namespaces = |list: &[(&str, &str)]| {
        let list = list.iter().map(|(typ, path)| LinuxNamespace {
            r#type: (*typ).to_owned(),
            path: (*path).to_owned(),
        });
        adjustment(ContainerAdjustment {
            linux: Some(LinuxContainerAdjustment {
                namespaces: list.collect(),
                ..Default::default()
            }),
            ..Default::default()
        })
    };
    let mut creation = creation();
    creation
        .merge(namespaces(&[("-ipc", "")]), "10-a")
        .expect("merges");
    assert!(
        creation
            .merge(namespaces(&[("ipc", "/x")]), "20-b")
            .is_err()
    );
}

#[test]
fn rdt_is_set_anew_after_its_removal() {
    let rdt = |clos: Option<&str>, remove| {
        adjustment(ContainerAdjustment {
            linux: Some(LinuxContainerAdjustment {
                rdt: Some(LinuxRdt {
                    clos_id: clos.map(|value| OptionalString {
                        value: value.to_owned(),
                    }),
                    remove,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        })
    };
    let mut creation = creation();
    creation
        .merge(rdt(Some("gold"), false), "10-a")
        .expect("merges");
    assert!(creation.merge(rdt(Some("silver"), false), "20-b").is_err());
    creation
        .merge(rdt(Some("silver"), true), "30-c")
        .expect("removed first");
    let adjusted = creation.into_parts().0.linux.expect("linux").rdt;
    let adjusted = adjusted.expect("rdt");
    assert_eq!(adjusted.clos_id.expect("set").value, "silver");
    assert!(!adjusted.remove);
}

#[test]
fn other_containers_are_updated_and_not_the_one_being_created() {
    let mut creation = creation();
    let updates = |list: Vec<ContainerUpdate>| CreateContainerResponse {
        update: list,
        evict: vec![ContainerEviction {
            container_id: "c".to_owned(),
            reason: String::new(),
        }],
        ..Default::default()
    };
    creation
        .merge(
            updates(vec![limit("a", 1, true), limit("b", 2, false)]),
            "10-a",
        )
        .expect("merges");
    // A conflict that may be ignored, and one that may not.
    creation
        .merge(updates(vec![limit("a", 9, true)]), "20-b")
        .expect("ignored");
    assert!(
        creation
            .merge(updates(vec![limit("b", 9, false)]), "20-b")
            .is_err()
    );
    let early = creation.merge(updates(vec![limit("new", 1, true)]), "30-c");
    assert!(matches!(early, Err(EventError::Early { .. })));
    let (list, evictions) = creation.into_parts().1.into_parts();
    let list: Vec<_> = list
        .iter()
        .map(|update| {
            (
                &*update.container_id,
                limit_of(update),
                update.ignore_failure,
            )
        })
        .collect();
    assert_eq!(list, [("a", Some(1), true), ("b", Some(2), false)]);
    // The first plugin that asks for it is told.
    let by: Vec<_> = evictions.iter().map(|one| &*one.plugin).collect();
    assert_eq!(by, ["10-a"]);
}

#[test]
fn an_update_is_changed_on_its_way() {
    let mut updating = MergedUpdate::new(UpdateContainerRequest {
        container: Some(container()),
        linux_resources: Some(LinuxResources {
            cpu: Some(LinuxCpu {
                quota: Some(OptionalInt64 { value: 5 }),
                ..Default::default()
            }),
            ..memory(10)
        }),
        ..Default::default()
    });
    let answer = UpdateContainerResponse {
        update: vec![limit("new", 20, false), limit("other", 3, false)],
        ..Default::default()
    };
    updating.merge(answer, "10-a").expect("merges");
    assert!(updating.changed);
    let resources = updating.request.linux_resources.expect("resources");
    assert_eq!(
        resources.memory.expect("memory").limit.expect("set").value,
        20
    );
    assert_eq!(resources.cpu.expect("cpu").quota.expect("set").value, 5);
    assert_eq!(updating.others.into_parts().0.len(), 1);
}
