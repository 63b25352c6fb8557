//! Requested confinement is applied, or the container is refused.

use super::*;
use criscope_cri::v1::security_profile::ProfileType;
use criscope_cri::v1::{Capability, SecurityProfile};

fn profile(kind: ProfileType, name: &str) -> Option<SecurityProfile> {
    Some(SecurityProfile {
        profile_type: kind as i32,
        localhost_ref: name.to_owned(),
    })
}

#[test]
fn a_container_that_asks_for_a_default_profile_that_cannot_be_loaded_is_refused() {
    let mut case = Case::new(|case| {
        case.node.apparmor = true;
        case.node.apparmor_default = Err("apparmor_parser: no such feature".to_owned());
        case.context().apparmor = profile(ProfileType::RuntimeDefault, "");
    });
    let error = case.build().expect_err("it would run unconfined");
    assert_eq!(error.code(), tonic::Code::FailedPrecondition);
    assert!(error.to_string().contains("no such feature"), "{error}");
    // In the form of older kubelets.
    case.context().apparmor = None;
    #[expect(deprecated, reason = "older kubelets send the string")]
    {
        case.context().apparmor_profile = "runtime/default".to_owned();
    }
    case.build().expect_err("it would run unconfined");
    // A privileged container is unconfined anyway, and one without a request needs no profile.
    case.privileged();
    case.build().expect("privileged");
    let silent = Case::new(|other| other.node = case.node.clone());
    silent.build().expect("no profile was requested");
}

#[test]
fn a_container_whose_seccomp_profile_cannot_be_loaded_is_refused() {
    for (kind, reference, file) in [
        (ProfileType::Localhost, "/p.json", None),
        (ProfileType::Localhost, "/p.json", Some("{")),
        (
            ProfileType::Localhost,
            "/p.json",
            Some(r#"{"defaultAction":"SCMP_ACT_NEW"}"#),
        ),
        (
            ProfileType::Localhost,
            "p.json",
            Some(r#"{"defaultAction":"SCMP_ACT_LOG"}"#),
        ),
        (ProfileType::Localhost, "", None),
    ] {
        let case = Case::new(|case| {
            if let Some(text) = file {
                case.host.0.insert("/p.json", text);
            }
            case.context().seccomp = profile(kind, reference);
        });
        case.build().expect_err(reference);
    }
    for kind in [ProfileType::RuntimeDefault, ProfileType::Localhost] {
        let case = Case::new(|case| {
            case.node.seccomp = false;
            case.host
                .0
                .insert("/p.json", r#"{"defaultAction":"SCMP_ACT_LOG"}"#);
            case.context().seccomp = profile(kind, "/p.json");
        });
        let error = case.build().expect_err("no filter on this node");
        assert_eq!(error.code(), tonic::Code::FailedPrecondition);
    }
}

#[test]
fn nothing_that_confines_is_lost() {
    let case = Case::new(|case| {
        let context = case.context();
        context.no_new_privs = true;
        context.readonly_rootfs = true;
        context.masked_paths = vec!["/proc/kcore".to_owned()];
        context.readonly_paths = vec!["/proc/sys".to_owned()];
        context.seccomp = profile(ProfileType::RuntimeDefault, "");
        context.capabilities = Some(Capability {
            drop_capabilities: vec!["ALL".to_owned()],
            ..Default::default()
        });
    });
    let spec = case.json();
    assert_eq!(spec["process"]["noNewPrivileges"], true);
    assert_eq!(spec["root"]["readonly"], true);
    assert_eq!(spec["linux"]["maskedPaths"][0], "/proc/kcore");
    assert_eq!(spec["linux"]["readonlyPaths"][0], "/proc/sys");
    assert_eq!(spec["linux"]["seccomp"]["defaultAction"], "SCMP_ACT_ERRNO");
    let sets = spec["process"]["capabilities"].as_object().expect("sets");
    let names = [
        "bounding",
        "effective",
        "inheritable",
        "permitted",
        "ambient",
    ];
    for name in names {
        assert_eq!(sets[name], serde_json::json!([]), "{name}");
    }
}

/// Where SELinux enforces, a container can write only files with its label: those of its pod and its image's volumes too.
#[test]
fn files_that_the_runtime_wrote_for_a_container_get_its_label() {
    const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";
    let mut case = Case::new(|case| {
        case.node.selinux = true;
        let sandbox = &mut case.sandbox;
        sandbox.mount_label = Some(LABEL.to_owned());
        sandbox.hostname_path = Some("/sandbox/hostname".into());
        sandbox.resolv_path = Some("/sandbox/resolv.conf".into());
        let volumes = &mut sandbox.image_volumes;
        volumes.insert("/data".to_owned(), "/volumes/0".into());
    });
    let labelled = |case: &Case| {
        let actions = case.build().expect("builds").actions.into_iter();
        let mut paths: Vec<_> = actions
            .map(|action| match action {
                Action::Relabel { path, label } if label == LABEL => path,
                other => panic!("{other:?}"),
            })
            .collect();
        paths.sort();
        paths
    };
    let files = [
        "/sandbox/hostname",
        "/sandbox/hosts",
        "/sandbox/resolv.conf",
    ]
    .map(PathBuf::from);
    let [hostname, hosts, resolv] = files;
    let volume = PathBuf::from("/volumes/0");
    let all = [hostname.clone(), hosts, resolv.clone(), volume];
    assert_eq!(labelled(&case), all);
    // A mount of the request in place of one of them has the label that it asks for.
    case.container.mounts = vec![criscope_cri::v1::Mount {
        container_path: "/etc/hosts".to_owned(),
        host_path: "/data".to_owned(),
        ..Default::default()
    }];
    case.sandbox.image_volumes.clear();
    assert_eq!(labelled(&case), [hostname, resolv]);
    // The node's.
    case.sandbox.shm_path = Some("/dev/shm".into());
    case.node.selinux = false;
    assert_eq!(labelled(&case), <[PathBuf; 0]>::default());
}

#[test]
fn strings_of_a_request_cannot_inject_further_values() {
    type Change = fn(&mut Case);
    let cases: &[(&str, Change)] = &[
        ("argument 1", |case| {
            case.image.cmd = vec!["a\0b".to_owned()]
        }),
        ("variable \"A\" of image", |case| {
            case.image.env = vec!["A=secret\0".to_owned()];
        }),
        ("working directory", |case| {
            case.image.working_dir = "/a\0".to_owned();
        }),
        ("cgroup parent", |case| {
            let linux = case.pod.linux.as_mut().expect("present");
            linux.cgroup_parent = "/kubepods/../system.slice".to_owned();
        }),
        ("cpuset", |case| {
            case.resources().cpuset_cpus = "0\n1".to_owned()
        }),
        ("cpuset", |case| {
            case.resources().cpuset_mems = "../cgroup.procs".to_owned();
        }),
        ("huge pages", |case| {
            let limit = criscope_cri::v1::HugepageLimit {
                page_size: "2MB/../../x".to_owned(),
                limit: 1,
            };
            case.resources().hugepage_limits.push(limit);
        }),
        ("unified", |case| case.unified("../memory.max")),
        ("unified", |case| case.unified("cgroup.procs")),
        ("unified", |case| case.unified("memory")),
        ("SELinux type", |case| {
            case.context()
                .selinux_options
                .get_or_insert_default()
                .r#type = "t,x".to_owned();
        }),
    ];
    for (what, change) in cases {
        let error = Case::new(change).build().expect_err(what);
        assert_eq!(
            error.code(),
            tonic::Code::InvalidArgument,
            "{what}: {error}"
        );
        let said = error.to_string();
        assert!(
            said.contains(what) && !said.contains("secret"),
            "{what}: {said}"
        );
    }
}

impl Case {
    fn resources(&mut self) -> &mut criscope_cri::v1::LinuxContainerResources {
        let linux = self.container.linux.as_mut().expect("present");
        linux.resources.get_or_insert_default()
    }

    fn unified(&mut self, key: &str) {
        let unified = &mut self.resources().unified;
        unified.insert(key.to_owned(), "1".to_owned());
    }
}
