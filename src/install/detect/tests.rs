//! Which setting is in effect.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::machine::{NodeOperations, RuntimeReadiness};
use super::*;

/// A machine with one running unit.
#[derive(Debug)]
struct SingleUnitMachine {
    _directory: tempfile::TempDir,
    root: FilesystemRoot,
    units: Vec<(&'static str, bool)>,
    pid: i32,
}

impl NodeOperations for SingleUnitMachine {
    fn systemctl(&self, arguments: &[&str]) -> Result<String, String> {
        let name = arguments.last().copied().unwrap_or_default();
        let Some((unit, active)) = self.units.iter().find(|(unit, _)| *unit == name) else {
            return Ok("LoadState=not-found\n".to_owned());
        };
        let active = if *active { "active" } else { "inactive" };
        Ok(format!(
            "LoadState=loaded\nActiveState={active}\nFragmentPath=/u/{unit}\nMainPID={}\n",
            self.pid
        ))
    }
    fn runtime(&self, _: &Path) -> Result<RuntimeReadiness, String> {
        Err(String::new())
    }
    fn pods(&self, _: &Path) -> Result<usize, String> {
        Err(String::new())
    }
    fn healthz(&self) -> bool {
        false
    }
    fn connected(&self, _: &str, _: &Path) -> bool {
        false
    }
    fn pause(&self, _: Duration) {}
}

fn node(units: &[(&'static str, bool)], files: &[(&str, &str)]) -> SingleUnitMachine {
    let directory = tempfile::tempdir().expect("a directory");
    let root = FilesystemRoot::at(directory.path());
    for (path, text) in files {
        let path = root.path(path);
        fs::create_dir_all(path.parent().expect("one")).expect("made");
        fs::write(path, text).expect("written");
    }
    SingleUnitMachine {
        _directory: directory,
        root,
        units: units.to_vec(),
        pid: 812,
    }
}

fn found(node: &SingleUnitMachine) -> Result<DetectedKubelet, DetectError> {
    DetectedKubelet::find(&node.root, node, None)
}

const KUBELET: (&str, bool) = ("kubelet.service", true);

#[test]
fn a_flag_beats_drop_ins_and_they_beat_the_file() {
    let with = |exec: &str| {
        let unit = format!("[Service]\nEnvironmentFile=/e\nExecStart=/usr/bin/kubelet {exec}\n");
        let files = [
            ("/u/kubelet.service", unit.as_str()),
            (
                "/e",
                "FLAG=--container-runtime-endpoint=unix:///flag\nVALUE=unix:///value\n",
            ),
            ("/c", "containerRuntimeEndpoint: unix:///file\n"),
            ("/d/10.conf", "containerRuntimeEndpoint: unix:///ten\n"),
            ("/d/20.conf", "containerRuntimeEndpoint: unix:///twenty\n"),
            ("/d/zzz.txt", "containerRuntimeEndpoint: unix:///no\n"),
        ];
        let node = node(&[KUBELET], &files);
        let kubelet = found(&node).expect("found");
        let place = kubelet.places[0].1.path().display().to_string();
        (kubelet.runtime.display().to_string(), place)
    };
    let is = |endpoint: &str, place: &str| (endpoint.to_owned(), place.to_owned());
    let drop_in = "/etc/systemd/system/kubelet.service.d/zz-criscope.conf";
    assert_eq!(with("--config=/c --config-dir=/d $FLAG"), is("/flag", "/e"));
    assert_eq!(
        with("--config=/c --config-dir=/d"),
        is("/twenty", "/d/zz-criscope.conf")
    );
    assert_eq!(with("--config=/c"), is("/file", "/c"));
    assert_eq!(
        with("--config=/none"),
        is("/run/containerd/containerd.sock", "/none")
    );
    assert_eq!(with(""), is("/run/containerd/containerd.sock", drop_in));
    // The variable holds only the value: the command is what is changed.
    assert_eq!(
        with("--container-runtime-endpoint=${VALUE}"),
        is("/value", drop_in)
    );
}

#[test]
fn a_process_that_the_files_do_not_explain_is_refused() {
    let unit = (
        "/u/kubelet.service",
        "[Service]\nExecStart=/usr/bin/kubelet --config=/c\n",
    );
    let with = |command: &str| found(&node(&[KUBELET], &[unit, ("/proc/812/cmdline", command)]));
    assert!(with("/usr/bin/kubelet\0--config=/c\0").is_ok());
    assert!(with("/usr/bin/kubelet\0--config\0/c\0--v=2\0").is_ok());
    let error = with("/usr/bin/kubelet\0--config=/d\0").expect_err("differs");
    assert_eq!(
        error.to_string(),
        "the running kubelet (pid 812) has --config \"/d\", and the files of kubelet.service say \"/c\""
    );
    let error = with("/bin/sh\0/opt/start\0").expect_err("a script");
    assert!(matches!(error, DetectError::Wrapped { .. }), "{error}");
}

#[test]
fn of_several_kubelets_the_running_one_counts() {
    let units = |one, other| {
        let files = [
            ("/u/kubelet.service", "[Service]\nExecStart=kubelet\n"),
            ("/u/k3s.service", "[Service]\nExecStart=k3s server\n"),
        ];
        let mut node = node(&[("kubelet.service", one), ("k3s.service", other)], &files);
        node.pid = 0;
        found(&node).map(|kubelet| kubelet.unit)
    };
    assert_eq!(units(false, true).expect("one"), "k3s.service");
    assert_eq!(units(true, false).expect("one"), "kubelet.service");
    assert!(matches!(units(true, true), Err(DetectError::Several(_))));
    assert!(matches!(units(false, false), Err(DetectError::Several(_))));
    assert!(matches!(found(&node(&[], &[])), Err(DetectError::None(_))));
}

#[test]
fn k3s_keeps_the_last_word_of_its_files() {
    let with = |exec: &str, files: &[(&str, &str)]| {
        let unit = format!("[Service]\nExecStart=/usr/local/bin/k3s server {exec}\n");
        let files = [&[("/u/k3s.service", unit.as_str())], files].concat();
        found(&node(&[("k3s.service", true)], &files))
    };
    let runtime = |kubelet: Result<DetectedKubelet, DetectError>| kubelet.expect("found").runtime;
    let file = "/etc/rancher/k3s/config.yaml";
    assert_eq!(
        runtime(with("", &[(file, "docker: true\n")])),
        PathBuf::from("/run/k3s/cri-dockerd/cri-dockerd.sock")
    );
    let endpoint = "container-runtime-endpoint: unix:///run/crio/crio.sock\n";
    assert_eq!(
        runtime(with("", &[(file, endpoint)])),
        PathBuf::from("/run/crio/crio.sock")
    );
    let argument = (
        "/etc/rancher/k3s/config.yaml.d/a.yaml",
        "kubelet-arg+:\n- container-runtime-endpoint=/run/a.sock\n",
    );
    assert_eq!(
        runtime(with("", &[(file, endpoint), argument])),
        PathBuf::from("/run/a.sock")
    );
    let other = with(
        "--config /etc/k.yaml",
        &[("/etc/k.yaml.d/x.yaml", "docker: true\n")],
    )
    .expect("found");
    assert_eq!(
        other.places[0].1.path(),
        Path::new("/etc/k.yaml.d/zz-criscope.yaml")
    );
    let error =
        with("--kubelet-arg container-runtime-endpoint=/run/b.sock", &[]).expect_err("wins");
    assert!(matches!(error, DetectError::CommandLine { .. }));
}

#[test]
fn images_from_elsewhere_are_left_there() {
    let unit = (
        "/u/kubelet.service",
        "[Service]\nExecStart=kubelet --config=/c\n",
    );
    let text = "containerRuntimeEndpoint: unix:///a\nimageServiceEndpoint: unix:///stargz\n";
    let mut node = node(&[KUBELET], &[unit, ("/c", text)]);
    node.pid = 0;
    let kubelet = found(&node).expect("found");
    assert_eq!(kubelet.places.len(), 1);
    assert!(
        kubelet.notes[0].contains("unix:///stargz"),
        "{:?}",
        kubelet.notes
    );
}
