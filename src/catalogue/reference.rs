//! `docs/METRICS.md`, generated from the declarations.

use std::fmt::Write as _;

use super::CATALOGUE;
use crate::telemetry::metric::{
    DEFAULT_HANDLER, MetricKind, OTHER_HANDLERS, SEVERAL_BACKENDS, Values,
};

/// `docs/METRICS.md`.
pub fn reference_markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         <!-- Generated from the declarations `metrics!`. To rewrite: UPDATE_DOCS=1 cargo test --lib catalogue -->\n\n\
         `GET /metrics` serves these in the Prometheus text format 0.0.4, or in OpenMetrics 1.0.0 to who asks for it in\n\
         `Accept`, as Prometheus does. A series appears when it is first used. Pods, containers, images and ids are never\n\
         labels: logs, spans and debug pages carry them.\n\n\
         In OpenMetrics the name of a bucket is written as Prometheus 3 writes it, `le=\"1.0\"`; a query for one bucket that\n\
         is to work with both formats asks for `le=~\"1(\\\\.0)?\"`.\n\n\
         | metric | type | unit | labels | help |\n|---|---|---|---|---|\n",
    );
    for metric in CATALOGUE.iter() {
        let labels: Vec<_> = metric
            .labels
            .iter()
            .map(|l| format!("`{}`", l.name))
            .collect();
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            metric.full_name(),
            metric.kind.name(),
            metric.unit.name(),
            labels.join(", "),
            metric.help
        );
    }
    out.push_str("\n## Labels\n\n| label | on | values |\n|---|---|---|\n");
    for (name, values, metrics) in labels() {
        let on = match &metrics[..] {
            [metric] => format!("`{metric}`"),
            _ => "several".to_owned(),
        };
        let _ = writeln!(out, "| `{name}` | {on} | {values} |");
    }
    out.push_str("\n## Buckets\n\n");
    for metric in CATALOGUE.iter().filter(|m| m.kind == MetricKind::Histogram) {
        let bounds: Vec<_> = metric.buckets.iter().map(f64::to_string).collect();
        let _ = writeln!(out, "- `{}`: {}", metric.full_name(), bounds.join(" "));
    }
    out.push_str(
        "\n## Exemplars\n\nIn OpenMetrics, the buckets of these lead to the trace of the last call in them that was exported. Prometheus keeps\n\
         them with `--enable-feature=exemplar-storage`.\n\n",
    );
    for metric in CATALOGUE.iter().filter(|m| m.exemplars) {
        let _ = writeln!(out, "- `{}`", metric.full_name());
    }
    out
}

/// Each label with its values and the metrics that have them.
fn labels() -> Vec<(&'static str, String, Vec<String>)> {
    let mut labels: Vec<(&'static str, String, Vec<String>)> = Vec::new();
    for metric in CATALOGUE.iter() {
        for label in metric.labels {
            let values = values(label.values);
            let known = labels
                .iter_mut()
                .find(|(name, v, _)| *name == label.name && *v == values);
            match known {
                Some((_, _, metrics)) => metrics.push(metric.full_name()),
                None => labels.push((label.name, values, vec![metric.full_name()])),
            }
        }
    }
    labels
}

fn values(values: Values) -> String {
    match values {
        Values::Fixed(names) => {
            let quoted: Vec<_> = names.iter().map(|n| format!("`{n}`")).collect();
            quoted.join(" ")
        }
        Values::Backends => format!(
            "the backends of the configuration, and `{SEVERAL_BACKENDS}` for a call that went to several"
        ),
        Values::Handlers => format!(
            "the runtime handlers that the routing rules name, `{DEFAULT_HANDLER}` for none, and `{OTHER_HANDLERS}`"
        ),
        Values::One(what) => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_reference_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/METRICS.md");
        let wanted = reference_markdown();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(path.parent().expect("docs")).expect("docs");
            std::fs::write(&path, &wanted).expect("docs/METRICS.md");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            found, wanted,
            "run UPDATE_DOCS=1 cargo test --lib catalogue"
        );
    }
}
