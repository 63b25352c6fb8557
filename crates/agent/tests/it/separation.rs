//! What a person or a pod of criscope can reach. The API server's proxy leads to any port of a pod, so people may use it only for pods
//! that have no namespace of the node; who has the node's namespaces has no rights that matter in the cluster.

use std::collections::BTreeSet;
use std::path::Path;

use criscope::config::Config;
use criscope::install::AGENT_SOCKET;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::Value;

use crate::api::BOUND;
use crate::manifests::objects;
use crate::rbac::{Action, Rbac, User};
use crate::support::{documents, manifests, parse, read};

const AGENTS: &str = "criscope";
const NODE: &str = "criscope-node";

/// Subresources that lead into a pod, a Service or a node.
const LEADING_INSIDE: [&str; 7] = [
    "pods/proxy",
    "services/proxy",
    "nodes/proxy",
    "pods/portforward",
    "pods/exec",
    "pods/attach",
    "pods/ephemeralcontainers",
];

fn namespace_of(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// The namespaces in which a role leads into pods; empty for all of them.
fn reachable_namespaces() -> BTreeSet<String> {
    let mut namespaces = BTreeSet::new();
    for object in objects() {
        let rules = object["rules"].to_string();
        if LEADING_INSIDE
            .iter()
            .any(|resource| rules.contains(resource))
        {
            namespaces.insert(namespace_of(&object).to_owned());
        }
    }
    namespaces
}

fn daemon_sets(namespace: &str) -> Vec<(DaemonSet, PodSpec)> {
    let mut found = Vec::new();
    for object in objects() {
        if object["kind"] == "DaemonSet" && namespace_of(&object) == namespace {
            let set: DaemonSet = parse(object);
            let spec = set.spec.clone().expect("a spec");
            found.push((set, spec.template.spec.expect("a spec")));
        }
    }
    found
}

fn containers(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

/// Fails unless a container has no privileges.
fn assert_unprivileged(container: &Container) {
    let security = container.security_context.as_ref();
    let security = security.expect("a security context");
    assert_eq!(security.run_as_non_root, Some(true));
    assert_eq!(security.allow_privilege_escalation, Some(false));
    assert_eq!(security.read_only_root_filesystem, Some(true));
    assert!(security.privileged.is_none());
    let capabilities = security.capabilities.as_ref().expect("capabilities");
    assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    assert!(capabilities.add.is_none());
    // The group that may connect to the socket.
    let group = i64::from(Config::builtin().admin.agent_group);
    assert_eq!(security.run_as_group, Some(group));
}

#[test]
fn users_reach_only_pods_without_a_namespace_of_the_node() {
    assert_eq!(
        reachable_namespaces(),
        BTreeSet::from([AGENTS.to_owned()]),
        "roles that lead into pods are of the agents' namespace alone"
    );
    let sets = daemon_sets(AGENTS);
    assert_eq!(sets.len(), 1, "no other pods are in that namespace");
    for (_, pod) in &sets {
        assert!(pod.host_network.is_none() && pod.host_pid.is_none() && pod.host_ipc.is_none());
        for container in containers(pod) {
            assert_unprivileged(container);
            let ports = container.ports.iter().flatten();
            let ports: Vec<_> = ports
                .map(|port| (port.container_port, port.host_port))
                .collect();
            assert_eq!(ports, [(9479, None)]);
        }
    }
    // Nothing but agents may be created there, either: the privileged pods of captures are elsewhere.
    let creators = objects().into_iter().filter(|object| {
        let rules = object["rules"].as_array().cloned().unwrap_or_default();
        rules.iter().any(|rule| {
            rule["resources"].to_string().contains("\"pods\"")
                && rule["verbs"].to_string().contains("create")
        })
    });
    let creators: Vec<_> = creators
        .map(|role| namespace_of(&role).to_owned())
        .collect();
    assert_eq!(creators, [NODE]);
}

/// Mounts of the node: only the directory of the socket for agents, and not writable.
#[test]
fn of_the_nodes_files_only_the_directory_of_the_socket_is_mounted() {
    let socket = AGENT_SOCKET.strip_prefix("unix://").expect("a socket");
    let directory = Path::new(socket).parent().and_then(Path::to_str);
    for (_, pod) in [daemon_sets(AGENTS), daemon_sets(NODE)].iter().flatten() {
        let volumes = pod.volumes.iter().flatten();
        let of_node: Vec<_> = volumes
            .filter(|volume| volume.host_path.is_some())
            .collect();
        assert_eq!(of_node.len(), 1);
        let path = of_node[0].host_path.as_ref().map(|host| host.path.as_str());
        assert_eq!(path, directory);
        for container in containers(pod) {
            let mounts = container.volume_mounts.iter().flatten();
            let mut mounts = mounts.filter(|mount| mount.name == of_node[0].name);
            let mount = mounts.next().expect("the socket");
            assert_eq!(Some(mount.mount_path.as_str()), directory);
            assert_eq!(mount.read_only, Some(true));
        }
    }
    for (_, pod) in daemon_sets(NODE) {
        // What stays on the node when it is installed has no privileges and no token.
        for container in &pod.containers {
            assert_unprivileged(container);
            assert_eq!(container.volume_mounts.iter().flatten().count(), 1);
        }
    }
}

#[test]
fn roles_allow_what_their_holders_need_and_nothing_else() {
    let rbac = Rbac::of(&[
        &read("base/agent/rbac.yaml"),
        &read("base/install/rbac.yaml"),
        BOUND,
    ]);
    let alice = User::named("alice");
    let agent = User::account(AGENTS, "criscope-agent");
    let installer = User::account(NODE, "criscope-installer");
    let may =
        |user: &User, verb: &str, group: &str, resource: &str, namespace: &str, name: &str| {
            let action = Action::Resource {
                verb,
                group,
                resource,
                namespace,
                name,
            };
            rbac.allows(user, action)
        };
    // A user of the plugin, who may also make captures.
    assert!(may(
        &alice,
        "get",
        "",
        "pods/proxy",
        AGENTS,
        "https:criscope-x:9479"
    ));
    for namespace in [NODE, "kube-system", "shop"] {
        assert!(!may(
            &alice,
            "get",
            "",
            "pods/proxy",
            namespace,
            "criscope-installer-x:10255"
        ));
    }
    for resource in LEADING_INSIDE {
        for verb in ["get", "create", "update"] {
            let is_granted = (resource, verb) == ("pods/proxy", "get");
            let name = "criscope-x";
            assert_eq!(may(&alice, verb, "", resource, AGENTS, name), is_granted);
            assert!(!may(&alice, verb, "", resource, NODE, name));
        }
    }
    assert!(!may(&alice, "create", "", "pods", AGENTS, ""));
    for account in ["criscope-agent", "default"] {
        assert!(!may(
            &alice,
            "create",
            "",
            "serviceaccounts/token",
            AGENTS,
            account
        ));
    }
    assert!(!may(
        &alice,
        "create",
        "",
        "serviceaccounts/token",
        NODE,
        "criscope-installer"
    ));
    // Pods with the node's namespaces have rights to the Leases of their own namespace; agents have none to them.
    let (group, resource) = ("coordination.k8s.io", "leases");
    for verb in [
        "create", "get", "list", "watch", "update", "patch", "delete",
    ] {
        assert!(may(&installer, verb, group, resource, NODE, "node-1"));
        for namespace in ["kube-node-lease", "kube-system", AGENTS] {
            assert!(!may(&installer, verb, group, resource, namespace, "node-1"));
        }
        for namespace in [NODE, AGENTS] {
            assert!(!may(&agent, verb, group, resource, namespace, "node-1"));
        }
        // Who leads a rollout may change records, and make none.
        let is_needed = ["get", "list", "watch", "patch"].contains(&verb);
        assert_eq!(
            may(&alice, verb, group, resource, NODE, "node-1"),
            is_needed
        );
    }
    // As every kubelet, installers read Nodes, and change none.
    for (verb, is_needed) in [
        ("get", true),
        ("list", true),
        ("patch", false),
        ("update", false),
    ] {
        assert_eq!(may(&installer, verb, "", "nodes", "", "node-1"), is_needed);
        assert!(!may(&agent, verb, "", "nodes", "", "node-1"));
    }
    // One account changes the installer's DaemonSet, and no other.
    let uninstaller = User::account(NODE, "criscope-uninstaller");
    for user in [&alice, &agent, &installer, &uninstaller] {
        let is_uninstaller = user == &uninstaller;
        let name = "criscope-installer";
        assert_eq!(
            may(user, "update", "apps", "daemonsets", NODE, name),
            is_uninstaller
        );
        assert!(!may(user, "update", "apps", "daemonsets", NODE, "another"));
        assert!(!may(
            user,
            "update",
            "apps",
            "daemonsets",
            AGENTS,
            "criscope"
        ));
    }
    for (group, resource, verb) in [
        ("events.k8s.io", "events", "create"),
        ("events.k8s.io", "events", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    ] {
        assert!(may(&agent, verb, group, resource, "shop", ""));
        let is_event = (resource, verb) == ("events", "create");
        assert_eq!(
            may(&installer, verb, group, resource, "default", ""),
            is_event
        );
    }
    for (resource, verb) in [("pods", "get"), ("secrets", "get"), ("pods", "create")] {
        assert!(!may(&agent, verb, "", resource, AGENTS, "x"));
        assert!(!may(&installer, verb, "", resource, NODE, "x"));
    }
}

#[test]
fn a_network_policy_leaves_agents_one_port() {
    let policy: NetworkPolicy = parse(documents(&read("base/agent/networkpolicy.yaml")).remove(0));
    let spec = policy.spec.expect("a spec");
    let (set, pod) = daemon_sets(AGENTS).remove(0);
    let template = set.spec.expect("a spec").template.metadata;
    let labels = template
        .and_then(|metadata| metadata.labels)
        .expect("labels");
    let selector = spec.pod_selector.and_then(|selector| selector.match_labels);
    assert_eq!(selector, Some(labels));
    assert_eq!(spec.policy_types, Some(vec!["Ingress".to_owned()]));
    let rules = serde_json::to_value(&spec.ingress).expect("JSON");
    let ports = pod.containers[0].ports.as_deref().expect("ports");
    let port = ports[0].container_port;
    assert_eq!(
        rules,
        serde_json::json!([{"ports": [{"protocol": "TCP", "port": port}]}])
    );
}

/// One `namespace:` above both directories would put agents and installers into the same namespace again.
#[test]
fn each_directory_of_the_kustomization_has_its_own_namespace() {
    let kustomization =
        |path: &str| documents(&read(&format!("{path}/kustomization.yaml"))).remove(0);
    for (directory, namespace) in [("base/agent", AGENTS), ("base/install", NODE)] {
        let own = kustomization(directory);
        assert_eq!(own["namespace"], namespace);
        let mut listed = Vec::new();
        for file in own["resources"].as_array().expect("a list") {
            let file = file.as_str().expect("a name");
            listed.push(file.to_owned());
            for object in documents(&read(&format!("{directory}/{file}"))) {
                let is_of_cluster = ["Namespace", "ClusterRole", "ClusterRoleBinding"]
                    .iter()
                    .any(|kind| object["kind"] == *kind);
                let expected = if is_of_cluster { "" } else { namespace };
                assert_eq!(namespace_of(&object), expected, "{directory}/{file}");
            }
        }
        let files = std::fs::read_dir(manifests().join(directory)).expect("a directory");
        assert_eq!(files.count(), listed.len() + 1, "{directory}: {listed:?}");
    }
    assert_eq!(
        kustomization("base")["resources"].to_string(),
        r#"["agent","install"]"#
    );
    for directory in ["base", "uninstall"] {
        assert!(kustomization(directory).get("namespace").is_none());
    }
    let monitoring = kustomization("monitoring");
    assert!(!monitoring["resources"].to_string().contains("base"));
}

#[test]
fn the_patches_of_the_uninstallation_replace_what_is_there() {
    let all = documents(&read("uninstall/kustomization.yaml")).remove(0);
    let [patch] = &all["patches"].as_array().expect("patches")[..] else {
        panic!("one patch");
    };
    let mut target = documents(&read("base/install/daemonset.yaml")).remove(0);
    assert_eq!(patch["target"]["kind"], target["kind"]);
    assert_eq!(patch["target"]["name"], target["metadata"]["name"]);
    let operations = documents(patch["patch"].as_str().expect("a text")).remove(0);
    for operation in operations.as_array().expect("a list") {
        assert_eq!(operation["op"], "replace");
        let path = operation["path"].as_str().expect("a path");
        let found = target.pointer_mut(path).unwrap_or_else(|| panic!("{path}"));
        *found = operation["value"].clone();
    }
    let pod = &target["spec"]["template"]["spec"];
    assert_eq!(
        pod["initContainers"][0]["args"].to_string(),
        r#"["--uninstall","--max-parallel=1"]"#
    );
    let probe = &pod["containers"][0]["readinessProbe"]["exec"]["command"];
    assert_eq!(
        probe.to_string(),
        r#"["/usr/bin/criscope-agent","check","--expect=absent"]"#
    );
}
