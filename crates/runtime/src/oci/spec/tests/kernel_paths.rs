//! Paths of `/proc` and `/sys` that are hidden or read-only.

use serde_json::{Value, json};

use super::*;
use criscope_cri::v1::{IdMapping, UserNamespace};

const LISTS: [&str; 2] = ["maskedPaths", "readonlyPaths"];

fn lists(case: &Case) -> [Value; 2] {
    let linux = &case.json()["linux"];
    LISTS.map(|list| linux[list].clone())
}

fn has(list: &Value, path: &str) -> bool {
    let mut paths = list.as_array().into_iter().flatten();
    paths.any(|one| one == path)
}

#[test]
fn a_request_without_masked_paths_gets_the_default_ones() {
    let mut case = Case::new(|_| ());
    let [masked, read_only] = lists(&case);
    for path in [
        "/proc/kcore",
        "/proc/keys",
        "/proc/interrupts",
        "/sys/firmware",
        "/sys/devices/virtual/powercap",
    ] {
        assert!(has(&masked, path), "{path}");
    }
    for path in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq"] {
        assert!(has(&read_only, path), "{path}");
    }
    // Each list is replaced by the one that was sent. What tells of the work of other containers is hidden in any case: kubelets
    // before 1.33 do not name it.
    case.context().masked_paths = vec!["/bin".to_owned()];
    assert_eq!(
        lists(&case),
        [json!(["/bin", "/proc/interrupts"]), read_only]
    );
    case.context().masked_paths.clear();
    case.context().readonly_paths = vec!["/tmp".to_owned()];
    assert_eq!(lists(&case), [masked, json!(["/tmp"])]);
    case.container.linux = None;
    case.sandbox.pid = Some("/ns/pid".into());
    assert!(has(&lists(&case)[0], "/proc/kcore"));
}

#[test]
fn a_privileged_container_sees_everything() {
    let mut case = Case::new(Case::privileged);
    assert_eq!(lists(&case), [json!([]), json!([])]);
    case.context().masked_paths = vec!["/proc/kcore".to_owned()];
    case.context().readonly_paths = vec!["/proc/sys".to_owned()];
    assert_eq!(lists(&case), [json!([]), json!([])]);
}

/// The kubelet sends empty lists for `procMount: Unmasked`, which requires a user namespace.
#[test]
fn in_a_user_namespace_the_lists_are_those_of_the_request() {
    let mapping = IdMapping {
        host_id: 200_000,
        container_id: 0,
        length: 65536,
    };
    let users = UserNamespace {
        mode: NamespaceMode::Pod as i32,
        uids: vec![mapping],
        gids: vec![mapping],
    };
    let mut case = Case::new(|case| {
        let linux = case.pod.linux.as_mut().expect("present");
        let pod = linux.security_context.as_mut().expect("present");
        pod.namespace_options.get_or_insert_default().userns_options = Some(users.clone());
        let options = case.context().namespace_options.as_mut().expect("present");
        options.userns_options = Some(users);
        case.sandbox.user = Some("/ns/user".into());
    });
    assert_eq!(lists(&case), [json!([]), json!([])]);
    case.context().masked_paths = vec!["/proc/kcore".to_owned()];
    let hidden = json!(["/proc/kcore", "/proc/interrupts"]);
    assert_eq!(lists(&case), [hidden, json!([])]);
}
