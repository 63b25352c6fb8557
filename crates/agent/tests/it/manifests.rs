//! `deploy/kubernetes`: every object is one that API servers accept, and everything generated follows from its source.
//! `UPDATE_DOCS=1 cargo test -p criscope-agent manifests` writes what is generated.

use std::fs;
use std::path::Path;

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

/// Files that the chart has as they are, and the switch of each. They are full of braces of their own, which Helm must not read.
const FILES: [(&str, &str); 4] = [
    ("rules.yaml", "monitoring"),
    ("crio-rules.yaml", "names.crio"),
    ("containerd-rules.yaml", "names.containerd"),
    ("dashboards.yaml", "monitoring"),
];

/// The templates of the chart: source, template, and whether only with monitoring. The agents' namespace is Helm's, that of the
/// installers is the chart's.
const TEMPLATES: [(&str, &str, bool); 8] = [
    ("base/agent/rbac.yaml", "rbac.yaml", false),
    ("base/agent/networkpolicy.yaml", "networkpolicy.yaml", false),
    ("base/agent/daemonset.yaml", "daemonset.yaml", false),
    (
        "base/install/namespace.yaml",
        "install-namespace.yaml",
        false,
    ),
    ("base/install/rbac.yaml", "install-rbac.yaml", false),
    (
        "base/install/daemonset.yaml",
        "install-daemonset.yaml",
        false,
    ),
    (
        "monitoring/prometheus-account.yaml",
        "prometheus-account.yaml",
        true,
    ),
    ("monitoring/podmonitor.yaml", "podmonitor.yaml", true),
];

/// Text of the source, and of the template in its place.
const VALUES: [(&str, &str); 10] = [
    (
        "namespace: criscope\n",
        "namespace: {{ .Release.Namespace }}\n",
    ),
    (
        "namespace: criscope-node\n",
        "namespace: {{ .Release.Namespace }}-node\n",
    ),
    (
        "name: criscope-node\n",
        "name: {{ .Release.Namespace }}-node\n",
    ),
    (
        concat!(
            "image: ghcr.io/criscope/criscope:",
            env!("CARGO_PKG_VERSION"),
            "\n"
        ),
        "image: {{ .Values.image.repository }}:{{ .Values.image.tag }}\n",
    ),
    ("args: []\n", "args: {{ toJson .Values.install.args }}\n"),
    ("--events=true\n", "--events={{ .Values.events }}\n"),
    ("--slow=5\n", "--slow={{ .Values.slow }}\n"),
    (
        "--expect=ready]\n",
        "--expect={{ .Values.install.expect }}]\n",
    ),
    (
        "nodeSelector: {kubernetes.io/os: linux}\n",
        "nodeSelector: {{ toJson .Values.nodeSelector }}\n",
    ),
    (
        "tolerations: [{operator: Exists}]\n",
        "tolerations: {{ toJson .Values.tolerations }}\n",
    ),
];

/// What Helm makes of expressions with the default values.
fn rendered(template: &str, values: &Value) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, expression)) = rest.split_once("{{") {
        let (expression, after) = expression.split_once("}}").expect("an end");
        text += before;
        let expression = expression.trim_matches('-').trim();
        let path = expression.strip_prefix("toJson ").unwrap_or(expression);
        text += &match path.strip_prefix(".Values.") {
            Some(path) => {
                let found = path.split('.').fold(values, |it, key| &it[key]);
                assert!(!found.is_null(), "values.yaml has no {path}");
                match (found, expression == path) {
                    (Value::String(text), _) => text.clone(),
                    (other, _) => other.to_string(),
                }
            }
            None if path == ".Release.Namespace" => "criscope".to_owned(),
            None => {
                assert!(path == "end" || path == "if .Values.monitoring", "{path}");
                String::new()
            }
        };
        rest = after;
    }
    text + rest
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
    let line = |line: &str| match line.is_empty() {
        true => "\n".to_owned(),
        false => format!("{:by$}{line}\n", ""),
    };
    text.lines().map(line).collect()
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
fn the_rollout_stops_at_the_first_unhealthy_node() {
    let set: DaemonSet = parse(documents(&read("base/install/daemonset.yaml")).remove(0));
    let spec = set.spec.expect("a spec");
    let update = spec.update_strategy.expect("a strategy");
    let update = update.rolling_update.expect("rolling");
    let unavailable = serde_json::to_value(update.max_unavailable);
    assert_eq!(unavailable.expect("JSON"), 1);
    assert!(spec.min_ready_seconds.is_some_and(|seconds| seconds >= 10));
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
                    || !["get", "list", "watch"].iter().any(|it| reads.contains(it)),
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
    let values: Value = documents(&read("chart/values.yaml")).remove(0);
    for (source, template, is_monitoring) in TEMPLATES {
        let source = read(source);
        let replaced = VALUES
            .iter()
            .fold(source.clone(), |text, (from, to)| text.replace(from, to));
        let text = if is_monitoring {
            format!("{{{{- if .Values.monitoring }}}}\n{replaced}{{{{- end }}}}\n")
        } else {
            replaced
        };
        generated(&manifests().join("chart/templates").join(template), &text);
        assert_eq!(
            documents(rendered(&text, &values).trim()),
            documents(source.trim()),
            "{template}"
        );
    }
    for (file, switch) in FILES {
        let found = switch.split('.').fold(&values, |it, key| &it[key]);
        assert_eq!(found, false, "{switch} must be off by default");
        let text = format!(
            "{{{{- if .Values.{switch} }}}}\n{{{{ .Files.Get \"files/{file}\" }}}}\n{{{{- end }}}}\n"
        );
        generated(&manifests().join("chart/templates").join(file), &text);
        let linked = manifests().join("chart/files").join(file);
        let target = fs::read_link(&linked).expect("a link");
        assert_eq!(target, Path::new("../../monitoring").join(file));
    }
    let all: String = TEMPLATES.iter().map(|(source, ..)| read(source)).collect();
    for (from, _) in VALUES {
        assert!(all.contains(from), "{from:?} is in no source");
    }
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
