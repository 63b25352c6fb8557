//! `runtime_type` of a handler: the shim of containerd that runs its pods, named as in containerd's configuration.

use std::path::{Path, PathBuf};

use super::Handler;
use criscope_settings::{ConfigProblem, SettingKey, SettingsReader, TableScope};

/// The beginning of the names of all such programs.
const PREFIX: &str = "containerd-shim-";

/// The shim for OCI runtimes with runc's command line, which has options of its own.
const RUNC: &str = "containerd-shim-runc-";

/// The program of a runtime type, as containerd finds it: `io.containerd.kata.v2` is `containerd-shim-kata-v2`; an absolute path is
/// the program itself.
fn program(runtime_type: &str) -> Option<PathBuf> {
    if runtime_type.starts_with('/') {
        return (!runtime_type.ends_with('/')).then(|| runtime_type.into());
    }
    let mut parts = runtime_type.rsplit('.');
    let (version, name) = (parts.next()?, parts.next()?);
    let all = [version, name].into_iter().chain(parts);
    all.into_iter()
        .all(is_word)
        .then(|| format!("{PREFIX}{name}-{version}").into())
}

fn is_word(text: &str) -> bool {
    let mut letters = text.chars();
    !text.is_empty() && letters.all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

impl Handler {
    /// The name or path of the shim of containerd that runs its pods, if one does.
    #[must_use]
    pub fn containerd_shim(&self) -> Option<PathBuf> {
        program(self.runtime_type.as_ref()?)
    }

    /// Returns whether its pods are run by containerd's shim for OCI runtimes.
    #[must_use]
    pub fn has_runc_shim(&self) -> bool {
        self.containerd_shim().is_some_and(|shim| is_runc(&shim))
    }

    /// Keys that are set and that its shim of containerd does not have.
    #[must_use]
    pub fn without_effect(&self) -> Vec<&'static str> {
        let of_oci_runtimes = [
            ("path", self.path.is_some()),
            ("root", self.root.is_some()),
            ("systemd_cgroup", self.systemd_cgroup.is_some()),
            ("no_pivot", self.no_pivot),
            ("no_new_keyring", self.no_new_keyring),
        ];
        let of_others = [
            ("config_path", self.config_path.is_some()),
            ("type_url", self.type_url.is_some()),
        ];
        let mut all = vec![("options", !self.options.is_empty())];
        if self.has_runc_shim() {
            all.extend(of_others)
        } else {
            all.extend(of_oci_runtimes)
        }
        let is_shim = self.runtime_type.is_some();
        let all = all.into_iter().filter(|(_, is_set)| is_shim && *is_set);
        all.map(|(key, _)| key).collect()
    }

    /// The OCI runtime that runc's shim calls.
    #[must_use]
    pub fn called_by_shim(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new("runc"))
    }
}

fn is_runc(shim: &Path) -> bool {
    let name = shim.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(RUNC))
}

/// Checks the keys that depend on the runtime type.
pub(super) fn check(reader: &mut SettingsReader<'_>, scope: &TableScope<'_>, handler: &Handler) {
    let Some(runtime_type) = &handler.runtime_type else {
        let without = "has no effect without runtime_type";
        refuse(reader, scope, &Handler::config_path, without);
        refuse(reader, scope, &Handler::type_url, without);
        return;
    };
    if program(runtime_type).is_none() {
        let problem = "neither a type such as \"io.containerd.kata.v2\" nor an absolute path";
        let problem = ConfigProblem::Conflict(problem.to_owned());
        reader.fail_at(scope, &Handler::runtime_type, problem);
    }
}

fn refuse<T>(
    reader: &mut SettingsReader<'_>,
    scope: &TableScope<'_>,
    key: &SettingKey<T>,
    why: &str,
) {
    if scope.has(key) {
        reader.fail_at(scope, key, ConfigProblem::Conflict(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_names_that_containerd_gives_them() {
        for (text, name) in [
            ("io.containerd.runc.v2", Some("containerd-shim-runc-v2")),
            (
                "io.containerd.kata-qemu.v2",
                Some("containerd-shim-kata-qemu-v2"),
            ),
            ("io.containerd.runsc.v1", Some("containerd-shim-runsc-v1")),
            ("example.v1", Some("containerd-shim-example-v1")),
            ("/opt/kata/bin/shim", Some("/opt/kata/bin/shim")),
            ("/opt/", None),
            ("kata", None),
            (".v2", None),
            ("io..v2", None),
            ("io.a/../../b.v2", None),
            ("", None),
        ] {
            assert_eq!(program(text), name.map(PathBuf::from), "{text}");
        }
        assert!(is_runc(Path::new("/usr/bin/containerd-shim-runc-v2")));
        assert!(!is_runc(Path::new("containerd-shim-runsc-v1")));
    }
}
