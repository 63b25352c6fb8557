//! Mounts and devices.

use serde_json::{Value, json};

use tonic::Code;

use super::*;
use criscope_cri::v1::{Device, IdMapping, ImageSpec, Mount, UserNamespace};

fn mount(container_path: &str, host_path: &str) -> Mount {
    Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_owned(),
        ..Default::default()
    }
}

fn mounted(json: &Value, at: &str) -> Vec<Value> {
    let all = json["mounts"].as_array().expect("present");
    all.iter()
        .filter(|one| one["destination"] == at)
        .cloned()
        .collect()
}

#[test]
fn requested_mounts_replace_defaults_and_are_sorted() {
    let case = Case::new(|case| {
        case.container.mounts = vec![
            mount("/a/b/c", "/data"),
            mount("/etc/hosts", "/link"),
            mount("/a", "/missing"),
        ];
    });
    let built = case.build().expect("builds");
    assert_eq!(built.actions, [Action::CreateDirectory("/missing".into())]);
    let json = case.json();
    let hosts = mounted(&json, "/etc/hosts");
    assert_eq!(hosts.len(), 1);
    assert_eq!(hosts[0]["source"], "/data");
    assert_eq!(hosts[0]["options"], json!(["rbind", "rprivate", "rw"]));
    let order: Vec<usize> = built
        .spec
        .mounts()
        .iter()
        .flatten()
        .map(|mount| mount.destination().components().count())
        .collect();
    assert!(order.is_sorted(), "{order:?}");
    let own_dev = Case::new(|case| case.container.mounts = vec![mount("/dev", "/data")]).json();
    assert!(mounted(&own_dev, "/dev/pts").is_empty() && mounted(&own_dev, "/dev/shm").is_empty());
    let twice = Case::new(|case| {
        case.container.mounts = vec![mount("/x", "/link"), mount("/y/../x/", "/missing")]
    });
    let at_x = mounted(&twice.json(), "/x");
    assert_eq!(at_x.len(), 1, "the later one replaces the earlier one");
    assert_eq!(at_x[0]["source"], "/missing");
}

#[test]
fn propagation_and_read_only_modes() {
    let plain = || mount("/m", "/data");
    for (mount, options, rootfs) in [
        (
            Mount {
                readonly: true,
                ..plain()
            },
            Some("ro"),
            None,
        ),
        (
            Mount {
                propagation: 1,
                ..plain()
            },
            Some("rslave"),
            Some("rslave"),
        ),
        (
            Mount {
                propagation: 2,
                ..plain()
            },
            Some("rshared"),
            Some("rshared"),
        ),
        (
            Mount {
                readonly: true,
                recursive_read_only: true,
                ..plain()
            },
            Some("rro"),
            None,
        ),
        (
            Mount {
                recursive_read_only: true,
                ..plain()
            },
            None,
            None,
        ),
        (
            Mount {
                readonly: true,
                recursive_read_only: true,
                propagation: 1,
                ..plain()
            },
            None,
            None,
        ),
        (
            Mount {
                propagation: 9,
                ..plain()
            },
            None,
            None,
        ),
        (
            Mount {
                host_path: "data".to_owned(),
                ..plain()
            },
            None,
            None,
        ),
    ] {
        let case = Case::new(|case| case.container.mounts = vec![mount]);
        let Some(option) = options else {
            assert!(case.build().is_err());
            continue;
        };
        let json = case.json();
        let found = mounted(&json, "/m")[0]["options"].clone();
        assert!(
            found.as_array().expect("present").contains(&option.into()),
            "{found}"
        );
        assert_eq!(json["linux"]["rootfsPropagation"].as_str(), rootfs);
        assert_eq!(
            case.build().expect("builds").actions.len(),
            usize::from(rootfs.is_some())
        );
        assert_eq!(json["ociVersion"], "1.0.2");
    }
}

/// The options of a request are behind `rw` and `ro`: of two that contradict each other the OCI runtimes use the last.
#[test]
fn mount_options_are_added_to_those_of_the_other_fields() {
    let plain = || mount("/m", "/data");
    let image = ImageSpec {
        image: "i".to_owned(),
        ..Default::default()
    };
    for (mount, added, options) in [
        (
            plain(),
            &["noexec"][..],
            Some(&["rprivate", "rw", "noexec"][..]),
        ),
        (
            plain(),
            &["nodev", "ro"],
            Some(&["rprivate", "ro", "nodev"]),
        ),
        (
            Mount {
                readonly: true,
                ..plain()
            },
            &["nosuid", "ro"],
            Some(&["rprivate", "ro", "nosuid"]),
        ),
        (
            Mount {
                readonly: true,
                recursive_read_only: true,
                ..plain()
            },
            &["ro", "noexec"],
            Some(&["rprivate", "rro", "noexec"]),
        ),
        (
            Mount {
                recursive_read_only: true,
                ..plain()
            },
            &["ro"],
            None,
        ),
        (
            Mount {
                propagation: 2,
                ..plain()
            },
            &["noexec"],
            Some(&["rshared", "rw", "noexec"]),
        ),
        (
            Mount {
                image: Some(image),
                ..plain()
            },
            &["noexec"],
            Some(&["rprivate", "ro", "noexec"]),
        ),
        (
            Mount {
                readonly: true,
                ..plain()
            },
            &["rw"],
            None,
        ),
        (plain(), &["noexec", "exec"], None),
    ] {
        let added: Vec<_> = added.iter().map(|&option| option.to_owned()).collect();
        let case = Case::new(|case| {
            let mounts = &mut case.sandbox.image_mounts;
            mounts.insert("/m".to_owned(), "/images/0".into());
            case.container.mounts = vec![Mount {
                mount_options: added.clone(),
                ..mount
            }];
        });
        let Some(options) = options else {
            let error = case.build().expect_err("refused");
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            continue;
        };
        let found = mounted(&case.json(), "/m")[0]["options"].clone();
        let expected: Vec<_> = ["rbind"].iter().chain(options).collect();
        assert_eq!(found, json!(expected), "{added:?}");
    }
}

#[test]
fn id_mapped_mounts_need_a_newer_version() {
    let map = vec![IdMapping {
        host_id: 1,
        container_id: 0,
        length: 1,
    }];
    let case = Case::new(|case| {
        case.container.mounts = vec![Mount {
            uid_mappings: map.clone(),
            gid_mappings: map,
            ..mount("/m", "/data")
        }];
    });
    assert_eq!(case.json()["ociVersion"], "1.1.0");
}

/// The caller mounts images of a pod with a user namespace with its mappings: the OCI runtime must not map them again.
#[test]
fn images_of_a_pod_with_a_user_namespace_are_mapped_once() {
    let map = vec![IdMapping {
        host_id: 1000,
        container_id: 0,
        length: 65536,
    }];
    for mapped in [true, false] {
        let case = Case::new(|case| {
            let namespaces = UserNamespace {
                mode: NamespaceMode::Pod as i32,
                uids: map.clone(),
                gids: map.clone(),
            };
            let pid = NamespaceMode::Container as i32;
            let options = NamespaceOption {
                pid,
                userns_options: mapped.then_some(namespaces),
                ..Default::default()
            };
            let linux = case.pod.linux.as_mut().expect("present");
            let context = linux.security_context.as_mut().expect("present");
            context.namespace_options = Some(options.clone());
            case.sandbox.user = mapped.then(|| "/ns/user".into());
            case.context().namespace_options = Some(options);
            let image = ImageSpec {
                image: "i".to_owned(),
                ..Default::default()
            };
            case.container.mounts = vec![Mount {
                image: Some(image),
                uid_mappings: map.clone(),
                gid_mappings: map.clone(),
                ..mount("/m", "")
            }];
            let mounts = &mut case.sandbox.image_mounts;
            mounts.insert("/m".to_owned(), "/images/0".into());
        });
        let json = case.json();
        let mounts = json["mounts"].as_array().expect("present");
        let found = mounts.iter().find(|mount| mount["destination"] == "/m");
        let found = found.expect("present");
        assert_eq!(found["source"], "/images/0");
        assert_eq!(found.get("uidMappings").is_none(), mapped, "{found}");
    }
}

#[test]
fn the_propagation_of_a_path_is_that_of_its_mount() {
    let table = "1 0 8:1 / / rw shared:1 - ext4 /dev/a rw\n\
        2 1 8:2 / /a\\040b rw master:1 - ext4 /dev/b rw\n\
        3 1 8:2 / /p rw - ext4 /dev/b rw\n";
    for (path, expected) in [
        ("/x", Propagation::Shared),
        ("/a b/c", Propagation::Slave),
        ("/p", Propagation::Private),
        ("/pp", Propagation::Shared),
    ] {
        assert_eq!(
            propagation_of(table, Path::new(path)),
            Some(expected),
            "{path}"
        );
    }
}

#[test]
fn privileged_containers_get_the_hosts_devices_unless_the_handler_opts_out() {
    for (privileged, without, allowed, device, all) in [
        (false, false, false, false, false),
        (true, false, false, true, true),
        (true, true, false, false, false),
        (true, true, true, false, true),
    ] {
        let case = Case::new(|case| {
            if privileged {
                case.privileged();
            }
            case.handler.privileged_without_host_devices = without;
            case.handler
                .privileged_without_host_devices_all_devices_allowed = allowed;
        });
        let json = case.json();
        let nodes = json["linux"]["devices"].as_array().expect("present").len();
        assert_eq!(nodes, usize::from(device));
        let rules = json["linux"]["resources"]["devices"]
            .as_array()
            .expect("present");
        let any = rules
            .iter()
            .any(|rule| rule["allow"] == true && rule.get("type").is_none());
        assert_eq!(any, all);
        assert_eq!(rules[0]["allow"], false);
    }
    let alone = Case::new(|case| case.context().privileged = true);
    assert!(alone.build().is_err(), "the sandbox is not privileged");
}

#[test]
fn requested_devices_are_created_and_allowed() {
    for (host, permissions, accepted) in [
        ("/dev/fuse", "rw", true),
        ("/dev/fuse", "rx", false),
        ("/data", "rw", false),
        ("/dev/none", "rw", false),
    ] {
        let case = Case::new(|case| {
            case.container.devices = vec![Device {
                container_path: "/dev/f".to_owned(),
                host_path: host.to_owned(),
                permissions: permissions.to_owned(),
            }];
        });
        assert_eq!(case.build().is_ok(), accepted, "{host} {permissions}");
        if accepted {
            let json = case.json();
            assert_eq!(json["linux"]["devices"][0]["path"], "/dev/f");
            let rules = json["linux"]["resources"]["devices"]
                .as_array()
                .expect("present");
            assert_eq!(rules.last().expect("present")["minor"], 229);
        }
    }
}

/// The last mount at `/sys/fs/cgroup` is on top of the others.
const NODE: &str = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs ro\n\
    31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,seclabel,nsdelegate,memory_recursiveprot\n\
    32 23 0:28 / /mnt rw - cgroup2 cgroup2 rw,favordynmods\n";

#[test]
fn cgroups_are_writable_if_the_handler_allows_it() {
    let options = |version, privileged, writable| {
        let case = Case::new(|case| {
            case.host = Fake([("/proc/self/mountinfo", NODE)].into());
            case.node.cgroup_version = version;
            case.handler.cgroup_writable = writable;
            if privileged {
                case.privileged();
            }
        });
        let mounts = mounted(&case.json(), "/sys/fs/cgroup");
        assert_eq!(mounts.len(), 1);
        let options = mounts[0]["options"].as_array().cloned();
        let mut options = options.expect("a list");
        json!(options.split_off(4))
    };
    use CgroupVersion::{V1, V2};
    for (version, privileged, writable, expected) in [
        (V2, false, false, json!(["ro"])),
        (V2, false, true, json!(["rw"])),
        // The daemon refuses to start with such a handler.
        (V1, false, true, json!(["ro"])),
        (V1, true, false, json!(["rw"])),
        // It shares the cgroup namespace of the node, whose options its mount would otherwise reset.
        (
            V2,
            true,
            false,
            json!(["rw", "nsdelegate", "memory_recursiveprot"]),
        ),
    ] {
        let found = options(version, privileged, writable);
        assert_eq!(found, expected, "{version:?} {privileged} {writable}");
    }
}
