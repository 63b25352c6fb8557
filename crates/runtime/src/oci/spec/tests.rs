//! Table tests of the rules, through the whole of `build`.

mod cdi_nodes;
mod confinement;
mod finished;
mod hook_files;
mod kernel_paths;
mod net_devices;
mod policy;
mod process;
mod rules;
mod storage;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDeviceType, Spec};

use super::*;
use crate::sections::{Handler, PodDefaults};
use criscope_cri::v1::{
    ContainerConfig, ContainerMetadata, LinuxContainerConfig, LinuxContainerSecurityContext,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption,
    PodSandboxConfig, PodSandboxMetadata,
};
use criscope_settings::SeccompProfile;
use criscope_settings::value::default_capabilities;

/// A machine with a few paths: `/data`, a link `/link` to it, and the devices `/dev/fuse` and `/dev/kvm`.
struct Fake(BTreeMap<&'static str, &'static str>);

impl Host for Fake {
    fn resolve(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        Ok(match path.to_str() {
            Some("/link") => Some("/data".into()),
            Some("/data" | "/dev/fuse") => Some(path.to_owned()),
            _ => None,
        })
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        let text = path.to_str().and_then(|path| self.0.get(path));
        text.map(|text| (*text).to_owned())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn devices(&self, path: &Path) -> io::Result<Vec<DeviceNode>> {
        Ok(match path.to_str() {
            Some("/dev/fuse") => vec![node("/dev/fuse", 10, 229)],
            Some("/dev") => vec![node("/dev/kvm", 10, 232)],
            _ => Vec::new(),
        })
    }
}

fn node(path: &str, major: i64, minor: i64) -> DeviceNode {
    DeviceNode {
        path: path.into(),
        kind: LinuxDeviceType::C,
        major,
        minor,
        mode: 0o666,
        uid: 0,
        gid: 0,
    }
}

/// All inputs of a request, for tests to modify.
struct Case {
    pod: PodSandboxConfig,
    container: ContainerConfig,
    image: ImageConfig,
    users: UserDatabase,
    node: NodeFacts,
    sandbox: SandboxFacts,
    handler: Handler,
    host: Fake,
    cdi: cdi::Registry,
    hooks: hooks::Registry,
}

impl Case {
    /// An ordinary container of an ordinary pod, modified by `change`.
    fn new(change: impl FnOnce(&mut Self)) -> Self {
        let mut case = Self {
            pod: PodSandboxConfig {
                metadata: Some(PodSandboxMetadata::default()),
                linux: Some(LinuxPodSandboxConfig {
                    cgroup_parent: "/kubepods/pod1".to_owned(),
                    security_context: Some(LinuxSandboxSecurityContext::default()),
                    ..Default::default()
                }),
                ..Default::default()
            },
            container: ContainerConfig {
                metadata: Some(ContainerMetadata::default()),
                linux: Some(LinuxContainerConfig {
                    security_context: Some(LinuxContainerSecurityContext {
                        namespace_options: Some(NamespaceOption {
                            pid: NamespaceMode::Container as i32,
                            ..Default::default()
                        }),
                        ..Default::default()
                    }),
                    resources: Some(Default::default()),
                }),
                ..Default::default()
            },
            image: ImageConfig {
                entrypoint: vec!["/entry".to_owned()],
                cmd: vec!["cmd".to_owned()],
                ..Default::default()
            },
            users: UserDatabase::default(),
            node: facts(),
            sandbox: SandboxFacts {
                id: "s".to_owned(),
                network: Some("/ns/net".into()),
                ipc: Some("/ns/ipc".into()),
                uts: Some("/ns/uts".into()),
                hosts_path: Some("/sandbox/hosts".into()),
                shm_path: Some("/sandbox/shm".into()),
                ..Default::default()
            },
            handler: Handler::defaults("runc"),
            host: Fake(BTreeMap::new()),
            cdi: cdi::Registry::default(),
            hooks: hooks::Registry::default(),
        };
        change(&mut case);
        case
    }

    fn context(&mut self) -> &mut LinuxContainerSecurityContext {
        let linux = self.container.linux.as_mut().expect("present");
        linux.security_context.as_mut().expect("present")
    }

    fn privileged(&mut self) {
        self.context().privileged = true;
        let linux = self.pod.linux.as_mut().expect("present");
        linux.security_context.as_mut().expect("present").privileged = true;
    }

    fn build(&self) -> Result<Built, SpecError> {
        build(&Request {
            id: "c",
            pod: &self.pod,
            container: &self.container,
            image: &self.image,
            rootfs: Path::new("/rootfs"),
            users: &self.users,
            node: &self.node,
            sandbox: &self.sandbox,
            handler: &self.handler,
            host: &self.host,
            cdi: &self.cdi,
            hooks: &self.hooks,
        })
    }

    fn spec(&self) -> Spec {
        self.build().expect("builds").spec
    }

    /// The specification as JSON.
    fn json(&self) -> serde_json::Value {
        serde_json::to_value(self.spec()).expect("present")
    }
}

fn facts() -> NodeFacts {
    let mut all = default_capabilities();
    all.push(oci_spec::runtime::Capability::SysAdmin);
    NodeFacts {
        cgroup_version: CgroupVersion::V2,
        cgroup_driver: CgroupDriver::Cgroupfs,
        swap_accounting: true,
        hugetlb: false,
        kernel: (6, 1),
        arch: "x86_64",
        seccomp: true,
        apparmor: false,
        apparmor_default: Err("it is off".to_owned()),
        selinux: false,
        recursive_read_only: true,
        default_capabilities: default_capabilities(),
        all_capabilities: all,
        oom_score_adj_floor: None,
        pids_limit: 0,
        policy: PodDefaults::default(),
    }
}
