//! The rules of finished specifications: what CDI devices, hooks and NRI plugins may not make of one, and what they may.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tonic::Code;

use super::*;
use crate::oci::spec::finished::rule_names;

/// Nothing that plugins ask for.
const NONE: PluginChanges = PluginChanges {
    namespaces: false,
    seccomp: false,
    cgroup: false,
};
/// Everything that they can ask for.
const ALL: PluginChanges = PluginChanges {
    namespaces: true,
    seccomp: true,
    cgroup: true,
};

/// Finishes the specification of a case after a change by a source other than the request.
fn finished(
    case: &Case,
    plugins: PluginChanges,
    change: impl FnOnce(&mut Value),
) -> Result<(Value, Vec<String>), SpecError> {
    let built = case.build().expect("builds");
    let mut json = serde_json::to_value(&built.spec).expect("JSON");
    change(&mut json);
    let mut spec: Spec = serde_json::from_value(json).expect("a specification");
    let features = json!({"linux": {"netDevices": {"enabled": true}}});
    let support = RuntimeSupport::from_features(Some(&features));
    let request = FinishRequest {
        requested: &built.requested,
        plugins,
        handler: &case.handler,
        support: &support,
        host: &case.host,
    };
    let changed = request.finish(&mut spec)?;
    Ok((serde_json::to_value(&spec).expect("JSON"), changed))
}

/// A container with a seccomp profile, a volume, a group and a variable.
fn case() -> Case {
    Case::new(|case| {
        case.context().supplemental_groups = vec![7];
        case.context().seccomp = Some(criscope_cri::v1::SecurityProfile {
            profile_type: criscope_cri::v1::security_profile::ProfileType::RuntimeDefault.into(),
            ..Default::default()
        });
        case.container.mounts = vec![criscope_cri::v1::Mount {
            container_path: "/volume".to_owned(),
            host_path: "/data".to_owned(),
            ..Default::default()
        }];
        case.image.env = vec!["LD_PRELOAD=/proc/self/cwd/evil.so".to_owned()];
        case.handler.pod_annotations = vec!["run.oci.handler".to_owned()];
    })
}

/// Sets the value at a JSON pointer, or appends it to the list there if it ends with `-` (RFC 6902). Missing objects are created.
fn set(spec: &mut Value, pointer: &str, value: Value) {
    let mut at = spec;
    let (parents, name) = pointer.rsplit_once('/').expect("a pointer");
    for parent in parents.split('/').skip(1) {
        at = match at {
            Value::Array(list) => &mut list[parent.parse::<usize>().expect("a number")],
            other => &mut other[parent],
        };
    }
    match (name, at) {
        ("-", Value::Array(list)) => list.push(value),
        ("-", list) => *list = json!([value]),
        (name, object) => object[name] = value,
    }
}

/// Removes the entries of a list for which the field has the value.
fn remove(spec: &mut Value, pointer: &str, field: &str, value: &str) {
    let list = spec.pointer_mut(pointer).and_then(Value::as_array_mut);
    list.expect("a list").retain(|entry| entry[field] != value);
}

/// What breaks a rule, one a line: the rule, whether plugins ask for a change, a pointer, the value set there, and a part of the error.
const BREACHES: &str = include_str!("breaches.txt");

#[test]
fn every_rule_refuses_what_breaks_it() {
    let case = case();
    let mut broken = BTreeSet::new();
    for line in BREACHES.lines() {
        let fields: Vec<&str> = line.split(" | ").collect();
        let [rule, plugins, pointer, value, part] = fields[..] else {
            panic!("{line}")
        };
        let plugins = if plugins == "all" { ALL } else { NONE };
        let value = serde_json::from_str(value).expect(line);
        let error = finished(&case, plugins, |spec| set(spec, pointer, value)).expect_err(line);
        assert_eq!(error.code(), Code::FailedPrecondition, "{line}");
        let error = error.to_string();
        let begin = format!("finished specification, rule {rule}: ");
        assert!(
            error.starts_with(&begin) && error.contains(part),
            "{line}: {error}"
        );
        broken.insert(rule);
    }
    assert_eq!(
        broken,
        rule_names().into_iter().collect(),
        "a rule without a test"
    );
}

#[test]
fn nothing_of_the_request_is_lost() {
    let case = case();
    for path in [
        "/volume",
        "/etc/hosts",
        "/dev/shm",
        "/proc",
        "/sys",
        "/sys/fs/cgroup",
    ] {
        let error = finished(&case, ALL, |spec| {
            remove(spec, "/mounts", "destination", path)
        });
        let error = error.expect_err(path).to_string();
        assert!(error.contains(&format!("at {path} is missing")), "{error}");
    }
    for kind in ["network", "ipc", "uts", "pid", "cgroup"] {
        let drop_it = |spec: &mut Value| remove(spec, "/linux/namespaces", "type", kind);
        let error = finished(&case, NONE, drop_it).expect_err(kind).to_string();
        assert!(
            error.contains(&format!("linux.namespaces.{kind}: only")),
            "{error}"
        );
        let (_, changed) = finished(&case, ALL, drop_it).expect("asked for by a plugin");
        assert_eq!(changed, [format!("linux.namespaces.{kind}")]);
    }
}

#[test]
fn what_sources_may_add_is_kept_and_what_they_replace_is_told() {
    let case = case();
    let change = |spec: &mut Value| {
        let mount = |to: &str| json!({"destination": to, "type": "bind", "source": "/data", "options": ["bind"]});
        for (pointer, value) in [
            ("/mounts/-", mount("/proc/cpuinfo")),
            ("/mounts/-", mount("/usr/lib/v.so")),
            ("/mounts/-", mount("/sys/fs/bpf")),
            (
                "/mounts/-",
                json!({"destination": "/t", "type": "tmpfs", "source": "tmpfs"}),
            ),
            ("/process/env/-", json!("A=")),
            ("/process/args", json!(["other"])),
            ("/process/user/additionalGids/-", json!(44)),
            (
                "/process/rlimits",
                json!([{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 1}]),
            ),
            (
                "/linux/devices/-",
                json!({"path": "/dev/a", "type": "c", "major": 1, "minor": 5, "uid": 7}),
            ),
            (
                "/linux/devices/-",
                json!({"path": "/dev/fifo", "type": "p"}),
            ),
            ("/linux/resources/unified", json!({"memory.high": "1"})),
            (
                "/linux/resources/devices/-",
                json!({"allow": true, "type": "c", "major": 1, "minor": -1, "access": "rw"}),
            ),
            (
                "/linux/sysctl",
                json!({"net.ipv4.ip_forward": "1", "kernel.shmmax": "1"}),
            ),
            ("/linux/netDevices", json!({"eth7": {"name": "net1"}})),
            ("/annotations/by", json!("a plugin")),
            ("/annotations/run.oci.handler", json!("wasm")),
        ] {
            set(spec, pointer, value);
        }
    };
    let (_, changed) = finished(&case, NONE, change).expect("all of it is allowed");
    assert_eq!(changed, Vec::<String>::new());

    let replace = |spec: &mut Value| {
        let hosts = json!({"destination": "/etc/hosts", "type": "bind", "source": "/data", "options": ["bind"]});
        remove(spec, "/mounts", "destination", "/etc/hosts");
        set(spec, "/mounts/-", hosts);
        set(
            spec,
            "/linux/seccomp",
            json!({"defaultAction": "SCMP_ACT_ALLOW"}),
        );
        set(spec, "/linux/cgroupsPath", json!("/elsewhere"));
    };
    let (_, changed) = finished(&case, ALL, replace).expect("asked for by a plugin");
    assert_eq!(
        changed,
        ["linux.seccomp", "linux.cgroupsPath", "mount at /etc/hosts"]
    );
}

#[test]
fn sysctls_of_a_namespace_that_a_plugin_names_are_refused() {
    let of_node = |spec: &mut Value| {
        remove(spec, "/linux/namespaces", "type", "network");
        set(
            spec,
            "/linux/namespaces/-",
            json!({"type": "network", "path": "/proc/1/ns/net"}),
        );
        set(spec, "/linux/sysctl", json!({"net.ipv4.ip_forward": "1"}));
    };
    let error = finished(&case(), ALL, of_node)
        .expect_err("of the node")
        .to_string();
    assert!(error.contains("rule sysctls"), "{error}");
}

#[test]
fn with_systemd_a_cgroup_is_a_scope_of_a_slice() {
    let mut case = case();
    case.node.cgroup_driver = CgroupDriver::Systemd;
    case.pod.linux.as_mut().expect("present").cgroup_parent = "/kubepods.slice".to_owned();
    for (path, allowed) in [
        ("other.slice:plugin:c", true),
        ("/other", false),
        ("other.slice:plugin", false),
        ("other:plugin:c", false),
        ("other.slice:plugin:", false),
        ("other.slice::kubepods.slice", false),
        ("../other.slice:plugin:c", false),
    ] {
        let done = finished(&case, ALL, |spec| {
            set(spec, "/linux/cgroupsPath", json!(path))
        });
        assert_eq!(done.is_ok(), allowed, "{path}");
    }
}

#[test]
fn every_hook_has_an_environment_that_no_image_chooses() {
    let stages = [
        "prestart",
        "createRuntime",
        "createContainer",
        "startContainer",
        "poststart",
        "poststop",
    ];
    let hooks = || {
        json!([
            {"path": "/none"},
            {"path": "/empty", "env": [], "args": []},
            {"path": "/own", "env": ["A=b"], "args": ["own"], "timeout": 1},
        ])
    };
    let all: serde_json::Map<_, _> = stages
        .iter()
        .map(|stage| ((*stage).to_owned(), hooks()))
        .collect();
    let (spec, _) =
        finished(&case(), NONE, |spec| set(spec, "/hooks", all.into())).expect("allowed");
    let minimal = json!(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
    for stage in stages {
        let expected = json!([
            {"path": "/none", "env": minimal},
            {"path": "/empty", "env": minimal},
            {"path": "/own", "env": ["A=b"], "args": ["own"], "timeout": 1},
        ]);
        assert_eq!(spec["hooks"][stage], expected, "{stage}");
    }
    // The program of a `startContainer` hook is the container's.
    let inside = json!({"startContainer": [{"path": "/proc/self/exe", "env": ["PATH=bin"]}]});
    finished(&case(), NONE, |spec| set(spec, "/hooks", inside)).expect("in the container");
}

#[test]
fn the_specification_of_any_request_obeys_the_rules() {
    for case in [
        case(),
        Case::new(|_| {}),
        Case::new(Case::privileged),
        Case::new(|case| {
            case.image.env = vec!["WITHOUT_VALUE".to_owned()];
            case.node.cgroup_driver = CgroupDriver::Systemd;
            case.pod.linux.as_mut().expect("present").cgroup_parent = "a.slice".to_owned();
            case.sandbox.network = None;
            case.container.mounts = vec![criscope_cri::v1::Mount {
                container_path: "/sys".to_owned(),
                host_path: "/data".to_owned(),
                ..Default::default()
            }];
        }),
    ] {
        let (_, changed) = finished(&case, NONE, |_| {}).expect("nothing was added");
        assert_eq!(changed, Vec::<String>::new());
    }
}
