//! Namespaces, security, sysctls, CDI.

use serde_json::Value;

use super::*;
use criscope_cri::v1::security_profile::ProfileType;
use criscope_cri::v1::{CdiDevice, IdMapping, SeLinuxOption, SecurityProfile, UserNamespace};

fn namespaces(json: &Value) -> Vec<(String, Option<String>)> {
    let all = json["linux"]["namespaces"].as_array().expect("present");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    all.iter()
        .map(|one| (text(&one["type"]).expect("present"), text(&one["path"])))
        .collect()
}

#[test]
fn pid_namespaces_follow_the_mode() {
    for (mode, pid, target, expected) in [
        (NamespaceMode::Container, None, None, Some(Some(None))),
        (NamespaceMode::Node, None, None, Some(None)),
        (
            NamespaceMode::Pod,
            Some("/ns/pid"),
            None,
            Some(Some(Some("/ns/pid"))),
        ),
        (NamespaceMode::Pod, None, None, None),
        (
            NamespaceMode::Target,
            None,
            Some("/ns/t"),
            Some(Some(Some("/ns/t"))),
        ),
        (NamespaceMode::Target, None, None, None),
    ] {
        let case = Case::new(|case| {
            case.context()
                .namespace_options
                .as_mut()
                .expect("present")
                .pid = mode as i32;
            case.sandbox.pid = pid.map(PathBuf::from);
            case.sandbox.target_pid = target.map(PathBuf::from);
        });
        let found = case.build().ok().map(|_| {
            let all = namespaces(&case.json());
            all.into_iter()
                .find(|(typ, _)| typ == "pid")
                .map(|(_, path)| path)
        });
        let expected = expected.map(|one| one.map(|path| path.map(str::to_owned)));
        assert_eq!(found, expected, "{}", mode as i32);
    }
}

#[test]
fn the_pods_pids_may_be_those_of_the_host() {
    for (sandbox, starts) in [
        (NamespaceMode::Node, true),
        (NamespaceMode::Container, false),
    ] {
        let case = Case::new(|case| {
            let options = case.context().namespace_options.as_mut();
            options.expect("present").pid = NamespaceMode::default() as i32;
            let linux = case.pod.linux.get_or_insert_default();
            let context = linux.security_context.get_or_insert_default();
            context.namespace_options.get_or_insert_default().pid = sandbox as i32;
        });
        let built = case.build();
        assert_eq!(built.is_ok(), starts, "{}", sandbox as i32);
        if starts {
            let all = namespaces(&case.json());
            assert!(all.iter().all(|(typ, _)| typ != "pid"), "{all:?}");
        }
    }
}

#[test]
fn only_unprivileged_containers_on_v2_have_a_cgroup_namespace() {
    for (version, privileged, expected) in [
        (CgroupVersion::V2, false, true),
        (CgroupVersion::V2, true, false),
        (CgroupVersion::V1, false, false),
    ] {
        let case = Case::new(|case| {
            case.node.cgroup_version = version;
            if privileged {
                case.privileged();
            }
        });
        let all = namespaces(&case.json());
        assert_eq!(all.iter().any(|(typ, _)| typ == "cgroup"), expected);
        assert!(all.contains(&("network".to_owned(), Some("/ns/net".to_owned()))));
    }
}

#[test]
fn user_namespaces_must_be_complete_and_equal_to_the_sandboxs() {
    let map = |container_id, length| IdMapping {
        host_id: 65536,
        container_id,
        length,
    };
    let userns = |mode: NamespaceMode, maps: &[IdMapping]| {
        Some(UserNamespace {
            mode: mode as i32,
            uids: maps.to_vec(),
            gids: maps.to_vec(),
        })
    };
    let good = userns(NamespaceMode::Pod, &[map(0, 65536)]);
    for (sandbox, own, accepted) in [
        (good.clone(), good.clone(), true),
        (good.clone(), None, false),
        (None, good.clone(), false),
        (good, userns(NamespaceMode::Pod, &[map(0, 10)]), false),
        (None, userns(NamespaceMode::Node, &[]), true),
        (None, userns(NamespaceMode::Node, &[map(0, 1)]), false),
    ]
    .into_iter()
    .chain(
        [
            userns(NamespaceMode::Pod, &[map(1, 10)]),
            userns(NamespaceMode::Pod, &[map(0, 0)]),
            userns(NamespaceMode::Pod, &[map(0, 1), map(1, 1)]),
            userns(NamespaceMode::Pod, &[]),
            userns(NamespaceMode::Container, &[map(0, 10)]),
            userns(NamespaceMode::Target, &[map(0, 10)]),
        ]
        .map(|bad| (bad.clone(), bad, false)),
    ) {
        let case = Case::new(|case| {
            case.sandbox.user = sandbox
                .as_ref()
                .filter(|sandbox| sandbox.mode == NamespaceMode::Pod as i32)
                .map(|_| "/ns/user".into());
            case.context()
                .namespace_options
                .as_mut()
                .expect("present")
                .userns_options = own;
            let linux = case.pod.linux.as_mut().expect("present");
            let context = linux.security_context.as_mut().expect("present");
            context.namespace_options = Some(NamespaceOption {
                userns_options: sandbox,
                ..Default::default()
            });
        });
        assert_eq!(case.build().is_ok(), accepted);
    }
}

#[test]
fn seccomp_apparmor_and_paths_follow_the_request() {
    let profile = |kind: ProfileType, name: &str| {
        Some(SecurityProfile {
            profile_type: kind as i32,
            localhost_ref: name.to_owned(),
        })
    };
    let own = r#"{"defaultAction":"SCMP_ACT_LOG"}"#;
    for (seccomp, privileged, expected) in [
        (None, false, Some(None)),
        (profile(ProfileType::Unconfined, ""), false, Some(None)),
        (
            profile(ProfileType::RuntimeDefault, ""),
            false,
            Some(Some("SCMP_ACT_ERRNO")),
        ),
        (profile(ProfileType::RuntimeDefault, ""), true, Some(None)),
        (
            profile(ProfileType::Localhost, "/p.json"),
            false,
            Some(Some("SCMP_ACT_LOG")),
        ),
        (profile(ProfileType::Localhost, "/none.json"), false, None),
        (profile(ProfileType::Localhost, ""), false, None),
    ] {
        let case = Case::new(|case| {
            case.host.0.insert("/p.json", own);
            case.context().seccomp = seccomp;
            case.context().masked_paths = vec!["/proc/kcore".to_owned()];
            if privileged {
                case.privileged();
            }
        });
        let found = case.build().ok().map(|_| {
            let json = case.json();
            let masked = json["linux"]["maskedPaths"]
                .as_array()
                .expect("present")
                .len();
            // The one of the request, and /proc/interrupts.
            assert_eq!(masked, if privileged { 0 } else { 2 });
            json["linux"]["seccomp"]["defaultAction"]
                .as_str()
                .map(str::to_owned)
        });
        assert_eq!(found, expected.map(|one| one.map(str::to_owned)));
    }
    for (apparmor, on, expected) in [
        (None, true, Some(Some("default"))),
        (None, false, Some(None)),
        (
            profile(ProfileType::RuntimeDefault, ""),
            true,
            Some(Some("default")),
        ),
        (profile(ProfileType::RuntimeDefault, ""), false, None),
        (
            profile(ProfileType::Localhost, "localhost/mine"),
            true,
            Some(Some("mine")),
        ),
        (profile(ProfileType::Localhost, "other"), true, None),
        (profile(ProfileType::Localhost, "mine"), false, None),
        (profile(ProfileType::Unconfined, ""), true, Some(None)),
    ] {
        let case = Case::new(|case| {
            let loaded = "/sys/kernel/security/apparmor/profiles";
            case.host
                .0
                .insert(loaded, "mine (enforce)\nothers (complain)\n");
            case.node.apparmor = on;
            case.node.apparmor_default = Ok("default".to_owned());
            case.context().apparmor = apparmor;
        });
        let found = case.build().ok();
        let found = found.map(|built| {
            built
                .spec
                .process()
                .clone()
                .expect("present")
                .apparmor_profile()
                .clone()
        });
        assert_eq!(found, expected.map(|one| one.map(str::to_owned)));
    }
}

#[test]
fn selinux_labels_are_derived_from_the_sandboxs() {
    let mut node = facts();
    node.selinux = true;
    let options = |r#type: &str, level: &str| SeLinuxOption {
        r#type: r#type.to_owned(),
        level: level.to_owned(),
        ..Default::default()
    };
    let sandbox = "system_u:system_r:container_t:s0:c1,c2";
    for (options, privileged, sandbox, expected) in [
        (options("", ""), false, Some(sandbox), Some(Some(sandbox))),
        (options("", ""), true, Some(sandbox), Some(None)),
        (
            options("my_t", ""),
            false,
            Some(sandbox),
            Some(Some("system_u:system_r:my_t:s0:c1,c2")),
        ),
        (
            options("", "s0:c9"),
            false,
            Some(sandbox),
            Some(Some("system_u:system_r:container_t:s0:c9")),
        ),
        (options("my_t", ""), false, None, None),
    ] {
        let found = selinux_label(Some(&options), privileged, sandbox, &node).ok();
        assert_eq!(found, expected.map(|one| one.map(str::to_owned)));
    }
}

#[test]
fn sysctls_must_belong_to_namespaces_of_the_pod() {
    for (name, host_network, host_ipc, accepted) in [
        ("net.core.somaxconn", false, false, true),
        ("net/ipv4/conf/eth0.1/forwarding", false, false, true),
        ("net.core.somaxconn", true, false, false),
        ("kernel.shmmax", false, false, true),
        ("kernel.shmmax", false, true, false),
        ("vm.swappiness", false, false, false),
        ("net.../../kernel/core_pattern", false, false, false),
    ] {
        let mut case = Case::new(|_| {});
        let mode = |host: bool| if host { NamespaceMode::Node as i32 } else { 0 };
        let linux = case.pod.linux.as_mut().expect("present");
        linux.sysctls.insert(name.to_owned(), "1".to_owned());
        linux
            .security_context
            .as_mut()
            .expect("present")
            .namespace_options = Some(NamespaceOption {
            network: mode(host_network),
            ipc: mode(host_ipc),
            ..Default::default()
        });
        let found = sandbox_sysctls(&case.pod, &PodDefaults::default());
        assert_eq!(found.is_ok(), accepted, "{name} {host_network} {host_ipc}");
        if let Ok(found) = found {
            assert_eq!(found["net.ipv4.ip_unprivileged_port_start"], "0");
        }
    }
}

/// With the host's network, a pod that names a host name has a UTS namespace, and only then.
#[test]
fn the_host_name_of_the_node_is_no_sysctl_of_a_pod() {
    for (network, hostname, accepted) in [
        (NamespaceMode::Pod, "", true),
        (NamespaceMode::Node, "", false),
        (NamespaceMode::Node, "other", true),
    ] {
        let mut case = Case::new(|_| {});
        hostname.clone_into(&mut case.pod.hostname);
        let linux = case.pod.linux.as_mut().expect("present");
        let domain = ("kernel.domainname".to_owned(), "x".to_owned());
        linux.sysctls.insert(domain.0, domain.1);
        let context = linux.security_context.as_mut().expect("present");
        context.namespace_options = Some(NamespaceOption {
            network: network.into(),
            ..Default::default()
        });
        let found = sandbox_sysctls(&case.pod, &PodDefaults::default());
        assert_eq!(found.is_ok(), accepted, "{} {hostname:?}", network as i32);
    }
}

#[test]
fn edits_of_cdi_devices_are_applied() {
    let folder = tempfile::tempdir().expect("present");
    let text = r#"{"cdiVersion":"0.6.0","kind":"v.com/gpu","containerEdits":{"env":["COMMON=1"]},
        "devices":[{"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/gpu0","hostPath":"/dev/fuse"}],
        "hooks":[{"hookName":"createContainer","path":"/bin/hook"}],"additionalGids":[44]}}]}"#;
    std::fs::write(folder.path().join("v.json"), text).expect("present");
    std::fs::write(folder.path().join("broken.json"), "{").expect("present");
    let mut case = Case::new(|case| {
        case.cdi = cdi::Registry::read(&[folder.path()]);
        case.container.cdi_devices = vec![CdiDevice {
            name: "v.com/gpu=0".to_owned(),
        }];
    });
    assert_eq!(case.cdi.broken.len(), 1);
    let json = case.json();
    assert_eq!(json["linux"]["devices"][0]["path"], "/dev/gpu0");
    assert_eq!(json["hooks"]["createContainer"][0]["path"], "/bin/hook");
    assert!(
        json["process"]["env"]
            .as_array()
            .expect("present")
            .contains(&"COMMON=1".into())
    );
    assert!(
        json["process"]["user"]["additionalGids"]
            .as_array()
            .expect("present")
            .contains(&44.into())
    );
    case.container.cdi_devices[0].name = "v.com/gpu=1".to_owned();
    assert_eq!(
        case.build().expect_err("refused").code(),
        tonic::Code::NotFound
    );
}

#[test]
fn annotations_name_cdi_devices_too() {
    let folder = tempfile::tempdir().expect("present");
    let text = r#"{"cdiVersion":"0.6.0","kind":"v.com/gpu","containerEdits":{"additionalGids":[44]},"devices":[
        {"name":"0","containerEdits":{"hooks":[{"hookName":"poststop","path":"/bin/0"}]}},
        {"name":"1","containerEdits":{"hooks":[{"hookName":"poststop","path":"/bin/1"}]}}]}"#;
    std::fs::write(folder.path().join("v.json"), text).expect("present");
    let mut case = Case::new(|case| {
        case.cdi = cdi::Registry::read(&[folder.path()]);
        case.container.cdi_devices = vec![CdiDevice {
            name: "v.com/gpu=1".to_owned(),
        }];
        let annotations = &mut case.container.annotations;
        let devices = "v.com/gpu=0,v.com/gpu=1".to_owned();
        annotations.insert("cdi.k8s.io/plugin_a".to_owned(), devices);
        annotations.insert("cdi.k8s.iox/plugin".to_owned(), "none".to_owned());
    });
    assert!(cdi::is_asked(&case.container));
    // That of the field first, and each once.
    let hooks = case.json()["hooks"]["poststop"].clone();
    let hooks = hooks.as_array().expect("present");
    let paths: Vec<_> = hooks.iter().map(|hook| hook["path"].clone()).collect();
    assert_eq!(paths, ["/bin/1", "/bin/0"]);
    for (value, code) in [
        ("v.com/gpu=2", tonic::Code::NotFound),
        ("v.com/gpu", tonic::Code::InvalidArgument),
        ("gpu=0", tonic::Code::InvalidArgument),
        ("v.com/gpu=a b", tonic::Code::InvalidArgument),
        ("v.com/gpu=0,", tonic::Code::InvalidArgument),
        ("", tonic::Code::InvalidArgument),
    ] {
        let key = "cdi.k8s.io/plugin_a".to_owned();
        case.container.annotations.insert(key, value.to_owned());
        let error = case.build().expect_err("refused");
        assert_eq!(error.code(), code, "{value}");
    }
}
