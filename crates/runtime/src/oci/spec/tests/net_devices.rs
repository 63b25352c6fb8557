//! Network devices and `intelRdt` of CDI devices, and the support of the OCI runtime for them.

use std::fs;

use serde_json::{Value, json};
use tonic::Code;

use super::*;
use criscope_cri::v1::CdiDevice;

/// A container with the device `v.com/x=0`, which has these edits, and `v.com/x=1`, which has others.
fn with(edits: &Value, others: &Value) -> Case {
    let dir = tempfile::tempdir().expect("made");
    let file = json!({"cdiVersion": "1.1.0", "kind": "v.com/x", "annotations": {"a": "b"}, "devices": [
        {"name": "0", "containerEdits": edits, "annotations": {}}, {"name": "1", "containerEdits": others}
    ]});
    fs::write(dir.path().join("x.json"), file.to_string()).expect("written");
    Case::new(|case| {
        case.cdi = cdi::Registry::read(&[dir.path()]);
        let names = ["v.com/x=0", "v.com/x=1"].map(str::to_owned);
        case.container.cdi_devices = names.map(|name| CdiDevice { name }).into();
    })
}

fn net(host: &str, name: &str) -> Value {
    json!({"netDevices": [{"hostInterfaceName": host, "name": name}]})
}

#[test]
fn network_devices_and_classes_of_service_are_set() {
    let rdt = json!({"netDevices": [], "intelRdt": {"closID": "gold", "schemata": ["L3:0=ff"], "enableMonitoring": true}});
    let case = with(&net("eth7", "net1"), &rdt);
    let linux = &case.json()["linux"];
    assert_eq!(linux["netDevices"], json!({"eth7": {"name": "net1"}}));
    assert_eq!(linux["intelRdt"], rdt["intelRdt"]);
    // Of files before version 1.1.0.
    let old =
        json!({"intelRdt": {"closID": "/", "l3CacheSchema": "L3:0=f", "memBwSchema": "MB:0=20"}});
    let case = with(&net("eth7", "net1"), &old);
    assert_eq!(case.json()["linux"]["intelRdt"], old["intelRdt"]);

    let twice = with(&net("eth7", "net1"), &net("eth8", "net1"));
    let error = twice.build().expect_err("one name for two").to_string();
    assert!(error.contains("two network devices are net1"), "{error}");
    assert!(
        with(&net("eth7", "net1"), &net("eth7", "net2"))
            .build()
            .is_ok()
    );
}

#[test]
fn edits_that_are_not_understood_are_not_left_out() {
    let long = "a".repeat(16);
    for (edits, expected) in [
        (
            net("", "net1"),
            "netDevices: \"\" is not the name of an interface",
        ),
        (net("eth7", "a/b"), "\"a/b\" is not the name"),
        (net("eth7", &long), "is not the name"),
        (
            json!({"netDevices": [{"hostInterfaceName": "a", "name": "c"}, {"hostInterfaceName": "b", "name": "c"}]}),
            "netDevices: \"c\" twice",
        ),
        (
            json!({"netDevices": [{"hostInterfaceName": "a"}]}),
            "missing field `name`",
        ),
        (
            json!({"intelRdt": {"closID": "a/b"}}),
            "closID is not a name",
        ),
        (
            json!({"intelRdt": {"closID": ".."}}),
            "closID is not a name",
        ),
        (json!({"intelRdt": {"l2": "x"}}), "unknown field `l2`"),
        (
            json!({"intelRdt": {"enableCMT": true}}),
            "unknown field `enableCMT`",
        ),
        (json!({"newDevices": []}), "unknown field `newDevices`"),
        (json!({"env": ["=x"]}), "env: not of the form name=value"),
        (
            json!({"hooks": [{"hookName": "first", "path": "/h"}]}),
            "unknown variant `first`",
        ),
        (
            json!({"hooks": [{"hookName": "poststop", "path": ""}]}),
            "a path is empty",
        ),
        (
            json!({"mounts": [{"hostPath": "/a", "containerPath": ""}]}),
            "a path is empty",
        ),
    ] {
        let error = with(&edits, &json!({})).build().expect_err("refused");
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn what_the_oci_runtime_would_ignore_is_refused() {
    let features = |linux: Value| json!({"ociVersionMax": "1.3.0", "linux": linux});
    let old = features(json!({"seccomp": {"enabled": true}}));
    let off = features(json!({"netDevices": {"enabled": false}, "intelRdt": {"enabled": false}}));
    let new = features(json!({
        "netDevices": {"enabled": true},
        "intelRdt": {"enabled": true, "schemata": true, "monitoring": true},
    }));
    let class = || json!({"intelRdt": {"closID": "gold"}});
    let schemata = json!({"intelRdt": {"closID": "gold", "schemata": ["L3:0=ff"]}});
    let monitored = json!({"intelRdt": {"enableMonitoring": true}});
    const MOUNTED: &str = "40 24 0:35 / /sys/fs/resctrl rw shared:9 - resctrl resctrl rw\n";
    for (features, edits, table, expected) in [
        (
            None,
            net("eth7", "net1"),
            MOUNTED,
            Some("linux.netDevices: the OCI runtime does not"),
        ),
        (
            Some(&old),
            net("eth7", "net1"),
            MOUNTED,
            Some("linux.netDevices: "),
        ),
        (
            Some(&off),
            net("eth7", "net1"),
            MOUNTED,
            Some("linux.netDevices: "),
        ),
        (Some(&new), net("eth7", "net1"), "", None),
        // runc 1.1 has it, and does not say so.
        (Some(&old), class(), MOUNTED, None),
        (None, class(), MOUNTED, None),
        (Some(&off), class(), MOUNTED, Some("linux.intelRdt: ")),
        (Some(&new), class(), "", Some("resctrl is not mounted")),
        (
            Some(&old),
            schemata.clone(),
            MOUNTED,
            Some("linux.intelRdt.schemata: "),
        ),
        (Some(&new), schemata, MOUNTED, None),
        (
            Some(&old),
            monitored.clone(),
            MOUNTED,
            Some("linux.intelRdt.enableMonitoring: "),
        ),
        (Some(&new), monitored, MOUNTED, None),
        (None, json!({}), "", None),
    ] {
        let spec = with(&edits, &json!({})).spec();
        let host = Fake([("/proc/self/mountinfo", table)].into());
        let checked = RuntimeSupport::from_features(features).check(&spec, &host);
        match (checked, expected) {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) => {
                assert_eq!(error.code(), Code::FailedPrecondition);
                assert!(error.to_string().contains(expected), "{error}");
            }
            (checked, expected) => panic!("{edits} {features:?}: {checked:?}, not {expected:?}"),
        }
    }
}

/// What an NRI plugin or a request set, beside the edits of CDI: a runtime that knows nothing of it, and one that does.
#[test]
fn fields_newer_than_the_oci_runtime_are_refused() {
    let runc_1_1 = json!({"ociVersionMax": "1.0.2-dev", "mountOptions": ["bind", "ro", "rro", "rnosuid"], "linux": {}});
    let runc_1_4 = json!({
        "ociVersionMax": "1.3.0",
        "mountOptions": ["bind", "ro", "rro", "rnosuid", "nosymfollow"],
        "linux": {
            "memoryPolicy": {"modes": ["MPOL_BIND"], "flags": []},
            "mountExtensions": {"idmap": {"enabled": true}},
        },
    });
    let ids = json!([{"containerID": 0, "hostID": 1000, "size": 1}]);
    let bind = |options: &[&str]| json!([{"destination": "/m", "type": "bind", "source": "/d", "options": options}]);
    for (path, value, field) in [
        (
            "/linux/memoryPolicy",
            json!({"mode": "MPOL_BIND", "nodes": "0", "flags": []}),
            "linux.memoryPolicy: the OCI runtime does not",
        ),
        (
            "/process/scheduler",
            json!({"policy": "SCHED_BATCH"}),
            "process.scheduler: ",
        ),
        (
            "/process/ioPriority",
            json!({"class": "IOPRIO_CLASS_IDLE", "priority": 7}),
            "process.ioPriority: ",
        ),
        (
            "/mounts",
            json!([{"destination": "/m", "source": "/d", "uidMappings": ids, "gidMappings": ids}]),
            "mount at /m: uidMappings: ",
        ),
        (
            "/mounts",
            bind(&["rbind", "nosymfollow"]),
            "mount at /m: option nosymfollow: ",
        ),
        (
            "/mounts",
            bind(&["bind", "ridmap"]),
            "mount at /m: option ridmap: ",
        ),
    ] {
        let mut spec = Case::new(|_| {}).json();
        let (parent, name) = path.rsplit_once('/').expect("a path");
        spec.pointer_mut(parent).expect("present")[name] = value;
        let spec: Spec = serde_json::from_value(spec).expect("a specification");
        let check =
            |features| RuntimeSupport::from_features(features).check(&spec, &Fake(BTreeMap::new()));
        let error = check(Some(&runc_1_1)).expect_err(field);
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(error.to_string().starts_with(field), "{error}");
        assert!(check(Some(&runc_1_4)).is_ok(), "{path}");
        // A runtime without the document does not say which options it knows.
        assert_eq!(check(None).is_ok(), field.contains("nosymfollow"), "{path}");
    }
}

/// Options as old as the specification, and those of file systems, are not asked about.
#[test]
fn old_mount_options_are_passed_on() {
    let features = json!({"mountOptions": []});
    let mut spec = Case::new(|_| {}).json();
    spec["mounts"] = json!([
        {"destination": "/m", "type": "none", "source": "/d", "options": ["rbind", "ro", "rprivate", "noexec"]},
        {"destination": "/t", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m", "nosymfollow"]},
    ]);
    let spec: Spec = serde_json::from_value(spec).expect("a specification");
    let checked = RuntimeSupport::from_features(Some(&features));
    assert!(checked.check(&spec, &Fake(BTreeMap::new())).is_ok());
}
