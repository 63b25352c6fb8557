//! `deploy/kubernetes`: every object is one that API servers accept, and everything generated follows from its source.
//! `UPDATE_DOCS=1 cargo test -p criscope-agent manifests` writes what is generated.

use std::fs;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::support::{documents, manifests, parse, read};

/// Files of objects, in the order in which they are applied.
const OBJECTS: [&str; 13] = [
    "base/agent/namespace.yaml",
    "base/agent/rbac.yaml",
    "base/agent/networkpolicy.yaml",
    "base/agent/daemonset.yaml",
    "base/install/namespace.yaml",
    "base/install/rbac.yaml",
    "base/install/daemonset.yaml",
    "monitoring/prometheus-account.yaml",
    "monitoring/podmonitor.yaml",
    "monitoring/rules.yaml",
    "monitoring/crio-rules.yaml",
    "monitoring/containerd-rules.yaml",
    "monitoring/dashboards.yaml",
];

/// The rules of `deploy/prometheus`: source, name of the object, and the file of it.
const RULES: [(&str, &str, &str); 3] = [
    ("criscope", "criscope", "rules.yaml"),
    ("crio", "criscope-crio-names", "crio-rules.yaml"),
    (
        "containerd",
        "criscope-containerd-names",
        "containerd-rules.yaml",
    ),
];

/// Files that the chart has as they are.
const CHART_FILES: [&str; 4] = [
    "rules.yaml",
    "crio-rules.yaml",
    "containerd-rules.yaml",
    "dashboards.yaml",
];

/// Namespaces that the kustomization creates, and Helm or its user does.
const RELEASE_NAMESPACE: &str = "criscope";

/// The objects of the chart with these values; `None` on machines for which there is no helm.
fn chart_objects(values: &[&str]) -> Option<Vec<Value>> {
    let helm = std::env::var_os("CRISCOPE_HELM").unwrap_or_else(|| "helm".into());
    if helm == "none" {
        eprintln!("NOT CHECKED: the chart, because there is no helm");
        return None;
    }
    let mut command = Command::new(&helm);
    command
        .args(["template", "criscope"])
        .arg(manifests().join("chart"));
    command.args(["--namespace", RELEASE_NAMESPACE]);
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.output().unwrap_or_else(|error| {
        panic!(
            "{}: {error}; tests/run.sh packages installs it",
            helm.display()
        )
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    Some(documents(text.trim_start_matches("---\n")))
}

/// Objects sorted by kind and name, without `imagePullPolicy`, which only the chart sets.
fn comparable(objects: Vec<Value>) -> Vec<Value> {
    let mut objects = objects;
    for object in &mut objects {
        let containers = ["initContainers", "containers"];
        for list in containers {
            let list = object.pointer_mut(&format!("/spec/template/spec/{list}"));
            for container in list.and_then(Value::as_array_mut).into_iter().flatten() {
                container
                    .as_object_mut()
                    .expect("a container")
                    .remove("imagePullPolicy");
            }
        }
    }
    objects.sort_by_key(|object| {
        let meta = &object["metadata"];
        format!("{} {} {}", object["kind"], meta["namespace"], meta["name"])
    });
    objects
}

/// Compares a generated file, or writes it.
fn generated(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, text).expect("written");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let path = path.display();
    assert!(
        found == text,
        "{path} is stale: run UPDATE_DOCS=1 cargo test -p criscope-agent"
    );
}

fn indented(text: &str, by: usize) -> String {
    let lines = text.lines().map(|line| {
        if line.is_empty() {
            "\n".to_owned()
        } else {
            format!("{:by$}{line}\n", "")
        }
    });
    lines.collect()
}

/// The custom resources of the Prometheus Operator, as far as they are used.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PrometheusRule {
    api_version: String,
    kind: String,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    spec: Groups,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<String>,
    rules: Vec<Rule>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    expr: Value,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pending: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_firing_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Value>,
}

pub(crate) fn objects() -> Vec<Value> {
    let objects = OBJECTS.iter();
    objects.flat_map(|file| documents(&read(file))).collect()
}

#[test]
fn every_object_is_of_the_kubernetes_api() {
    monitoring_is_generated();
    for object in objects() {
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        match &*kind {
            "Namespace" => drop(parse::<Namespace>(object)),
            "ServiceAccount" => drop(parse::<ServiceAccount>(object)),
            "Secret" => drop(parse::<Secret>(object)),
            "ConfigMap" => drop(parse::<ConfigMap>(object)),
            "Lease" => drop(parse::<Lease>(object)),
            "Role" => drop(parse::<Role>(object)),
            "RoleBinding" => drop(parse::<RoleBinding>(object)),
            "ClusterRole" => drop(parse::<ClusterRole>(object)),
            "ClusterRoleBinding" => drop(parse::<ClusterRoleBinding>(object)),
            "DaemonSet" => drop(parse::<DaemonSet>(object)),
            "NetworkPolicy" => drop(parse::<NetworkPolicy>(object)),
            "PrometheusRule" => drop(parse::<PrometheusRule>(object)),
            // Its fields are few, and read by hand.
            "PodMonitor" => assert_eq!(object["spec"]["podMetricsEndpoints"][0]["port"], "https"),
            other => panic!("{other}: not checked"),
        }
    }
}

#[test]
fn turns_alone_decide_how_a_rollout_proceeds() {
    let set: DaemonSet = parse(documents(&read("base/install/daemonset.yaml")).remove(0));
    let spec = set.spec.expect("a spec");
    // The turns are given by the rollout, for updates too: every pod may wait at the same time.
    let update = spec.update_strategy.expect("a strategy");
    let update = update.rolling_update.expect("rolling");
    let unavailable = serde_json::to_value(update.max_unavailable);
    assert_eq!(unavailable.expect("JSON"), "100%");
    let pod = spec.template.spec.expect("a spec");
    let stays = &pod.containers[0];
    let installs = &pod.init_containers.as_deref().expect("an installer")[0];
    assert_eq!(installs.image, stays.image);
    // The pod is ready as long as criscope is.
    let probe = stays
        .readiness_probe
        .as_ref()
        .and_then(|probe| probe.exec.as_ref());
    let command = probe.and_then(|exec| exec.command.as_deref());
    let command: Vec<_> = command
        .expect("a command")
        .iter()
        .map(|word| &**word)
        .collect();
    assert_eq!(
        command,
        ["/usr/bin/criscope-agent", "check", "--expect=ready"]
    );
}

#[test]
fn no_role_has_a_wildcard_or_reads_the_cluster() {
    for object in objects() {
        let rules = object["rules"].as_array().cloned().unwrap_or_default();
        for rule in rules {
            assert!(!rule.to_string().contains('*'), "{rule}");
            let is_cluster = object["kind"] == "ClusterRole";
            let reads = rule["verbs"].to_string();
            let is_url = rule.get("nonResourceURLs").is_some();
            assert!(
                !is_cluster
                    || is_url
                    // As every kubelet may.
                    || rule["resources"] == serde_json::json!(["nodes"])
                    || !["get", "list", "watch"]
                        .iter()
                        .any(|verb| reads.contains(verb)),
                "{rule}"
            );
        }
    }
}

fn monitoring_is_generated() {
    let root = manifests().join("../..");
    let head = |kind: &str, api: &str, name: &str, more: &str| {
        format!(
            "apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {name}\n  labels:\n    app.kubernetes.io/name: criscope\n{more}"
        )
    };
    for (source, name, file) in RULES {
        let source = format!("deploy/prometheus/{source}.rules.yaml");
        let rules = fs::read_to_string(root.join(&source)).expect("rules");
        let (_, groups) = rules.split_once("groups:\n").expect("groups");
        let text = format!(
            "# Generated from {source}.\n{}spec:\n  groups:\n{}",
            head("PrometheusRule", "monitoring.coreos.com/v1", name, ""),
            indented(groups, 2)
        );
        generated(&manifests().join("monitoring").join(file), &text);
    }
    let boards = ["fleet", "node", "pod-start"].map(|name| {
        let json =
            fs::read_to_string(root.join(format!("dashboards/{name}.json"))).expect("a dashboard");
        let label = "    grafana_dashboard: \"1\"\n";
        let head = head(
            "ConfigMap",
            "v1",
            &format!("criscope-dashboard-{name}"),
            label,
        );
        format!(
            "{head}data:\n  criscope-{name}.json: |\n{}",
            indented(&json, 4)
        )
    });
    let text = format!("# Generated from dashboards/.\n{}", boards.join("---\n"));
    generated(&manifests().join("monitoring/dashboards.yaml"), &text);
}

#[test]
fn the_chart_is_the_same_as_the_kustomization() {
    monitoring_is_generated();
    for file in CHART_FILES {
        let target = fs::read_link(manifests().join("chart/files").join(file)).expect("a link");
        assert_eq!(target, Path::new("../../monitoring").join(file));
    }
    let switches = ["monitoring.enabled", "names.crio", "names.containerd"]
        .map(|switch| format!("{switch}=true"));
    let mut values: Vec<&str> = switches.iter().map(String::as_str).collect();
    values.push("helmLabels=false");
    let Some(chart) = chart_objects(&values) else {
        return;
    };
    let (hooks, chart): (Vec<_>, Vec<_>) = chart
        .into_iter()
        .partition(|object| object["metadata"]["annotations"]["helm.sh/hook"].is_string());
    let mut hooks: Vec<_> = hooks
        .iter()
        .map(|object| object["metadata"]["annotations"]["helm.sh/hook"].to_string())
        .collect();
    hooks.sort();
    assert_eq!(hooks, ["\"pre-delete\"", "\"test\""]);
    // Its namespace is created before the release.
    let kustomization = objects().into_iter().filter(|object| {
        object["kind"] != "Namespace" || object["metadata"]["name"] != RELEASE_NAMESPACE
    });
    assert_eq!(comparable(chart), comparable(kustomization.collect()));
}

#[test]
fn what_operators_set_arrives_in_both_pods() {
    let values = [
        "image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "image.pullPolicy=Always",
        "imagePullSecrets[0].name=registry",
        "global.imagePullSecrets[0]=mirror",
        "global.imageRegistry=mirror.example:5000",
        "podAnnotations.team=nodes",
        "podLabels.team=nodes",
        "commonLabels.team=nodes",
        "priorityClassName=mine",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
    ];
    let Some(objects) = chart_objects(&values) else {
        return;
    };
    let sets: Vec<_> = objects
        .iter()
        .filter(|object| object["kind"] == "DaemonSet")
        .collect();
    assert_eq!(sets.len(), 2);
    for set in sets {
        let template = &set["spec"]["template"];
        let pod = &template["spec"];
        assert_eq!(template["metadata"]["annotations"]["team"], "nodes");
        assert_eq!(template["metadata"]["labels"]["team"], "nodes");
        assert_eq!(pod["imagePullSecrets"][0]["name"], "registry");
        assert_eq!(pod["imagePullSecrets"][1]["name"], "mirror");
        assert_eq!(pod["priorityClassName"], "mine");
        assert!(pod["affinity"]["nodeAffinity"].is_object());
        let image = pod["containers"][0]["image"].as_str().expect("an image");
        assert!(
            image.starts_with("mirror.example:5000/criscope/criscope@sha256:"),
            "{image}"
        );
        assert_eq!(pod["containers"][0]["imagePullPolicy"], "Always");
    }
    for object in &objects {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{object}");
        assert_eq!(labels["team"], "nodes", "{object}");
    }
}

#[test]
fn a_certificate_of_ones_own_reaches_the_agent_and_prometheus() {
    let values = [
        "tls.secret=agents",
        "monitoring.enabled=true",
        "monitoring.rules=false",
        "monitoring.dashboards=false",
        "networkPolicy.enabled=false",
    ];
    let Some(objects) = chart_objects(&values) else {
        return;
    };
    let kinds: Vec<_> = objects
        .iter()
        .filter_map(|one| one["kind"].as_str())
        .collect();
    for kind in ["PrometheusRule", "NetworkPolicy"] {
        assert!(!kinds.contains(&kind), "{kinds:?}");
    }
    let agent = objects
        .iter()
        .find(|one| one["kind"] == "DaemonSet" && one["metadata"]["name"] == "criscope")
        .expect("the agents");
    let pod = &agent["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = container["args"].to_string();
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["name"] == "tls");
    let directory = mount.expect("a mount")["mountPath"].as_str();
    let directory = directory.expect("a path");
    for option in ["--tls-cert", "--tls-key"] {
        assert!(
            arguments.contains(&format!("{option}={directory}/tls.")),
            "{arguments}"
        );
    }
    let volumes = pod["volumes"].as_array().expect("volumes");
    let volume = volumes.iter().find(|volume| volume["name"] == "tls");
    assert_eq!(volume.expect("a volume")["secret"]["secretName"], "agents");
    let monitor = objects.iter().find(|one| one["kind"] == "PodMonitor");
    let tls = &monitor.expect("a monitor")["spec"]["podMetricsEndpoints"][0]["tlsConfig"];
    assert_eq!(tls["ca"]["secret"]["name"], "agents");
    assert!(tls.get("insecureSkipVerify").is_none(), "{tls}");
}

/// The rules under the names of other runtimes are for those who have dashboards with these names.
#[test]
fn the_names_of_other_runtimes_are_opt_in() {
    let kustomization = read("monitoring/kustomization.yaml");
    let all: Value = documents(&kustomization).remove(0);
    let resources = all["resources"].to_string();
    for (_, _, file) in RULES {
        let is_optional = file != "rules.yaml";
        assert_ne!(resources.contains(&format!("\"{file}\"")), is_optional);
        // What is left out is named where one would add it.
        assert!(kustomization.contains(file), "{file}");
    }
}
