//! Device nodes of CDI devices.

use std::fs;

use serde_json::{Value, json};
use tonic::Code;

use super::*;
use criscope_cri::v1::{CdiDevice, Int64Value};

/// A container of user 7 and group 8 with a CDI device of this node.
fn with(node: &Value) -> Case {
    let dir = tempfile::tempdir().expect("made");
    let edits = json!({"deviceNodes": [node]});
    let file = json!({"cdiVersion": "0.5.0", "kind": "v.com/x", "devices": [{"name": "0", "containerEdits": edits}]});
    fs::write(dir.path().join("x.json"), file.to_string()).expect("written");
    Case::new(|case| {
        case.cdi = cdi::Registry::read(&[dir.path()]);
        let name = "v.com/x=0".to_owned();
        case.container.cdi_devices = vec![CdiDevice { name }];
        let id = |value| Some(Int64Value { value });
        case.context().run_as_user = id(7);
        case.context().run_as_group = id(8);
    })
}

/// The device, and the rules of the device cgroup that a container has besides the usual ones.
fn applied(node: &Value) -> (Value, Vec<Value>) {
    let json = with(node).json();
    let rules = |json: &Value| json["linux"]["resources"]["devices"].as_array().cloned();
    let usual = rules(&Case::new(|_| {}).json()).expect("present");
    let all = rules(&json).expect("present");
    (
        json["linux"]["devices"][0].clone(),
        all[usual.len()..].to_vec(),
    )
}

/// `/dev/fuse` is the node c 10:229 with mode 0666 of the host; `/dev/absent` is none.
#[test]
fn what_a_file_leaves_out_is_filled_in_from_the_host() {
    let device = |path: &str, typ: &str, numbers: (i64, i64), mode: Option<u32>| {
        let (major, minor) = numbers;
        let mut to =
            json!({"path": path, "type": typ, "major": major, "minor": minor, "uid": 7, "gid": 8});
        if let Some(mode) = mode {
            to["fileMode"] = mode.into();
        }
        to
    };
    let allow = |typ: &str, (major, minor): (i64, i64), access: &str| {
        vec![json!({"allow": true, "type": typ, "major": major, "minor": minor, "access": access})]
    };
    for (node, expected, rules) in [
        (
            json!({"path": "/dev/fuse"}),
            device("/dev/fuse", "c", (10, 229), Some(0o666)),
            allow("c", (10, 229), "rwm"),
        ),
        (
            json!({"path": "/dev/gpu0", "hostPath": "/dev/fuse", "type": "", "permissions": ""}),
            device("/dev/gpu0", "c", (10, 229), Some(0o666)),
            allow("c", (10, 229), "rwm"),
        ),
        (
            json!({"path": "/dev/fuse", "permissions": "none"}),
            device("/dev/fuse", "c", (10, 229), Some(0o666)),
            Vec::new(),
        ),
        (
            json!({"path": "/dev/fuse", "type": "c", "minor": 3, "fileMode": 0o600, "permissions": "r"}),
            device("/dev/fuse", "c", (10, 229), Some(0o600)),
            allow("c", (10, 229), "r"),
        ),
        // Other numbers than those of the host's node, which gives the mode.
        (
            json!({"path": "/dev/fuse", "type": "b", "major": 8, "minor": 1}),
            device("/dev/fuse", "b", (8, 1), Some(0o666)),
            allow("b", (8, 1), "rwm"),
        ),
        // The host needs no such node.
        (
            json!({"path": "/dev/absent", "type": "c", "major": 195, "permissions": "rw"}),
            device("/dev/absent", "c", (195, 0), None),
            allow("c", (195, 0), "rw"),
        ),
        (
            json!({"path": "/dev/absent", "type": "u", "major": 195, "minor": 1}),
            device("/dev/absent", "u", (195, 1), None),
            allow("c", (195, 1), "rwm"),
        ),
        (
            json!({"path": "/dev/absent", "type": "p", "fileMode": 0o640}),
            device("/dev/absent", "p", (0, 0), Some(0o640)),
            Vec::new(),
        ),
    ] {
        let found = applied(&node);
        assert_eq!(found, (expected, rules), "{node}");
    }
    let (owned, _) = applied(&json!({"path": "/dev/fuse", "uid": 0, "gid": 44}));
    assert_eq!((&owned["uid"], &owned["gid"]), (&json!(0), &json!(44)));
    let mut root = with(&json!({"path": "/dev/fuse"}));
    root.context().run_as_user = None;
    root.context().run_as_group = None;
    let root = &root.json()["linux"]["devices"][0];
    assert!(
        root.get("uid").is_none() && root.get("gid").is_none(),
        "{root}"
    );
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    for (node, code, expected) in [
        (
            json!({"path": "/dev/fuse", "type": "b"}),
            Code::InvalidArgument,
            "the type is b, and that of /dev/fuse on the node c",
        ),
        (
            json!({"path": "/dev/absent", "type": "c"}),
            Code::InvalidArgument,
            "/dev/absent is not a device",
        ),
        // A directory, of which the node below has another path.
        (
            json!({"path": "/dev/x", "hostPath": "/dev"}),
            Code::InvalidArgument,
            "/dev is not a device",
        ),
        (
            json!({"path": "/dev/fuse", "permissions": "rx"}),
            Code::NotFound,
            "permissions \"rx\" are not a subset of rwm",
        ),
        (
            json!({"path": "/dev/fuse", "type": "char"}),
            Code::NotFound,
            "\"char\" is not a type of devices",
        ),
        (json!({"path": ""}), Code::NotFound, "a path is empty"),
        (
            json!({"path": "/dev/fuse", "mode": 1}),
            Code::NotFound,
            "unknown field `mode`",
        ),
        (
            json!({"path": "/dev/fuse", "major": -1}),
            Code::NotFound,
            "invalid value: integer `-1`",
        ),
    ] {
        let error = with(&node).build().expect_err("refused");
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
