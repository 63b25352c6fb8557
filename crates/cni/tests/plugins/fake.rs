//! Fake plugins, shell scripts that record their input and behave as the test specifies.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use criscope_cni::{Cni, Pod, Settings};
use serde_json::Value;
use tempfile::TempDir;

use super::support::PATIENCE;

/// A valid result of an ADD.
pub(super) const RESULT: &str = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.1.2.3/24","interface":0}]}"#;

pub(super) struct Fake {
    pub(super) dir: TempDir,
    pub(super) settings: Settings,
}

impl Fake {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        for name in ["bin", "net.d", "cache"] {
            fs::create_dir(dir.path().join(name)).expect("dir");
        }
        let settings = Settings {
            conf_dir: dir.path().join("net.d"),
            bin_dirs: vec!["/no/such/dir".into(), dir.path().join("bin")],
            cache_dir: dir.path().join("cache"),
            add_timeout: PATIENCE,
            del_timeout: PATIENCE,
            query_timeout: PATIENCE,
            ..Settings::default()
        };
        Self { dir, settings }
    }

    pub(super) fn cni(&self) -> Cni {
        Cni::new(self.settings.clone())
    }

    /// Writes a plugin: the arms of a `case` over the verb. Verbs without an arm succeed.
    pub(super) fn plugin(&self, name: &str, arms: &str) -> &Self {
        let path = self.bin().join(name);
        let script = format!(
            "#!/bin/sh\nhere={bin}\ncat > $here/{name}.$CNI_COMMAND.json\nenv > $here/{name}.$CNI_COMMAND.env\n\
             echo {name} $CNI_COMMAND >> $here/log\ncase $CNI_COMMAND in\n{arms}\nADD) echo '{RESULT}';;\nesac\n",
            bin = self.bin().display()
        );
        fs::write(&path, script).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        self
    }

    pub(super) fn list(&self, file: &str, version: &str, plugins: &str) -> &Self {
        let name = file.split('.').next().expect("name");
        let text = format!(r#"{{"cniVersion":"{version}","name":"{name}","plugins":[{plugins}]}}"#);
        fs::write(self.dir.path().join("net.d").join(file), text).expect("write");
        self
    }

    pub(super) fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    /// The runs recorded by the plugins.
    pub(super) fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.bin().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(super) fn told(&self, plugin: &str, verb: &str) -> Value {
        let text = fs::read(self.bin().join(format!("{plugin}.{verb}.json"))).expect("it ran");
        serde_json::from_slice(&text).expect("JSON")
    }

    pub(super) fn env(&self, plugin: &str, verb: &str) -> String {
        fs::read_to_string(self.bin().join(format!("{plugin}.{verb}.env"))).expect("it ran")
    }

    /// Files of the cache.
    pub(super) fn cached(&self) -> Vec<String> {
        let files = fs::read_dir(self.dir.path().join("cache/results"));
        let mut names: Vec<_> = files
            .into_iter()
            .flatten()
            .flatten()
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names
    }
}

pub(super) fn pod(id: &str) -> Pod {
    Pod {
        id: id.to_owned(),
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
        uid: "u-1".to_owned(),
        netns: Some("/proc/self/ns/net".into()),
        ..Pod::default()
    }
}

/// Returns whether a process is running and not a zombie.
pub(super) fn runs(pid: &str) -> bool {
    let status =
        fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
    status
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
