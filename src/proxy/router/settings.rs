//! `[routing]`

use std::collections::HashMap;

use crate::settings::value::{BackendName, RuntimeClassHandler};
use crate::settings::{
    ConfigProblem, GivenValue, SettingKey, SettingsReader, TableScope, ValuePlace, ValueSuggestion,
    settings,
};

settings! {
    /// Which backend serves which call. Not needed with one backend.
    pub struct RoutingSettings in "routing" (implied: &str, names: &[&str]) {
        /// The backend of every call that no rule matches.
        default: String = implied.to_owned(), BackendName,
            or "the only backend; required if there are several" like "\"containerd\"";
        /// The backend of the image service.
        images: String = default.clone(), BackendName, or "that of `routing.default`" like "\"containerd\"";
    }
    parts {
        /// The first match wins.
        rules: Vec<RoutingRuleSettings> = |reader| rules(reader, names);
    }
}

settings! {
    /// Rules by runtime handler, written `[[routing.rules]]`. The first match wins. Beside the built-in runtime, they send
    /// pods of Kata Containers, gVisor and runwasi to a containerd.
    pub struct RoutingRuleSettings in "routing.rules[]" {
        /// The handler of the pod's RuntimeClass.
        runtime_handler: String = String::new(), RuntimeClassHandler, or required like "\"kata\"";
        /// The backend of its pods.
        backend: String = String::new(), BackendName, or required like "\"containerd\"";
    }
}

/// Reads the section; `names` are those of the backends, the last of them that of `--upstream` if `flag` is its name.
pub(crate) fn read(
    reader: &mut SettingsReader<'_>,
    names: &[&str],
    flag: Option<&str>,
) -> RoutingSettings {
    let scope = reader.section("routing");
    let implied = implied_default(reader, &scope, names, flag);
    let routing = RoutingSettings::read_at(reader, &scope, &implied, names);
    for key in [&RoutingSettings::default, &RoutingSettings::images] {
        check_backend(reader, &scope, key, names);
    }
    routing
}

fn quoted<'a>(names: impl Iterator<Item = &'a &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

/// The default if `routing.default` is not set.
fn implied_default(
    reader: &mut SettingsReader<'_>,
    scope: &TableScope<'_>,
    names: &[&str],
    flag: Option<&str>,
) -> String {
    match (names, flag) {
        ([only], _) => return (*only).to_owned(),
        _ if scope.has(&RoutingSettings::default) => {}
        (_, Some(flag)) => {
            let others = quoted(names.iter().filter(|name| **name != flag));
            let problem = format!(
                "adds the backend {flag:?} to {others}, and routing.default does not say which one is the default; set routing.default, or change the endpoint in the file instead"
            );
            reader.fail(
                ValuePlace::Flag("--upstream"),
                "",
                ConfigProblem::Conflict(problem),
            );
        }
        _ => {
            let problem = format!(
                "missing; name the default among the backends: {}",
                quoted(names.iter())
            );
            reader.fail_at(
                scope,
                &RoutingSettings::default,
                ConfigProblem::Conflict(problem),
            );
        }
    }
    String::new()
}

/// Reports an unknown backend name.
fn check_backend<'d>(
    reader: &mut SettingsReader<'d>,
    scope: &TableScope<'d>,
    key: &SettingKey<String>,
    names: &[&str],
) {
    let Some(GivenValue { value: name, .. }) = reader.given(scope, key) else {
        return;
    };
    if !names.contains(&name.as_str()) {
        let hint = ValueSuggestion::among(&name, names);
        let problem = format!("there is no backend {name:?}; {hint}");
        reader.fail_at(scope, key, ConfigProblem::Conflict(problem));
    }
}

fn rules(reader: &mut SettingsReader<'_>, names: &[&str]) -> Vec<RoutingRuleSettings> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut rules = Vec::new();
    for row in reader.rows("routing", "rules") {
        let key = &RoutingRuleSettings::runtime_handler;
        rules.push(RoutingRuleSettings::read_at(reader, &row));
        check_backend(reader, &row, &RoutingRuleSettings::backend, names);
        let Some(handler) = reader.given(&row, key) else {
            continue;
        };
        if let Some(line) = lines.get(&handler.value) {
            let problem = format!(
                "the handler {:?} already has a rule on line {line}; the first match wins",
                handler.value
            );
            reader.fail_at(&row, key, ConfigProblem::Conflict(problem));
        } else if let ValuePlace::Line { line, .. } = handler.place {
            lines.insert(handler.value, line);
        }
    }
    rules
}
