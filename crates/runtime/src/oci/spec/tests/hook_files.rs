//! Hooks of files, of CDI devices, and their order.

use std::fs;

use serde_json::{Value, json};
use tonic::Code;

use super::*;

/// The directories of hooks, in the order of the configuration.
struct Directories {
    system: tempfile::TempDir,
    admin: tempfile::TempDir,
}

impl Directories {
    fn new() -> Self {
        let dir = || tempfile::tempdir().expect("made");
        let (system, admin) = (dir(), dir());
        Self { system, admin }
    }

    fn write(&self, dir: &tempfile::TempDir, name: &str, arg: &str, rest: &Value) {
        let mut file = json!({"version": "1.0.0", "hook": {"path": "/", "args": [arg]}});
        let all = file.as_object_mut().expect("a table");
        all.extend(rest.as_object().expect("a table").clone());
        fs::write(dir.path().join(name), file.to_string()).expect("written");
    }

    fn read(&self) -> hooks::Registry {
        let missing = self.system.path().join("missing");
        hooks::Registry::read(&[self.system.path(), &missing, self.admin.path()])
    }
}

/// The first argument of each hook of a stage.
fn names(json: &Value, stage: &str) -> Vec<String> {
    let all = json["hooks"][stage].as_array().cloned().unwrap_or_default();
    let names = all
        .iter()
        .map(|hook| hook["args"][0].as_str().unwrap_or_default().to_owned());
    names.collect()
}

#[test]
fn files_are_sorted_by_name_and_later_directories_win() {
    let dirs = Directories::new();
    let always = json!({"when": {"always": true}, "stages": ["createRuntime", "poststop"]});
    dirs.write(&dirs.system, "02-b.json", "masked", &always);
    dirs.write(&dirs.system, "03-C.json", "third", &always);
    dirs.write(&dirs.system, "10-d.json", "fourth", &always);
    dirs.write(&dirs.admin, "02-b.json", "second", &always);
    let old = json!({"when": {"always": true}, "stages": ["prestart"]});
    dirs.write(&dirs.admin, "01-a.json", "first", &old);
    fs::write(dirs.admin.path().join("README"), "").expect("written");
    let case = Case::new(|case| case.hooks = dirs.read());
    let json = case.json();
    assert_eq!(
        names(&json, "createRuntime"),
        ["first", "second", "third", "fourth"]
    );
    assert_eq!(names(&json, "poststop"), ["second", "third", "fourth"]);
    assert_eq!(json["hooks"]["prestart"], Value::Null);
}

#[test]
fn conditions_see_the_command_mounts_and_annotations_of_kubernetes() {
    let dirs = Directories::new();
    let when = |when: Value| json!({"when": when, "stages": ["createContainer"]});
    for (name, condition) in [
        ("command", json!({"commands": ["^/entry$"]})),
        ("other", json!({"commands": ["^cmd$"]})),
        ("mounts", json!({"hasBindMounts": true})),
        ("pod", json!({"annotations": {"^a$": "^of the pod$"}})),
        (
            "container",
            json!({"annotations": {"^a$": "^of the container$"}}),
        ),
        ("own", json!({"annotations": {"^io.kubernetes.cri": ""}})),
    ] {
        dirs.write(
            &dirs.system,
            &format!("{name}.json"),
            name,
            &when(condition),
        );
    }
    let mut case = Case::new(|case| case.hooks = dirs.read());
    assert_eq!(names(&case.json(), "createContainer"), ["command"]);
    let annotation = |text: &str| [("a".to_owned(), text.to_owned())].into();
    case.container.annotations = annotation("of the container");
    assert_eq!(
        names(&case.json(), "createContainer"),
        ["command", "container"]
    );
    case.pod.annotations = annotation("of the pod");
    case.container.mounts = vec![criscope_cri::v1::Mount {
        container_path: "/a".to_owned(),
        host_path: "/data".to_owned(),
        ..Default::default()
    }];
    assert_eq!(
        names(&case.json(), "createContainer"),
        ["command", "mounts", "pod"]
    );
}

#[test]
fn hooks_of_devices_are_after_those_of_files() {
    let dirs = Directories::new();
    let always = json!({"when": {"always": true}, "stages": ["createContainer"]});
    dirs.write(&dirs.system, "z.json", "file", &always);
    let cdi = json!({"cdiVersion": "0.6.0", "kind": "v.com/gpu", "devices": [{"name": "0", "containerEdits": {
        "hooks": [{"hookName": "createContainer", "path": "/h", "args": ["device"]}]
    }}]});
    fs::write(dirs.admin.path().join("gpu.json"), cdi.to_string()).expect("written");
    let case = Case::new(|case| {
        case.hooks = hooks::Registry::read(&[dirs.system.path()]);
        case.cdi = cdi::Registry::read(&[dirs.admin.path()]);
        case.container.cdi_devices = vec![criscope_cri::v1::CdiDevice {
            name: "v.com/gpu=0".to_owned(),
        }];
    });
    assert_eq!(names(&case.json(), "createContainer"), ["file", "device"]);
}

/// It is not known whether the container has the hook.
#[test]
fn a_file_that_cannot_be_read_refuses_every_container() {
    let refused = |dirs: &Directories| {
        let case = Case::new(|case| case.hooks = dirs.read());
        let error = case.build().expect_err("refused");
        assert_eq!(error.code(), Code::FailedPrecondition);
        error.to_string()
    };
    let dirs = Directories::new();
    let path = dirs.admin.path().join("a.json");
    fs::write(&path, "{").expect("written");
    assert!(refused(&dirs).starts_with(&format!("hooks: {}: EOF", path.display())));
    // In an earlier directory of which a later one has the file, it does not matter.
    fs::rename(&path, dirs.system.path().join("a.json")).expect("moved");
    let never = json!({"when": {"always": false}, "stages": ["poststop"]});
    dirs.write(&dirs.admin, "a.json", "", &never);
    assert!(Case::new(|case| case.hooks = dirs.read()).build().is_ok());
    // A dangling link is a file that the administrator expects to be read.
    std::os::unix::fs::symlink("/no/such", dirs.admin.path().join("b.json")).expect("link");
    assert!(
        refused(&dirs).contains("b.json: No such file"),
        "{}",
        refused(&dirs)
    );
    fs::remove_file(dirs.admin.path().join("b.json")).expect("removed");
    // A directory that is none.
    let registry = hooks::Registry::read(&[dirs.admin.path().join("a.json")]);
    assert_eq!(registry.broken.len(), 1);
}

#[test]
fn a_missing_program_refuses_the_containers_of_its_hook() {
    let dirs = Directories::new();
    let file = |when: Value| json!({"hook": {"path": "/no/such/program"}, "when": when, "stages": ["createRuntime"]});
    dirs.write(
        &dirs.system,
        "a.json",
        "",
        &file(json!({"commands": ["^/entry$"]})),
    );
    let mut case = Case::new(|case| case.hooks = dirs.read());
    let error = case.build().expect_err("refused");
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(
        error
            .to_string()
            .ends_with("program /no/such/program does not exist"),
        "{error}"
    );
    case.container.command = vec!["/other".to_owned()];
    assert!(case.build().is_ok());
}
