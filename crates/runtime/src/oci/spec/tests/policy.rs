//! The node's policy for all pods.

use oci_spec::runtime::{PosixRlimitBuilder, PosixRlimitType};
use serde_json::Value;

use super::*;
use criscope_cri::v1::security_profile::ProfileType;
use criscope_cri::v1::{Device, HugepageLimit, Int64Value, SecurityProfile, UserNamespace};

#[test]
fn a_container_without_a_seccomp_request_gets_the_profile_of_the_policy() {
    let file = r#"{"defaultAction":"SCMP_ACT_LOG"}"#;
    for (policy, expected) in [
        (SeccompProfile::Unconfined, Value::Null),
        (SeccompProfile::RuntimeDefault, "SCMP_ACT_ERRNO".into()),
        (
            SeccompProfile::Localhost("/p.json".into()),
            "SCMP_ACT_LOG".into(),
        ),
    ] {
        let mut case = Case::new(|case| {
            case.host.0.insert("/p.json", file);
            case.node.policy.unset_seccomp_profile = policy.clone();
        });
        let action = |case: &Case| case.json()["linux"]["seccomp"]["defaultAction"].clone();
        assert_eq!(action(&case), expected, "{policy:?}");
        // A requested profile takes precedence, and a privileged container has none.
        case.context().seccomp = Some(SecurityProfile {
            profile_type: ProfileType::Unconfined as i32,
            ..SecurityProfile::default()
        });
        assert_eq!(action(&case), Value::Null);
        case.context().seccomp = None;
        case.privileged();
        assert_eq!(action(&case), Value::Null);
    }
}

#[test]
fn resource_limits_of_the_policy_apply_to_every_container_and_its_execs() {
    assert_eq!(Case::new(|_| ()).json()["process"]["rlimits"], Value::Null);
    let limit = PosixRlimitBuilder::default()
        .typ(PosixRlimitType::RlimitNofile)
        .soft(7_u64)
        .hard(9_u64)
        .build()
        .expect("complete");
    let mut case = Case::new(|case| case.node.policy.default_ulimits = vec![limit]);
    let expected = serde_json::json!([{"type": "RLIMIT_NOFILE", "soft": 7, "hard": 9}]);
    assert_eq!(case.json()["process"]["rlimits"], expected);
    let spec = case.build().expect("a specification").spec;
    let exec = exec_process(&spec, vec!["true".to_owned()], false).expect("a process");
    assert_eq!(exec.rlimits().as_deref(), Some([limit].as_slice()));
    case.privileged();
    assert_eq!(case.json()["process"]["rlimits"], expected);
}

#[test]
fn huge_page_limits_are_applied_refused_or_ignored() {
    // Disabled, tolerant of a missing controller, its presence.
    for (disabled, tolerant, controller, expected) in [
        (false, true, true, Some(1)),
        (false, true, false, Some(0)),
        (false, false, true, Some(1)),
        (false, false, false, None),
        (true, true, true, Some(0)),
        (true, false, false, Some(0)),
    ] {
        let mut case = Case::new(|case| {
            case.node.hugetlb = controller;
            case.node.policy.disable_hugetlb_controller = disabled;
            case.node.policy.tolerate_missing_hugetlb_controller = tolerant;
        });
        assert!(case.build().is_ok(), "no limit is requested");
        let linux = case.container.linux.as_mut().expect("present");
        let resources = linux.resources.as_mut().expect("present");
        resources.hugepage_limits.push(HugepageLimit {
            page_size: "2MB".to_owned(),
            limit: 1 << 21,
        });
        let limits = case.build().ok().map(|_| {
            let json = case.json();
            let limits = json["linux"]["resources"]["hugepageLimits"].as_array();
            limits.map_or(0, Vec::len)
        });
        assert_eq!(limits, expected, "{disabled} {tolerant} {controller}");
    }
}

#[test]
fn devices_are_owned_by_the_user_of_the_security_context() {
    let id = |value| Some(Int64Value { value });
    for (own, user, group, expected) in [
        (false, id(7), id(8), (0, 0)),
        (true, id(7), id(8), (7, 8)),
        (true, id(7), None, (7, 0)),
        (true, None, None, (0, 0)),
    ] {
        let case = Case::new(|case| {
            case.node.policy.device_ownership_from_security_context = own;
            case.container.devices.push(Device {
                container_path: "/dev/x".to_owned(),
                host_path: "/dev/fuse".to_owned(),
                permissions: "rw".to_owned(),
            });
            case.context().run_as_user = user;
            case.context().run_as_group = group;
        });
        let device = &case.json()["linux"]["devices"][0];
        let found = (device["uid"].clone(), device["gid"].clone());
        assert_eq!(found, (expected.0.into(), expected.1.into()));
    }
}

#[test]
fn policy_sysctls_apply_to_pods_with_the_namespace() {
    let policy = PodDefaults {
        sysctls: BTreeMap::from([
            ("net.core.somaxconn".to_owned(), "9".to_owned()),
            ("kernel/shmmax".to_owned(), "8".to_owned()),
        ]),
        ..PodDefaults::default()
    };
    let of = |policy: &PodDefaults, change: &dyn Fn(&mut NamespaceOption)| {
        let mut options = NamespaceOption::default();
        change(&mut options);
        let mut case = Case::new(|_| {});
        let linux = case.pod.linux.as_mut().expect("present");
        let context = linux.security_context.as_mut().expect("present");
        context.namespace_options = Some(options);
        sandbox_sysctls(&case.pod, policy).expect("sysctls")
    };
    let node = NamespaceMode::Node as i32;
    let all = of(&policy, &|_| {});
    assert_eq!(all["net.core.somaxconn"], "9");
    assert_eq!(all["kernel.shmmax"], "8");
    assert_eq!(all["net.ipv4.ip_unprivileged_port_start"], "0");
    assert_eq!(all["net.ipv4.ping_group_range"], "0 2147483647");
    let host_network = of(&policy, &|options| options.network = node);
    assert_eq!(
        host_network.into_keys().collect::<Vec<_>>(),
        ["kernel.shmmax"]
    );
    let host_ipc = of(&policy, &|options| options.ipc = node);
    assert!(!host_ipc.contains_key("kernel.shmmax"));
    let in_userns = of(&policy, &|options| {
        options.userns_options = Some(UserNamespace::default());
    });
    assert!(!in_userns.contains_key("net.ipv4.ping_group_range"));
    let off = PodDefaults {
        enable_unprivileged_ports: false,
        enable_unprivileged_icmp: false,
        ..PodDefaults::default()
    };
    assert!(of(&off, &|_| {}).is_empty());
    // The pod's own sysctls take precedence.
    let mut case = Case::new(|_| {});
    let linux = case.pod.linux.as_mut().expect("present");
    let own = ("net/core/somaxconn".to_owned(), "1".to_owned());
    linux.sysctls.insert(own.0, own.1);
    let found = sandbox_sysctls(&case.pod, &policy).expect("sysctls");
    assert_eq!(found["net.core.somaxconn"], "1");
}
