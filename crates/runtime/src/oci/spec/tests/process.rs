//! Arguments, environment, capabilities, resources.

use oci_spec::runtime::LinuxResources;

use super::*;
use criscope_cri::v1::{Capability, HugepageLimit, KeyValue, LinuxContainerResources};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_command_overrides_entrypoint_and_cmd_and_arguments_override_cmd() {
    for (entry, cmd, command, args, expected) in [
        ("/e", "c", "", "", Some("/e c")),
        ("/e", "c", "", "a", Some("/e a")),
        ("/e", "c", "/x", "", Some("/x")),
        ("/e", "c", "/x", "a", Some("/x a")),
        ("", "c d", "", "", Some("c d")),
        ("", "", "", "", None),
    ] {
        let case = Case::new(|case| {
            case.image.entrypoint = words(entry);
            case.image.cmd = words(cmd);
            case.container.command = words(command);
            case.container.args = words(args);
        });
        let built = case.build().ok();
        let args = built.map(|built| {
            built
                .spec
                .process()
                .clone()
                .expect("present")
                .args()
                .clone()
                .expect("present")
        });
        assert_eq!(
            args,
            expected.map(words),
            "{entry} {cmd} {command} {args:?}"
        );
    }
}

#[test]
fn later_variables_replace_earlier_ones_in_place() {
    let pair = |key: &str, value: &str| KeyValue {
        key: key.to_owned(),
        value: value.as_bytes().to_vec().into(),
    };
    let mut case = Case::new(|case| {
        case.sandbox.hostname = "pod".to_owned();
        case.image.env = words("PATH=/bin A=1");
        case.container.envs = vec![pair("A", "2"), pair("B", "x=y"), pair("HOSTNAME", "h")];
        case.container.tty = true;
    });
    let env = case.json()["process"]["env"].clone();
    assert_eq!(
        env,
        serde_json::json!(["PATH=/bin", "TERM=xterm", "HOSTNAME=h", "A=2", "B=x=y"])
    );
    case.container.envs = vec![KeyValue {
        key: "SECRET".to_owned(),
        value: vec![0xff].into(),
    }];
    let error = case.build().expect_err("refused");
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    assert!(error.to_string().contains("SECRET"), "{error}");
}

#[test]
fn all_is_applied_before_single_capabilities() {
    for (add, drop, ambient, has, lacks) in [
        ("", "", "", "CAP_CHOWN", "CAP_SYS_ADMIN"),
        ("ALL", "", "", "CAP_SYS_ADMIN", "CAP_SYSLOG"),
        ("ALL", "chown", "", "CAP_SYS_ADMIN", "CAP_CHOWN"),
        ("NET_ADMIN", "ALL", "", "CAP_NET_ADMIN", "CAP_CHOWN"),
        ("ALL", "ALL", "", "", "CAP_CHOWN"),
        ("cap_net_admin", "", "", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"),
        ("", "ALL", "NET_RAW", "CAP_NET_RAW", "CAP_CHOWN"),
        ("CAP_ALL", "", "", "CAP_SYS_ADMIN", "CAP_SYSLOG"),
        ("", "cap_all", "", "", "CAP_CHOWN"),
        ("FLY NET_ADMIN", "", "", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"),
        ("", "CAP_FLY CHOWN", "", "CAP_NET_RAW", "CAP_CHOWN"),
    ] {
        let case = Case::new(|case| {
            case.context().capabilities = Some(Capability {
                add_capabilities: words(add),
                drop_capabilities: words(drop),
                add_ambient_capabilities: words(ambient),
            });
        });
        let sets = case.json()["process"]["capabilities"].clone();
        for set in ["bounding", "effective", "permitted"] {
            let set = sets[set].as_array().expect("present");
            assert!(
                has.is_empty() || set.contains(&has.into()),
                "{add} {drop}: {set:?}"
            );
            assert!(!set.contains(&lacks.into()), "{add} {drop}: {set:?}");
        }
        let ambient = words(ambient).len();
        assert_eq!(sets["ambient"].as_array().expect("present").len(), ambient);
        assert_eq!(
            sets["inheritable"].as_array().expect("present").len(),
            ambient
        );
    }
}

fn resources(
    node: &NodeFacts,
    change: impl FnOnce(&mut LinuxContainerResources),
) -> Result<LinuxResources, SpecError> {
    let mut asked = LinuxContainerResources::default();
    change(&mut asked);
    container_resources(&asked, node)
}

#[test]
fn swap_is_limited_with_memory_where_the_kernel_accounts_it() {
    for (accounting, limit, swap, expected) in [
        (true, 100, 0, Some(100)),
        (true, 100, 150, Some(150)),
        (true, 100, -1, Some(-1)),
        (true, 0, 0, None),
        (false, 100, 0, None),
        (false, 100, 150, None),
    ] {
        let mut node = facts();
        node.swap_accounting = accounting;
        let found = resources(&node, |asked| {
            asked.memory_limit_in_bytes = limit;
            asked.memory_swap_limit_in_bytes = swap;
        });
        let found = found
            .expect("present")
            .memory()
            .and_then(|memory| memory.swap());
        assert_eq!(found, expected, "{accounting} {limit} {swap}");
    }
    let below = resources(&facts(), |asked| {
        asked.memory_limit_in_bytes = 100;
        asked.memory_swap_limit_in_bytes = 50;
    });
    assert!(below.is_err());
}

#[test]
fn an_update_keeps_unset_fields() {
    let node = facts();
    let first = resources(&node, |asked| {
        asked.cpu_shares = 512;
        asked.cpu_quota = 1000;
        asked.memory_limit_in_bytes = 100;
        asked
            .unified
            .insert("memory.high".to_owned(), "90".to_owned());
    })
    .expect("present");
    let update = LinuxContainerResources {
        cpu_quota: 2000,
        ..Default::default()
    };
    let second = updated_resources(&first, &update, &node).expect("present");
    let cpu = second.cpu().clone().expect("present");
    assert_eq!((cpu.shares(), cpu.quota()), (Some(512), Some(2000)));
    assert_eq!(second.memory(), first.memory());
    assert_eq!(
        second.unified().as_ref().expect("present")["memory.high"],
        "90"
    );
}

#[test]
fn reverting_an_update_removes_its_limits() {
    let mut node = facts();
    node.swap_accounting = true;
    let limits = |asked: &mut LinuxContainerResources| {
        asked.cpu_shares = 512;
        asked.cpu_quota = 1000;
        asked.cpu_period = 2000;
        asked.memory_limit_in_bytes = 100;
    };
    let none = resources(&node, |_| ()).expect("present");
    let all = resources(&node, limits).expect("present");
    let back = reverted_resources(&none, &all);
    let (cpu, memory) = (back.cpu().clone().expect("present"), back.memory());
    let memory = memory.expect("present");
    assert_eq!((memory.limit(), memory.swap()), (Some(-1), Some(-1)));
    assert_eq!(
        (cpu.quota(), cpu.period(), cpu.shares()),
        (Some(-1), Some(100_000), Some(1024))
    );
    // What was set before, and nothing else.
    let more = LinuxContainerResources {
        memory_limit_in_bytes: 200,
        ..Default::default()
    };
    let more = updated_resources(&all, &more, &node).expect("present");
    assert_eq!(reverted_resources(&all, &more), all);
    assert_eq!(reverted_resources(&none, &none), none);
}

#[test]
fn huge_pages_need_their_controller_and_unified_needs_v2() {
    let huge = |asked: &mut LinuxContainerResources| {
        asked.hugepage_limits.push(HugepageLimit {
            page_size: "2MB".to_owned(),
            limit: 7,
        });
    };
    let mut node = facts();
    assert!(
        resources(&node, huge)
            .expect("present")
            .hugepage_limits()
            .is_none()
    );
    node.hugetlb = true;
    let limits = resources(&node, huge)
        .expect("present")
        .hugepage_limits()
        .clone()
        .expect("present");
    assert_eq!(
        (limits[0].page_size().as_str(), limits[0].limit()),
        ("2MB", 7)
    );
    node.cgroup_version = CgroupVersion::V1;
    let unified = resources(&node, |asked| {
        asked
            .unified
            .insert("memory.high".to_owned(), "1".to_owned());
    });
    assert_eq!(
        unified.expect_err("refused").code(),
        tonic::Code::FailedPrecondition
    );
}

#[test]
fn the_oom_score_stays_above_the_floor() {
    for (asked, floor, expected) in [
        (-997, None, Some(-997)),
        (-997, Some(0), Some(0)),
        (1000, Some(0), Some(1000)),
        (2000, None, None),
        (i64::MIN, Some(0), None),
    ] {
        let found = restricted_oom_score_adj(asked, floor).ok();
        assert_eq!(found, expected, "{asked} {floor:?}");
    }
}

#[test]
fn an_exec_has_the_process_of_the_container_with_another_command() {
    let spec = Case::new(|case| case.context().no_new_privs = true).spec();
    let process = exec_process(&spec, words("ls -l"), true).expect("present");
    assert_eq!(process.args().as_deref(), Some(&words("ls -l")[..]));
    assert_eq!(process.terminal(), Some(true));
    assert_eq!(process.no_new_privileges(), Some(true));
    assert!(
        process
            .env()
            .as_ref()
            .expect("present")
            .contains(&"TERM=xterm".to_owned())
    );
}

#[test]
fn no_defaults_of_the_library_remain() {
    let json = Case::new(|_| {}).json();
    for key in ["hostname", "domainname", "hooks"] {
        assert!(json.get(key).is_none(), "{key}");
    }
    for key in ["rlimits", "apparmorProfile", "selinuxLabel", "consoleSize"] {
        assert!(json["process"].get(key).is_none(), "{key}");
    }
    for key in [
        "sysctl",
        "seccomp",
        "mountLabel",
        "uidMappings",
        "rootfsPropagation",
    ] {
        assert!(json["linux"].get(key).is_none(), "{key}");
    }
}

/// gVisor keeps the order that it is given, and Linux does not.
#[test]
fn groups_are_in_the_order_of_linux() {
    let case = Case::new(|case| {
        let id = |value| Some(criscope_cri::v1::Int64Value { value });
        case.context().run_as_user = id(7);
        case.context().run_as_group = id(80);
        case.context().supplemental_groups = vec![900, 3];
    });
    let user = &case.json()["process"]["user"];
    assert_eq!(user["gid"], 80);
    assert_eq!(user["additionalGids"], serde_json::json!([3, 80, 900]));
}
