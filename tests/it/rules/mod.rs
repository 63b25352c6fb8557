//! The shipped rules: promtool accepts them, their unit tests pass and are complete, their queries use metrics of the
//! catalogue, and every alert has a runbook.

pub(crate) mod file;

use criscope::catalogue::CATALOGUE;

use self::file::{Rule, alerts, names_paths, names_rules, rules, rules_path, shipped};
use crate::harness::yaml;
use crate::prelude::*;
use crate::promql::Known;

const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];

fn promtool(args: &[&str], files: &[PathBuf]) {
    let output = Command::new(program("promtool", "prometheus"))
        .args(args)
        .args(files)
        .output()
        .expect("start promtool");
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let paths = entries.map(|entry| entry.expect("entry").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    paths.sort();
    paths
}

fn test_files() -> Vec<PathBuf> {
    files(&shipped("deploy/prometheus/tests"), ".yaml")
}

/// Name and labels of an alert: alerts of the same name differ in their windows.
type Identity = (String, BTreeSet<(String, String)>);

fn identity(rule: &Rule) -> Identity {
    let labels = rule.labels.iter();
    let labels = labels.map(|(name, value)| (name.clone(), value.clone()));
    (rule.alert.clone().expect("an alert"), labels.collect())
}

/// All entries under this key in the tests of all files.
fn all_of(key: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for path in test_files() {
        let file = yaml::read(&path);
        for test in file["tests"].as_array().expect("tests") {
            all.extend(test[key].as_array().into_iter().flatten().cloned());
        }
    }
    all
}

#[test]
fn promtool_accepts_the_rules() {
    let mut rules = vec![rules_path()];
    rules.extend(names_paths());
    promtool(&["check", "rules", "--lint=all", "--lint-fatal"], &rules);
    promtool(
        &["check", "config", "--syntax-only"],
        &[shipped("deploy/prometheus/prometheus.yaml")],
    );
}

#[test]
fn the_unit_tests_of_the_rules_pass() {
    promtool(&["test", "rules"], &test_files());
}

#[test]
fn every_alert_is_tested_firing_and_not_firing() {
    let tests = all_of("alert_rule_test");
    let mut silent = BTreeSet::new();
    let mut firing = Vec::new();
    for test in &tests {
        let name = test["alertname"].as_str().expect("alertname");
        let expected = test["exp_alerts"].as_array().expect("exp_alerts");
        if expected.is_empty() {
            silent.insert(name.to_owned());
        }
        for alert in expected {
            let labels = alert["exp_labels"].as_object().expect("exp_labels");
            firing.push((name.to_owned(), labels.clone()));
        }
    }
    for rule in alerts() {
        let (name, labels) = identity(&rule);
        assert!(silent.contains(&name), "{name} is never expected silent");
        let has = firing.iter().any(|(firing, with)| {
            *firing == name
                && labels
                    .iter()
                    .all(|(k, v)| with.get(k).is_some_and(|w| w == v))
        });
        assert!(has, "{name} {labels:?} is never expected to fire");
    }
}

#[test]
fn every_recorded_value_is_tested() {
    let tests = all_of("promql_expr_test");
    let asked = |rule: &Rule, name: &str| {
        tests.iter().any(|test| {
            let expr = test["expr"].as_str().expect("expr");
            let samples = test["exp_samples"].as_array().expect("exp_samples");
            let names = expr.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
            names.into_iter().any(|n| n == name)
                && rule
                    .labels
                    .iter()
                    .all(|(label, value)| expr.contains(&format!("{label}=\"{value}\"")))
                && !samples.is_empty()
        })
    };
    for rule in rules().into_iter().chain(names_rules()) {
        if let Some(name) = &rule.record {
            let labels = &rule.labels;
            assert!(asked(&rule, name), "no test asks for {name} {labels:?}");
        }
    }
}

/// Rules use metrics of the catalogue and of targets, or series recorded by earlier rules.
#[test]
fn the_rules_use_existing_metrics() {
    for rules in [rules(), names_rules()] {
        let (_, problems) = Known::with_rules(&rules);
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

/// The optional rules only rename: without an alert, and under no name that criscope itself has.
#[test]
fn names_of_other_runtimes_are_only_recorded() {
    let own: BTreeSet<_> = CATALOGUE.iter().map(|metric| metric.full_name()).collect();
    for rule in names_rules() {
        let name = rule.record.expect("a recording rule");
        assert!(!own.contains(&name), "{name}");
        let documented = fs::read_to_string(shipped("docs/ALERTS.md")).expect("page");
        let base = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(&name);
        let is_listed = name.starts_with("criscope:") || documented.contains(&format!("`{base}`"));
        assert!(is_listed, "{base} in docs/ALERTS.md");
    }
}

#[test]
fn alerts_have_summary_description_and_runbook() {
    let mut seen = BTreeSet::new();
    for rule in alerts() {
        let (name, labels) = identity(&rule);
        assert!(name.starts_with("Criscope"), "{name}");
        assert!(seen.insert((name.clone(), labels)), "{name} is there twice");
        assert!(
            rule.hold.is_some(),
            "{name}: a single bad scrape is no alert"
        );
        let severity = rule.labels.get("severity").map(String::as_str);
        assert!(
            severity.is_some_and(|s| SEVERITIES.contains(&s)),
            "{name}: {severity:?}"
        );
        let keys: Vec<_> = rule.annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["description", "runbook_url", "summary"], "{name}");
        let page = format!(
            "{}/blob/main/docs/runbooks/{name}.md",
            env!("CARGO_PKG_REPOSITORY")
        );
        assert_eq!(rule.annotations["runbook_url"], page);
        for text in ["summary", "description"] {
            assert!(rule.annotations[text].ends_with('.'), "{name}: {text}");
        }
    }
}

/// The sections of a page, in this order.
const SECTIONS: [&str; 6] = [
    "## What it means",
    "## What users feel",
    "## First look",
    "## Likely causes",
    "## What to do",
    "## Silencing it",
];

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let named: BTreeSet<_> = alerts().into_iter().filter_map(|r| r.alert).collect();
    let pages: BTreeSet<_> = files(&shipped("docs/runbooks"), ".md")
        .iter()
        .map(|path| {
            path.file_stem()
                .expect("name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(named, pages, "alerts (left) and pages (right)");

    let index = fs::read_to_string(shipped("docs/ALERTS.md")).expect("docs/ALERTS.md");
    for name in &named {
        let path = shipped(&format!("docs/runbooks/{name}.md"));
        let text = fs::read_to_string(&path).expect("page");
        assert!(text.starts_with(&format!("# {name}\n")), "{name}: title");
        let sections: Vec<_> = text.lines().filter(|l| l.starts_with("## ")).collect();
        assert_eq!(sections, SECTIONS, "{name}");
        assert!(
            index.contains(&format!("(runbooks/{name}.md)")),
            "{name} in docs/ALERTS.md"
        );
    }
}

/// Who is paged is rarely on the node: the first commands of a page go through the API server.
#[test]
fn runbooks_begin_with_the_plugin_of_kubectl() {
    for path in files(&shipped("docs/runbooks"), ".md") {
        let text = fs::read_to_string(&path).expect("page");
        let (_, look) = text.split_once("## First look\n\n").expect("a section");
        assert!(
            look.starts_with("```sh\nkubectl criscope "),
            "{}",
            path.display()
        );
    }
}

/// Texts of alerts begin with the node that they are about.
#[test]
fn alerts_name_the_node() {
    for rule in alerts() {
        let name = rule.alert.expect("a name");
        let summary = &rule.annotations["summary"];
        let labels = "Node {{ $labels.instance }}: ";
        let is_named = summary.starts_with(labels)
            || summary.starts_with("{{ with $labels.instance }}Node {{ . }}: ")
            || summary.contains("Node {{ . | first | label \"instance\" }}");
        assert!(is_named, "{name}: {summary}");
    }
}

/// Queries in the runbooks use existing metrics.
#[test]
fn queries_in_the_runbooks_use_existing_metrics() {
    let (known, _) = Known::with_rules(&rules());
    let mut problems = Vec::new();
    let mut count = 0;
    for path in files(&shipped("docs/runbooks"), ".md") {
        let text = fs::read_to_string(&path).expect("page");
        for block in text.split("```promql\n").skip(1) {
            let (query, _) = block.split_once("```").expect("the end of a block");
            count += 1;
            if let Err(problem) = known.check(query) {
                problems.push(format!("{}: {query}: {problem}", path.display()));
            }
        }
    }
    assert!(count > 10, "only {count} queries");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
