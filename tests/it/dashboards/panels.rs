//! The dashboards as data.

use crate::prelude::*;
use crate::rules::file::shipped;

/// One dashboard.
pub(super) struct Dashboard {
    /// The name of its file.
    pub(super) file: String,
    pub(super) json: Value,
}

/// A panel or a row.
pub(super) struct Panel<'a> {
    pub(super) json: &'a Value,
}

/// A query to Prometheus.
pub(super) struct Query {
    /// The panel it belongs to.
    pub(super) place: String,
    pub(super) expr: String,
    legend: String,
    /// Whether it is an instant query.
    pub(super) instant: bool,
}

/// A template variable.
pub(super) struct Variable<'a> {
    pub(super) name: &'a str,
    query: Option<&'a str>,
}

/// All dashboards, sorted by file name.
pub(super) fn all() -> Vec<Dashboard> {
    let entries = fs::read_dir(shipped("dashboards")).expect("dashboards");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("read");
        let json = serde_json::from_str(&text);
        Dashboard {
            file: path
                .file_name()
                .expect("name")
                .to_string_lossy()
                .into_owned(),
            json: json.unwrap_or_else(|e| panic!("{}: {e}", path.display())),
        }
    };
    paths.into_iter().map(read).collect()
}

fn text<'a>(json: &'a Value, key: &str) -> &'a str {
    json[key].as_str().unwrap_or_default()
}

fn items(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

impl Dashboard {
    pub(super) fn uid(&self) -> &str {
        text(&self.json, "uid")
    }

    /// Panels and rows, including those in collapsed rows.
    pub(super) fn panels(&self) -> impl Iterator<Item = Panel<'_>> {
        let top = items(&self.json["panels"]);
        top.flat_map(|panel| std::iter::once(panel).chain(items(&panel["panels"])))
            .map(|json| Panel { json })
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = Variable<'_>> {
        items(&self.json["templating"]["list"]).map(|json| Variable {
            name: text(json, "name"),
            query: json["query"]["query"].as_str(),
        })
    }

    /// The panels of the first row.
    pub(super) fn first_row(&self) -> Vec<Panel<'_>> {
        let below = self.panels().skip(1);
        below.take_while(|panel| !panel.is_row()).collect()
    }

    /// The queries of panels and annotations.
    pub(super) fn queries(&self) -> Vec<Query> {
        let of_panels = self.panels().flat_map(|panel| panel.queries());
        let annotations = items(&self.json["annotations"]["list"]);
        let of_annotations = annotations
            .filter(|a| a["expr"].is_string())
            .map(|a| query("annotation", a, "textFormat"));
        of_panels.chain(of_annotations).collect()
    }

    /// Every reference to a data source, with its position.
    pub(super) fn datasources(&self) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        collect(&self.json, "", &mut found);
        found
    }
}

fn query(place: &str, json: &Value, legend: &str) -> Query {
    Query {
        place: place.to_owned(),
        expr: text(json, "expr").to_owned(),
        legend: text(json, legend).to_owned(),
        instant: json["instant"] == true,
    }
}

fn collect(json: &Value, place: &str, found: &mut Vec<(String, Value)>) {
    match json {
        Value::Object(map) => {
            for (key, value) in map {
                let place = format!("{place}/{key}");
                if key == "datasource" {
                    found.push((place, value.clone()));
                } else {
                    collect(value, &place, found);
                }
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                collect(value, &format!("{place}/{i}"), found);
            }
        }
        _ => {}
    }
}

impl Panel<'_> {
    pub(super) fn text(&self, key: &str) -> &str {
        text(self.json, key)
    }

    pub(super) fn title(&self) -> &str {
        self.text("title")
    }

    pub(super) fn is_row(&self) -> bool {
        self.text("type") == "row"
    }

    /// Returns whether it is a text, without data.
    pub(super) fn is_text(&self) -> bool {
        self.text("type") == "text"
    }

    /// Its queries.
    pub(super) fn queries(&self) -> Vec<Query> {
        let targets = self.targets().iter();
        let queries = targets.map(|target| query(self.title(), target, "legendFormat"));
        queries.collect()
    }

    pub(super) fn targets(&self) -> &[Value] {
        self.json["targets"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Column, line, width and height.
    pub(super) fn position(&self) -> [u64; 4] {
        ["x", "y", "w", "h"].map(|key| self.json["gridPos"][key].as_u64().expect(key))
    }
}

impl Variable<'_> {
    /// The selector of `label_values(SELECTOR, LABEL)`, with a matcher that asks for the label.
    pub(super) fn selector(&self) -> Option<String> {
        let inner = self
            .query?
            .strip_prefix("label_values(")?
            .strip_suffix(')')?;
        let (selector, label) = inner.rsplit_once(", ")?;
        let selector = selector.strip_suffix('}').map_or_else(
            || format!("{selector}{{"),
            |selector| format!("{selector}, "),
        );
        Some(substitute(&format!("{selector}{label}=~\".*\"}}")))
    }
}

impl Query {
    /// The same query for one node.
    pub(super) fn on_node(mut self, node: &str) -> Self {
        self.expr = self.expr.replace("$node", node);
        self
    }

    /// The query as sent to Prometheus, with all variables substituted.
    pub(super) fn substituted(&self) -> String {
        substitute(&self.expr)
    }

    /// The labels that the legend shows.
    pub(super) fn legend_labels(&self) -> Vec<String> {
        let parts = self.legend.split("{{").skip(1);
        let labels = parts.filter_map(|part| part.split_once("}}"));
        labels.map(|(label, _)| label.trim().to_owned()).collect()
    }

    /// The windows of rates over counters.
    pub(super) fn windows_of_rates(&self) -> Vec<&str> {
        let calls = ["rate(", "increase("];
        let starts = calls.iter().flat_map(|call| self.expr.match_indices(call));
        starts
            .filter_map(|(at, _)| {
                let (_, rest) = self.expr[at..].split_once('[')?;
                Some(rest.split_once(']')?.0)
            })
            .collect()
    }
}

fn substitute(expr: &str) -> String {
    let values = [
        ("$__rate_interval", "30s"),
        ("$__range", "10m"),
        ("$cluster", ".*"),
        ("$node", ".*"),
        ("$method", ".*"),
    ];
    let expr = values.iter().fold(expr.to_owned(), |expr, (name, value)| {
        expr.replace(name, value)
    });
    assert!(!expr.contains('$'), "a variable is left in {expr}");
    expr
}
