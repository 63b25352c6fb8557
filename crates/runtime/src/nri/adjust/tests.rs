//! Tests of adjustments.

use std::collections::BTreeMap;

use criscope_nri::api::*;
use serde_json::{Value, json};

use super::{Facts, edit};
use crate::oci::spec::Action;

fn spec() -> Value {
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["sh"],
            "env": ["PATH=/bin", "DROP=1", "KEEP=1"],
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1, "soft": 1}],
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/data", "type": "bind", "source": "/old"},
        ],
        "annotations": {"a": "1", "b": "2"},
        "linux": {
            "devices": [{"path": "/dev/old", "type": "c", "major": 1, "minor": 3}],
            "namespaces": [{"type": "ipc"}, {"type": "network", "path": "/run/netns/x"}],
            "resources": {"memory": {"limit": 5}},
            "sysctl": {"net.a": "1"},
        },
    })
}

fn mount(destination: &str, options: &[&str]) -> Mount {
    Mount {
        destination: destination.to_owned(),
        r#type: "bind".to_owned(),
        source: "/src".to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
    }
}

fn adjusted(adjustment: &ContainerAdjustment) -> (Value, Vec<Action>) {
    let mut spec = spec();
    let linux = adjustment.linux.clone().unwrap_or_default();
    let actions = edit(&mut spec, adjustment, &linux, Facts::default());
    // It is a specification still.
    serde_json::from_value::<oci_spec::runtime::Spec>(spec.clone()).expect("a specification");
    (spec, actions)
}

fn key_value(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[test]
fn the_process_is_adjusted() {
    let (spec, _) = adjusted(&ContainerAdjustment {
        env: vec![
            key_value("-DROP", ""),
            key_value("PATH", "/sbin"),
            key_value("NEW", "x=y"),
        ],
        args: vec!["run".to_owned(), "it".to_owned()],
        annotations: BTreeMap::from([
            ("-a".to_owned(), String::new()),
            ("c".to_owned(), "3".to_owned()),
        ]),
        rlimits: vec![PosixRlimit {
            r#type: "RLIMIT_NOFILE".to_owned(),
            hard: 9,
            soft: 8,
        }],
        hooks: Some(Hooks {
            poststart: vec![Hook {
                path: "/bin/true".to_owned(),
                timeout: Some(OptionalInt { value: 5 }),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    });
    let process = &spec["process"];
    assert_eq!(process["env"], json!(["PATH=/sbin", "KEEP=1", "NEW=x=y"]));
    assert_eq!(process["args"], json!(["run", "it"]));
    assert_eq!(spec["annotations"], json!({"b": "2", "c": "3"}));
    let limits = json!([{"type": "RLIMIT_NOFILE", "hard": 9, "soft": 8}]);
    assert_eq!(process["rlimits"], limits);
    let hook = json!([{"path": "/bin/true", "timeout": 5}]);
    assert_eq!(spec["hooks"]["poststart"], hook);
}

#[test]
fn mounts_are_replaced_removed_and_ordered() {
    let (spec, actions) = adjusted(&ContainerAdjustment {
        mounts: vec![
            mount("/data/deep/er", &["bind", "rslave"]),
            mount("/data", &["bind", "ro"]),
            mount("-/proc", &[]),
        ],
        ..Default::default()
    });
    let mounts = spec["mounts"].as_array().expect("a list");
    let seen: Vec<_> = mounts
        .iter()
        .map(|one| (one["destination"].as_str(), one["source"].as_str()))
        .collect();
    let source = Some("/src");
    assert_eq!(
        seen,
        [(Some("/data"), source), (Some("/data/deep/er"), source)]
    );
    assert_eq!(spec["linux"]["rootfsPropagation"], "rslave");
    assert_eq!(actions.len(), 1, "the source must propagate");
}

#[test]
fn linux_is_adjusted() {
    let resources = LinuxResources {
        cpu: Some(LinuxCpu {
            shares: Some(OptionalUInt64 { value: 7 }),
            cpus: "0-1".to_owned(),
            ..Default::default()
        }),
        memory: Some(LinuxMemory {
            limit: Some(OptionalInt64 { value: 9 }),
            ..Default::default()
        }),
        pids: Some(LinuxPids { limit: 11 }),
        unified: BTreeMap::from([("memory.high".to_owned(), "1".to_owned())]),
        rdt_class: Some(OptionalString {
            value: "gold".to_owned(),
        }),
        ..Default::default()
    };
    let namespace = |typ: &str, path: &str| LinuxNamespace {
        r#type: typ.to_owned(),
        path: path.to_owned(),
    };
    let device = |path: &str, typ: &str| LinuxDevice {
        path: path.to_owned(),
        r#type: typ.to_owned(),
        major: 7,
        minor: 1,
        file_mode: Some(OptionalFileMode { value: 0o600 }),
        ..Default::default()
    };
    let (spec, _) = adjusted(&ContainerAdjustment {
        linux: Some(LinuxContainerAdjustment {
            devices: vec![
                device("-/dev/old", ""),
                device("/dev/new", "b"),
                device("/dev/fifo", "p"),
                device("/dev/raw", "u"),
            ],
            resources: Some(resources),
            cgroups_path: "/elsewhere".to_owned(),
            oom_score_adj: Some(OptionalInt { value: 500 }),
            io_priority: Some(LinuxIoPriority {
                class: IoPrioClass::IoprioClassIdle as i32,
                priority: 3,
            }),
            scheduler: Some(LinuxScheduler {
                policy: LinuxSchedulerPolicy::SchedBatch as i32,
                nice: 5,
                ..Default::default()
            }),
            seccomp_policy: Some(LinuxSeccomp {
                default_action: "SCMP_ACT_ALLOW".to_owned(),
                architectures: vec!["SCMP_ARCH_X86_64".to_owned()],
                syscalls: vec![LinuxSyscall {
                    names: vec!["getcwd".to_owned()],
                    action: "SCMP_ACT_ERRNO".to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            }),
            namespaces: vec![namespace("-ipc", ""), namespace("network", "")],
            sysctl: BTreeMap::from([
                ("-net.a".to_owned(), String::new()),
                ("net.b".to_owned(), "2".to_owned()),
            ]),
            memory_policy: Some(LinuxMemoryPolicy {
                mode: MpolMode::MpolBind as i32,
                nodes: "0".to_owned(),
                flags: vec![MpolFlag::MpolFStaticNodes as i32],
            }),
            ..Default::default()
        }),
        ..Default::default()
    });
    let linux = &spec["linux"];
    assert_eq!(linux["devices"][0]["path"], "/dev/new");
    // The device cgroup has no rules for FIFOs.
    let rule = |typ: &str, access: &str| json!({"allow": true, "type": typ, "major": 7, "minor": 1, "access": access});
    assert_eq!(
        linux["resources"]["devices"],
        json!([rule("b", "rwm"), rule("c", "rw")])
    );
    assert_eq!(
        linux["resources"]["cpu"],
        json!({"shares": 7, "cpus": "0-1"})
    );
    assert_eq!(linux["resources"]["memory"]["limit"], 9);
    assert_eq!(linux["resources"]["pids"]["limit"], 11);
    assert_eq!(linux["resources"]["unified"]["memory.high"], "1");
    assert_eq!(linux["intelRdt"]["closID"], "gold");
    assert_eq!(linux["cgroupsPath"], "/elsewhere");
    assert_eq!(linux["namespaces"], json!([{"type": "network"}]));
    assert_eq!(linux["sysctl"], json!({"net.b": "2"}));
    assert_eq!(linux["memoryPolicy"]["mode"], "MPOL_BIND");
    assert_eq!(linux["seccomp"]["syscalls"][0]["names"][0], "getcwd");
    let process = &spec["process"];
    assert_eq!(process["oomScoreAdj"], 500);
    assert_eq!(process["ioPriority"]["class"], "IOPRIO_CLASS_IDLE");
    assert_eq!(process["scheduler"]["policy"], "SCHED_BATCH");
}
