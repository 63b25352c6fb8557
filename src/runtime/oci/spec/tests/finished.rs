//! The rules of finished specifications: what CDI devices, hooks and NRI plugins may not make of one, and what they may.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tonic::Code;

use super::*;
use crate::runtime::oci::spec::finished::rule_names;

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
    let support = RuntimeSupport::of_features(Some(&features));
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
        case.context().seccomp = Some(crate::cri::v1::SecurityProfile {
            profile_type: crate::cri::v1::security_profile::ProfileType::RuntimeDefault.into(),
            ..Default::default()
        });
        case.container.mounts = vec![crate::cri::v1::Mount {
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

/// A rule, what plugins ask for, where a value is set, the value, and a part of the error.
type Breach = (
    &'static str,
    PluginChanges,
    &'static str,
    Value,
    &'static str,
);

fn breaches() -> Vec<Breach> {
    let hook = |hook: Value| json!({"createContainer": [hook]});
    let with = |entry: &str| json!({"poststop": [{"path": "/h", "env": ["A=b", entry]}]});
    let mount = |to: &str, source: &str| json!({"destination": to, "type": "bind", "source": source, "options": ["rbind"]});
    let mounted = |to: &str| mount(to, "/data");
    let device = |path: &str, typ: &str, major: i64| json!({"path": path, "type": typ, "major": major, "minor": 1});
    let rule = |typ: &str, major: i64, access: &str| json!({"allow": true, "type": typ, "major": major, "access": access});
    let limit = |soft: u64| json!([{"type": "RLIMIT_NOFILE", "soft": soft, "hard": 9}]);
    let (network, seccomp) = (
        json!({"type": "time"}),
        json!({"defaultAction": "SCMP_ACT_ALLOW"}),
    );
    vec![
        (
            "hooks",
            NONE,
            "/hooks",
            hook(json!({"path": "h"})),
            "\"h\" is not an absolute path",
        ),
        (
            "hooks",
            NONE,
            "/hooks",
            hook(json!({"path": ""})),
            "hooks.createContainer[0].path",
        ),
        (
            "hooks",
            NONE,
            "/hooks",
            hook(json!({"path": "/opt/../proc/self/cwd/h"})),
            "`..`",
        ),
        (
            "hooks",
            NONE,
            "/hooks",
            hook(json!({"path": "/proc/self/cwd/h"})),
            "below /proc",
        ),
        (
            "hooks",
            NONE,
            "/hooks",
            hook(json!({"path": "//proc/./self/root/h"})),
            "below /proc",
        ),
        (
            "hooks",
            NONE,
            "/hooks",
            hook(json!({"path": "/h", "timeout": 0})),
            "timeout",
        ),
        (
            "hooks",
            NONE,
            "/hooks",
            hook(json!({"path": "/h", "args": ["h", "\0"]})),
            "zero byte",
        ),
        (
            "hooks",
            NONE,
            "/hooks",
            with("B"),
            "hooks.poststop[0].env[1]: not of the form",
        ),
        ("hooks", NONE, "/hooks", with("=b"), "name=value"),
        ("hooks", NONE, "/hooks", with("B=\0"), "name=value"),
        ("hooks", NONE, "/hooks", with("PATH=/bin:"), "not absolute"),
        ("hooks", NONE, "/hooks", with("PATH=.:/bin"), "not absolute"),
        ("hooks", NONE, "/hooks", with("PATH="), "not absolute"),
        (
            "request",
            ALL,
            "/process/cwd",
            json!("/elsewhere"),
            "process.cwd: only the request",
        ),
        (
            "request",
            ALL,
            "/process/noNewPrivileges",
            json!(true),
            "process.noNewPrivileges",
        ),
        (
            "request",
            ALL,
            "/process/apparmorProfile",
            json!("unconfined"),
            "apparmorProfile",
        ),
        (
            "request",
            ALL,
            "/process/selinuxLabel",
            json!("a:b:spc_t:s0"),
            "selinuxLabel",
        ),
        (
            "request",
            ALL,
            "/process/capabilities",
            json!({"bounding": ["CAP_SYS_ADMIN"]}),
            "capabilities",
        ),
        (
            "request",
            ALL,
            "/process/user/uid",
            json!(5),
            "process.user.uid",
        ),
        (
            "request",
            ALL,
            "/process/user/additionalGids",
            json!([8]),
            "a group of the request is missing",
        ),
        (
            "request",
            ALL,
            "/process/terminal",
            json!(true),
            "process.terminal",
        ),
        (
            "request",
            ALL,
            "/linux/maskedPaths",
            json!(["/a"]),
            "linux.maskedPaths",
        ),
        (
            "request",
            ALL,
            "/linux/readonlyPaths",
            json!(["/a"]),
            "linux.readonlyPaths",
        ),
        (
            "request",
            ALL,
            "/linux/mountLabel",
            json!("a:b:c:s0"),
            "linux.mountLabel",
        ),
        (
            "request",
            ALL,
            "/linux/uidMappings",
            json!([]),
            "linux.uidMappings",
        ),
        ("request", ALL, "/root/path", json!("/"), "root.path"),
        (
            "request",
            ALL,
            "/root/readonly",
            json!(true),
            "root.readonly",
        ),
        ("request", ALL, "/hostname", json!("other"), "hostname"),
        (
            "namespaces",
            NONE,
            "/linux/namespaces/-",
            network.clone(),
            "linux.namespaces.time: only",
        ),
        (
            "namespaces",
            ALL,
            "/linux/namespaces/-",
            json!({"type": "user"}),
            "linux.namespaces.user",
        ),
        (
            "namespaces",
            ALL,
            "/linux/namespaces/-",
            json!({"type": "network"}),
            "it is there twice",
        ),
        (
            "namespaces",
            ALL,
            "/linux/namespaces/-",
            json!({"type": "time", "path": "time"}),
            "not absolute",
        ),
        (
            "namespaces",
            ALL,
            "/linux/namespaces/0/path",
            json!("/proc/1/ns/mnt"),
            "linux.namespaces.mount",
        ),
        (
            "namespaces",
            ALL,
            "/linux/namespaces",
            json!([]),
            "linux.namespaces.mount",
        ),
        (
            "seccomp",
            NONE,
            "/linux/seccomp",
            Value::Null,
            "linux.seccomp: only",
        ),
        (
            "seccomp",
            NONE,
            "/linux/seccomp",
            seccomp,
            "linux.seccomp: only",
        ),
        (
            "seccomp",
            ALL,
            "/linux/seccomp",
            json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "s"}),
            "listenerPath",
        ),
        (
            "cgroup",
            NONE,
            "/linux/cgroupsPath",
            json!("/other"),
            "linux.cgroupsPath: only",
        ),
        (
            "cgroup",
            ALL,
            "/linux/cgroupsPath",
            json!("/"),
            "no cgroup for a container",
        ),
        (
            "cgroup",
            ALL,
            "/linux/cgroupsPath",
            json!("kubepods/x"),
            "no cgroup for a container",
        ),
        (
            "cgroup",
            ALL,
            "/linux/cgroupsPath",
            json!("/a/../b"),
            "no cgroup for a container",
        ),
        (
            "cgroup",
            ALL,
            "/linux/cgroupsPath",
            json!("a.slice:x:y"),
            "no cgroup for a container",
        ),
        (
            "cgroup",
            ALL,
            "/linux/cgroupsPath",
            json!("/kubepods/pod1"),
            "that of its pod is in it",
        ),
        (
            "cgroup",
            ALL,
            "/linux/cgroupsPath",
            json!("/kubepods/"),
            "that of its pod is in it",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("mnt"),
            "not an absolute path",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("/mnt/../etc"),
            "not an absolute path",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("/mnt\n"),
            "control characters",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("/"),
            "nothing may be mounted at /",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("/proc"),
            "nothing may be mounted at /proc",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("/proc/./sys/"),
            "nothing may be mounted at",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("//sys/"),
            "nothing may be mounted at",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("/volume/"),
            "hides that at /volume",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mounted("/etc"),
            "hides that at /etc/hosts",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mount("/mnt", "rootfs/etc"),
            "mounts[9].source",
        ),
        (
            "mounts",
            ALL,
            "/mounts/-",
            mount("/mnt", "/data/../etc"),
            "mounts[9].source",
        ),
        (
            "mounts",
            ALL,
            "/mounts",
            json!([]),
            "the mount of the request at /proc is missing",
        ),
        ("process", NONE, "/process/args", json!([]), "no command"),
        ("process", NONE, "/process/args", json!([""]), "no command"),
        (
            "process",
            NONE,
            "/process/args",
            json!(["a", "\0"]),
            "zero byte",
        ),
        (
            "process",
            NONE,
            "/process/env/-",
            json!("A"),
            "process.env[2]: not of the form",
        ),
        (
            "process",
            NONE,
            "/process/env/-",
            json!("=a"),
            "not of the form",
        ),
        (
            "process",
            NONE,
            "/process/env/-",
            json!("A=\0"),
            "not of the form",
        ),
        (
            "process",
            NONE,
            "/process/oomScoreAdj",
            json!(-1001),
            "oomScoreAdj",
        ),
        (
            "process",
            NONE,
            "/process/rlimits",
            limit(10),
            "above the hard one",
        ),
        (
            "ids",
            NONE,
            "/process/user/additionalGids/-",
            json!(u32::MAX),
            "4294967295 is no id",
        ),
        (
            "ids",
            NONE,
            "/linux/devices/-",
            json!({"path": "/dev/a", "type": "c", "major": 1, "minor": 1, "uid": u32::MAX}),
            "devices.uid",
        ),
        (
            "devices",
            NONE,
            "/linux/devices/-",
            device("dev/a", "c", 1),
            "cannot be a device node",
        ),
        (
            "devices",
            NONE,
            "/linux/devices/-",
            device("/dev/../etc/passwd", "c", 1),
            "cannot be a device node",
        ),
        (
            "devices",
            NONE,
            "/linux/devices/-",
            device("/proc/a", "c", 1),
            "cannot be a device node",
        ),
        (
            "devices",
            NONE,
            "/linux/devices/-",
            device("/dev/a", "a", 1),
            "of no type",
        ),
        (
            "devices",
            NONE,
            "/linux/devices/-",
            device("/dev/a", "b", -1),
            "no device can have",
        ),
        (
            "devices",
            NONE,
            "/linux/devices/-",
            device("/dev/a", "u", 1 << 12),
            "no device can have",
        ),
        (
            "resources",
            NONE,
            "/linux/resources/unified",
            json!({"../../memory.max": "1"}),
            "unified",
        ),
        (
            "resources",
            NONE,
            "/linux/resources/unified",
            json!({"cgroup.procs": "1"}),
            "unified",
        ),
        (
            "resources",
            NONE,
            "/linux/resources/hugepageLimits",
            json!([{"pageSize": "../2MB", "limit": 1}]),
            "huge pages",
        ),
        (
            "resources",
            NONE,
            "/linux/resources/cpu",
            json!({"cpus": "0\n1"}),
            "cpuset",
        ),
        (
            "resources",
            NONE,
            "/linux/resources/cpu",
            json!({"mems": "all"}),
            "cpuset",
        ),
        (
            "resources",
            NONE,
            "/linux/resources/devices/-",
            rule("p", 1, "r"),
            "types a, b and c",
        ),
        (
            "resources",
            NONE,
            "/linux/resources/devices/-",
            rule("c", 1, "x"),
            "subset of rwm",
        ),
        (
            "resources",
            NONE,
            "/linux/resources/devices/-",
            rule("c", -2, "r"),
            "such numbers",
        ),
        (
            "sysctls",
            NONE,
            "/linux/sysctl",
            json!({"kernel.core_pattern": "|/x"}),
            "kernel.core_pattern: not of a namespace",
        ),
        (
            "sysctls",
            NONE,
            "/linux/sysctl",
            json!({"net/../kernel/core_pattern": "|/x"}),
            "not of a namespace",
        ),
        (
            "sysctls",
            NONE,
            "/linux/sysctl",
            json!({"net.a": "1\n2"}),
            "line break",
        ),
        (
            "annotations",
            ALL,
            "/annotations/run.oci.hooks.stdout",
            json!("/etc/x"),
            "run.oci.hooks.stdout: it changes the node",
        ),
        (
            "annotations",
            ALL,
            "/annotations/org.systemd.property.Slice",
            json!("x"),
            "it changes the node",
        ),
        (
            "annotations",
            ALL,
            "/annotations/io.katacontainers.config.x",
            json!("x"),
            "it changes the node",
        ),
        (
            "annotations",
            ALL,
            "/annotations/dev.gvisor.x",
            json!("x"),
            "it changes the node",
        ),
        (
            "annotations",
            ALL,
            "/annotations/io.kubernetes.cri.container-type",
            json!("sandbox"),
            "only the runtime",
        ),
        (
            "annotations",
            ALL,
            "/annotations/a",
            json!("\0"),
            "zero byte",
        ),
        (
            "annotations",
            ALL,
            "/annotations",
            json!({}),
            "it is missing",
        ),
        (
            "network devices",
            NONE,
            "/linux/netDevices",
            json!({"../a": {"name": "net1"}}),
            "not the name of an interface",
        ),
        (
            "network devices",
            NONE,
            "/linux/netDevices",
            json!({"a": {"name": "a/b"}}),
            "not the name of an interface",
        ),
        (
            "network devices",
            NONE,
            "/linux/netDevices",
            json!({"a": {"name": "n"}, "b": {"name": "n"}}),
            "two devices are n",
        ),
        (
            "rdt",
            NONE,
            "/linux/intelRdt",
            json!({"closID": "../../etc"}),
            "closID",
        ),
        (
            "rdt",
            NONE,
            "/linux/intelRdt",
            json!({"closID": ".."}),
            "closID",
        ),
    ]
}

#[test]
fn every_rule_refuses_what_breaks_it() {
    let case = case();
    let mut broken = BTreeSet::new();
    for (rule, plugins, pointer, value, part) in breaches() {
        let text = format!("{pointer} = {value}");
        let error = finished(&case, plugins, |spec| set(spec, pointer, value)).expect_err(&text);
        assert_eq!(error.code(), Code::FailedPrecondition, "{text}");
        let error = error.to_string();
        let begin = format!("finished specification, rule {rule}: ");
        assert!(
            error.starts_with(&begin) && error.contains(part),
            "{text}: {error}"
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
            case.container.mounts = vec![crate::cri::v1::Mount {
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
