//! `[runtime.handlers.NAME]`

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Runtime, programs, shim_type};
use criscope_settings::value::{
    BooleanValue, BoundedDuration, BoundedNumber, DirectoryPath, FilePath, ListOf, OptionalValue,
    VisibleText, secs,
};
use criscope_settings::{
    ConfigProblem, EffectiveSettings, SettingsReader, SettingsSchema, SettingsSection, TableScope,
    ValueSuggestion, settings,
};

/// The handler that is the default if it exists.
const RUNC: &str = "runc";

const ANNOTATIONS: ListOf<VisibleText> = ListOf {
    of: VisibleText,
    words: "an array of annotation keys, of which `*` may end each",
};

settings! {
    /// An OCI runtime with runc's command line (runc, crun), or with `runtime_type` a shim of containerd (Kata Containers, gVisor,
    /// runwasi), under the name that RuntimeClasses refer to. Without any of these tables there are `runc` and `crun`, those
    /// that are on `PATH`; drop-in files add to these. A reload applies them to new pods; pods keep the OCI runtime that they were
    /// created with ([RUNTIME.md](RUNTIME.md#a-reload)).
    pub struct Handler in "runtime.handlers.NAME" named name {
        /// The shim of containerd that runs the pods of this handler; no containerd is needed. As in containerd's configuration:
        /// `io.containerd.kata.v2` is the program `containerd-shim-kata-v2` on `PATH`, and an absolute path is the program itself.
        runtime_type: Option<String> = None, OptionalValue(VisibleText), or "none: an OCI runtime" like "\"io.containerd.kata.v2\"" => live;
        /// The configuration file of that shim (`ConfigPath` in containerd's configuration), if it is not runc's.
        config_path: Option<PathBuf> = None, OptionalValue(FilePath),
            or "that of the shim" like "\"/etc/kata-containers/configuration.toml\"" => live;
        /// The type of that file (`TypeUrl`), for shims that ask for it.
        type_url: Option<String> = None, OptionalValue(VisibleText), or "none" like "\"io.containerd.runsc.v1.options\"" => live;
        /// The OCI runtime. With runc's shim it is the program that the shim calls (`BinaryName`).
        path: Option<PathBuf> = None, OptionalValue(FilePath),
            or "the program called NAME on `PATH`" like "\"/usr/sbin/runc\"" => live;
        /// Global options of the OCI runtime, before its verb: `["--debug"]`.
        options: Vec<String> = Vec::new(), ListOf { of: VisibleText, words: "an array of strings" } => live;
        /// The directory for its state (`--root`). No other runtime of the node may use the same.
        root: Option<PathBuf> = None, OptionalValue(DirectoryPath), or "`oci/NAME` below `runtime.state`" like "\"/run/runc\"" => live;
        /// Whether it is called with `--systemd-cgroup`. Set it for a runtime without this option.
        systemd_cgroup: Option<bool> = None, OptionalValue(BooleanValue), or "as `runtime.cgroup_driver` says" like "false" => live;
        /// Does not pivot the root: for nodes that run from a RAM disk.
        no_pivot: bool = false, BooleanValue => live;
        /// Creates no session keyring for each container.
        no_new_keyring: bool = false, BooleanValue => live;
        /// Annotations of pods that are passed to the OCI runtime. Those that reach the node or other pods (`run.oci.`, `krun.`,
        /// `org.systemd.property.`, `org.criu.`, `dev.gvisor.`, `io.katacontainers.`, `io.kubernetes.cri-o.`,
        /// `io.kubernetes.docker.`, `io.kubernetes.sandbox.`) need a key that spells out that much of them before its `*`.
        pod_annotations: Vec<String> = Vec::new(), ANNOTATIONS => live;
        /// The same for annotations of containers, which device plugins set.
        container_annotations: Vec<String> = Vec::new(), ANNOTATIONS => live;
        /// Gives privileged containers no devices of the host: for runtimes that start a virtual machine.
        privileged_without_host_devices: bool = false, BooleanValue => live;
        /// Still allows such a container all devices that it creates itself. Only with `privileged_without_host_devices`.
        privileged_without_host_devices_all_devices_allowed: bool = false, BooleanValue => live;
        /// Mounts `/sys/fs/cgroup` read-write in containers that are not privileged, so that a container can have cgroups of its
        /// own below its cgroup, as systemd and container runtimes in containers need. Only with cgroup v2. Its limits stay out of
        /// its reach only where the node mounts cgroups with `nsdelegate`, as systemd does.
        cgroup_writable: bool = false, BooleanValue => live;
        /// The directory with the networks of its pods.
        cni_conf_dir: Option<PathBuf> = None, OptionalValue(DirectoryPath), or "that of `runtime.cni`" like "\"/etc/cni/net.d\"" => live;
        /// How many of them a pod is attached to; 0 means all.
        cni_max_conf_num: Option<usize> = None, OptionalValue(BoundedNumber::between(0, 64)), or "that of `runtime.cni`" like "1" => live;
        /// How long one call of the OCI runtime may take before it is killed. Virtual machines may need more; the kubelet
        /// waits two minutes (`runtimeRequestTimeout`).
        timeout: Duration = secs(60), BoundedDuration::between(secs(1), secs(600)) => live;
    }
}

/// Programs that do not run containers of a pod when called like runc: they are used through a shim of containerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// `containerd-shim-NAME-vN`.
    #[error("is a shim of containerd, which speaks the shim API instead of runc's command line")]
    Shim,
    /// `kata-runtime`.
    #[error(
        "has had no create, start and kill since Kata Containers 2, which is started through its containerd shim"
    )]
    Kata,
    /// `runsc`.
    #[error("needs the sandbox container that its containerd shim creates first")]
    Runsc,
}

impl Misfit {
    /// Recognises a program by its file name.
    #[must_use]
    pub fn detect(program: &Path) -> Option<Self> {
        match program.file_name()?.to_str()? {
            name if name.starts_with("containerd-shim-") => Some(Self::Shim),
            "kata-runtime" => Some(Self::Kata),
            "runsc" => Some(Self::Runsc),
            _ => None,
        }
    }

    /// The remedy.
    pub const HINT: &str = "name its shim with runtime_type instead of path: \"io.containerd.kata.v2\", \"io.containerd.runsc.v1\", or the absolute path of the shim";
}

impl Handler {
    /// The reason why its program cannot serve as a handler, if it is known not to.
    #[must_use]
    pub fn misfit(&self) -> Option<Misfit> {
        match self.runtime_type {
            Some(_) => None,
            None => Misfit::detect(self.program()),
        }
    }

    /// The path or name of its program.
    #[must_use]
    pub fn program(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(&self.name))
    }

    /// A handler with defaults only.
    #[must_use]
    pub fn defaults(name: &str) -> Self {
        Self::read(&mut SettingsReader::empty(), name.to_owned())
    }
}

pub(super) fn read(reader: &mut SettingsReader<'_>) -> Vec<Handler> {
    let mut handlers = Vec::new();
    for (name, scope) in reader.tables("runtime.handlers") {
        let handler = Handler::read_at(reader, &scope, name);
        let key = &Handler::privileged_without_host_devices_all_devices_allowed;
        if handler.privileged_without_host_devices_all_devices_allowed
            && !handler.privileged_without_host_devices
        {
            let needed = Handler::privileged_without_host_devices.name;
            let problem = format!("has no effect without {needed} = true");
            reader.fail_at(&scope, key, ConfigProblem::Conflict(problem));
        }
        shim_type::check(reader, &scope, &handler);
        handlers.push(handler);
    }
    handlers
}

/// Whether `runc` and `crun`, if they are on `PATH`, are handlers in addition to the configured ones: the tables are all from
/// drop-in files, which add a handler to the node's and replace none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsualBesides(pub bool);

impl UsualBesides {
    pub(super) fn read(reader: &mut SettingsReader<'_>) -> Self {
        let tables = reader.tables("runtime.handlers");
        Self(tables.iter().all(|(_, scope)| reader.is_dropped_in(scope)))
    }
}

impl SettingsSection for UsualBesides {
    const PATH: &'static str = "";
    const ABOUT: &'static str = "";

    fn describe(_: &mut SettingsSchema) {}

    fn path(&self, _: usize) -> String {
        String::new()
    }

    fn list(&self, _: &str, _: &mut EffectiveSettings) {}

    fn reload(&mut self, new: &Self) {
        *self = *new;
    }
}

/// `default_handler` must be one of the handlers. It is required if there are several and none is `runc`.
pub(super) fn check_default(
    reader: &mut SettingsReader<'_>,
    scope: &TableScope<'_>,
    runtime: &Runtime,
) {
    let key = &Runtime::default_handler;
    let handlers = runtime.handlers.iter();
    let mut names: Vec<_> = handlers.map(|handler| handler.name.as_str()).collect();
    let problem = match &runtime.default_handler {
        Some(name) => {
            if runtime.usual_besides.0 {
                names.extend(programs::USUAL);
            }
            if names.contains(&name.as_str()) {
                return;
            }
            let hint = ValueSuggestion::among(name, &names);
            format!("there is no handler {name:?}; {hint}")
        }
        None if names.len() > 1
            && !names.contains(&RUNC)
            && !runtime.usual_besides.0
            && !scope.has(key) =>
        {
            let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
            format!(
                "missing; with several handlers and none called \"runc\", one must be the default: {}",
                names.join(", ")
            )
        }
        None => return,
    };
    reader.fail_at(scope, key, ConfigProblem::Conflict(problem));
}

/// The default among configured handlers if `default_handler` is not set.
pub(super) fn implied_default(handlers: &[Handler]) -> &str {
    let runc = handlers.iter().find(|handler| handler.name == RUNC);
    let handler = runc.or(handlers.first());
    handler.map_or(RUNC, |handler| handler.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_not_called_like_runc_are_recognised_by_name() {
        for (path, misfit) in [
            ("/usr/local/bin/containerd-shim-kata-v2", Some(Misfit::Shim)),
            (
                "/opt/kata/bin/containerd-shim-kata-qemu-v2",
                Some(Misfit::Shim),
            ),
            ("containerd-shim-runsc-v1", Some(Misfit::Shim)),
            ("containerd-shim-wasmtime-v1", Some(Misfit::Shim)),
            ("/opt/kata/bin/kata-runtime", Some(Misfit::Kata)),
            ("/usr/local/bin/runsc", Some(Misfit::Runsc)),
            ("/usr/sbin/runc", None),
            ("/usr/bin/nvidia-container-runtime", None),
            ("crun", None),
            ("kata", None),
            ("/", None),
        ] {
            assert_eq!(Misfit::detect(Path::new(path)), misfit, "{path}");
        }
    }

    #[test]
    fn a_handler_without_a_path_is_judged_by_its_name() {
        let mut handler = Handler::defaults("runsc");
        assert_eq!(handler.misfit(), Some(Misfit::Runsc));
        handler.path = Some("/usr/bin/crun".into());
        assert_eq!(handler.misfit(), None);
        let mut handler = Handler::defaults("runsc");
        handler.runtime_type = Some("io.containerd.runsc.v1".to_owned());
        assert_eq!(handler.misfit(), None);
    }
}
