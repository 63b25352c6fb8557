//! The shipped rules as data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::harness::yaml;

/// A path in this repository.
pub(crate) fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where the rules stand.
pub(crate) fn rules_path() -> PathBuf {
    shipped("deploy/prometheus/criscope.rules.yaml")
}

/// A file of rules, as Prometheus reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "name")]
    _name: String,
    interval: String,
    rules: Vec<Rule>,
}

/// One rule; exactly one of `record` and `alert` is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    #[serde(rename = "for")]
    pub(crate) hold: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// All rules, in the order in which they are evaluated.
pub(crate) fn rules() -> Vec<Rule> {
    let file: RuleFile = serde_json::from_value(yaml::read(&rules_path())).expect("rules");
    // The factor of `criscope:slo_bad:increase*` is this interval.
    for group in &file.groups {
        assert_eq!(group.interval, "30s");
    }
    file.groups.into_iter().flat_map(|g| g.rules).collect()
}

/// Only the alerts.
pub(crate) fn alerts() -> Vec<Rule> {
    rules().into_iter().filter(|r| r.alert.is_some()).collect()
}
