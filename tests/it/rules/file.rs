//! The shipped rules as data.

use serde::Deserialize;

use crate::harness::yaml;
use crate::prelude::*;

/// A path in this repository.
pub(crate) fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The path of the rules.
pub(crate) fn rules_path() -> PathBuf {
    shipped("deploy/prometheus/criscope.rules.yaml")
}

/// The paths of the optional rules, which record series under the names of other runtimes.
pub(crate) fn names_paths() -> [PathBuf; 2] {
    ["crio", "containerd"].map(|name| shipped(&format!("deploy/prometheus/{name}.rules.yaml")))
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
    name: String,
    interval: String,
    rules: Vec<Rule>,
}

/// A rule; exactly one of `record` and `alert` is set.
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

/// All rules, in order of evaluation.
pub(crate) fn rules() -> Vec<Rule> {
    rules_of(&rules_path())
}

/// The optional rules.
pub(crate) fn names_rules() -> Vec<Rule> {
    names_paths()
        .iter()
        .flat_map(|path| rules_of(path))
        .collect()
}

fn rules_of(path: &Path) -> Vec<Rule> {
    let file: RuleFile = serde_json::from_value(yaml::read(path)).expect("rules");
    for group in &file.groups {
        // The factor of `criscope:slo_bad:increase*` is the interval.
        let counts = group.rules.iter().any(|rule| rule.expr.contains("]) * 30"));
        let allowed: &[&str] = if counts { &["30s"] } else { &["30s", "1m"] };
        let interval = group.interval.as_str();
        assert!(allowed.contains(&interval), "{}: {interval}", group.name);
    }
    file.groups.into_iter().flat_map(|g| g.rules).collect()
}

/// Only the alerts.
pub(crate) fn alerts() -> Vec<Rule> {
    rules().into_iter().filter(|r| r.alert.is_some()).collect()
}

/// The factor by which tests speed up the rules. Not more, so that a machine that is busy for a second or two does not
/// look like a fault.
const SCALE: f64 = 30.0;

/// Scrape and evaluation interval in tests.
pub(crate) const INTERVAL: Duration = Duration::from_millis((30_000.0 / SCALE) as u64);

/// The shortest window, in seconds: it must contain several scrapes.
const LEAST_WINDOW: f64 = 10.0;

/// The longest `for` of an alert, in seconds: waiting longer shows nothing new.
const MOST_WAIT: f64 = 10.0;

/// Ages that expressions compare with, which are shortened too: the age in seconds, and its number of occurrences.
const AGES: [(f64, usize); 2] = [(120.0, 1), (900.0, 2)];

/// The shipped rules as they are, except that a minute takes two seconds.
pub(crate) fn scaled() -> String {
    let text = fs::read_to_string(rules_path()).expect("rules");
    let mut out = String::new();
    for line in text.lines() {
        let line = match line.trim_start().split_once(": ") {
            Some(("interval", _)) => format!("    interval: {}ms", INTERVAL.as_millis()),
            Some(("for", time)) => {
                let wait = (seconds(time) / SCALE).min(MOST_WAIT);
                format!("        for: {}ms", (wait * 1000.0) as u64)
            }
            _ => scale_windows(line),
        };
        out.push_str(&line);
        out.push('\n');
    }
    // A count is a rate times the interval of its rule.
    let counts = out.matches("]) * 30\n").count();
    assert_eq!(counts, 4);
    out = out.replace("]) * 30\n", &format!("]) * {}\n", INTERVAL.as_secs_f64()));
    for (age, count) in AGES {
        let [age, shorter] = [age, age / SCALE].map(|age| format!(" > {age}\n"));
        assert_eq!(out.matches(&age).count(), count, "{age}");
        out = out.replace(&age, &shorter);
    }
    out
}

/// The optional rules in one file, for this name of the built-in runtime, with a minute that takes two seconds.
pub(crate) fn scaled_names(backend: &str) -> String {
    let mut out = "groups:\n".to_owned();
    for path in names_paths() {
        let text = fs::read_to_string(path).expect("rules");
        let (_, groups) = text.split_once("groups:\n").expect("groups");
        for line in groups.lines() {
            let line = line.replace("backend=\"builtin\"", &format!("backend=\"{backend}\""));
            let line = line.replace(
                "interval: 30s",
                &format!("interval: {}ms", INTERVAL.as_millis()),
            );
            out.push_str(&scale_windows(&line));
            out.push('\n');
        }
    }
    out
}

fn scale_windows(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('[') {
        let (window, after) = after.split_once(']').expect("a closed bracket");
        let scaled = (seconds(window) / SCALE).max(LEAST_WINDOW);
        out.push_str(&format!("{before}[{}s]", scaled as u64));
        rest = after;
    }
    out + rest
}

fn seconds(time: &str) -> f64 {
    let (number, unit) = time.split_at(time.len() - 1);
    let unit = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        other => panic!("{other} of {time} is no unit of time"),
    };
    number.parse::<f64>().expect(time) * unit
}
