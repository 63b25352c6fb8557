//! The shipped dashboards: panels are readable and laid out correctly, queries use existing metrics and, against a real
//! Prometheus, return data.

mod live;
mod panels;
mod trouble;

use self::panels::{Dashboard, Panel, all};
use crate::prelude::*;
use crate::promql::Known;
use crate::rules::file::{alerts, rules};

/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

fn known() -> Known {
    Known::with_rules(&rules()).0
}

fn report(problems: &[String]) {
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn dashboards_have_the_fields_that_grafana_needs() {
    let all = all();
    let uids: Vec<_> = all.iter().map(Dashboard::uid).collect();
    assert_eq!(
        uids,
        ["criscope-fleet", "criscope-node", "criscope-pod-start"]
    );
    for dashboard in all {
        let json = &dashboard.json;
        assert!(
            json["schemaVersion"].as_u64() >= Some(39),
            "{}",
            dashboard.file
        );
        assert!(json.get("id").is_none(), "ids are specific to one Grafana");
        for key in ["title", "description"] {
            assert!(json[key].as_str().is_some_and(|t| !t.is_empty()), "{key}");
        }
        let links = json["links"].to_string();
        assert!(links.contains("/docs/ALERTS.md"), "a link to the runbooks");
        let names: BTreeSet<_> = dashboard.variables().map(|v| v.name).collect();
        assert!(names.contains("datasource") && names.contains("cluster"));
    }
}

#[test]
fn queries_use_existing_metrics() {
    let known = known();
    let mut problems = Vec::new();
    for dashboard in all() {
        for query in dashboard.queries() {
            let place = format!("{}: {}", dashboard.file, query.place);
            match known.check(&query.substituted()) {
                Err(problem) => problems.push(format!("{place}: {problem}\n    {}", query.expr)),
                Ok(labels) => {
                    let strange = query
                        .legend_labels()
                        .into_iter()
                        .find(|l| !labels.contains_key(l));
                    if let Some(label) = strange {
                        problems.push(format!("{place}: the legend shows {label}, of {labels:?}"));
                    }
                }
            }
            for window in query.windows_of_rates() {
                if !["$__rate_interval", "$__range"].contains(&window) {
                    problems.push(format!("{place}: a rate over [{window}]"));
                }
            }
        }
        for variable in dashboard.variables() {
            if let Some(selector) = variable.selector()
                && let Err(problem) = known.check_total(&selector)
            {
                problems.push(format!(
                    "{}: variable {}: {problem}",
                    dashboard.file, variable.name
                ));
            }
        }
    }
    report(&problems);
}

/// Panels have a title, a description and units.
#[test]
fn panels_say_what_they_show() {
    let mut problems = Vec::new();
    for dashboard in all() {
        for panel in dashboard.panels() {
            let mut need = |what: &str, good: bool| {
                if !good {
                    problems.push(format!("{}: {}: {what}", dashboard.file, panel.title()));
                }
            };
            need("a title", !panel.title().is_empty());
            if panel.is_row() {
                continue;
            }
            if panel.is_text() {
                let text = panel.json["options"]["content"].as_str();
                need("a text", text.is_some_and(|text| !text.is_empty()));
                continue;
            }
            need(
                "a description that ends with a full stop",
                panel.text("description").ends_with('.'),
            );
            let unit = &panel.json["fieldConfig"]["defaults"]["unit"];
            need("a unit", unit.as_str().is_some_and(|u| !u.is_empty()));
            need("a query", !panel.targets().is_empty());
            let none = panel.json["fieldConfig"]["defaults"]["noValue"].as_str();
            need(
                "a text that says why there are no values",
                none.is_some_and(|text| !["", "no data"].contains(&text)),
            );
            let ids: BTreeSet<_> = panel
                .targets()
                .iter()
                .map(|t| t["refId"].to_string())
                .collect();
            need("distinct refIds", ids.len() == panel.targets().len());
            if panel.text("type") == "stat" {
                // A range query would show the last value of a series that ended an hour ago.
                let mut targets = panel.targets().iter();
                need(
                    "instant queries",
                    targets.all(|t| t["instant"] == true && t["range"] == false),
                );
                let steps = &panel.json["fieldConfig"]["defaults"]["thresholds"]["steps"];
                need(
                    "thresholds",
                    steps.as_array().is_some_and(|s| !s.is_empty()),
                );
            }
        }
    }
    report(&problems);
}

/// A quantile of nothing is NaN, which Grafana draws as an empty graph. Without it the panel shows its text for missing values.
#[test]
fn quantiles_of_nothing_are_left_out() {
    let mut problems = Vec::new();
    for dashboard in all() {
        for query in dashboard.queries() {
            let is_quantile = query.expr.starts_with("histogram_quantile(");
            if is_quantile && !query.expr.ends_with(" >= 0") {
                problems.push(format!("{}: {}", dashboard.file, query.place));
            }
        }
    }
    report(&problems);
}

/// Who opens a dashboard at night sees first which pods cannot start, and why.
#[test]
fn dashboards_begin_with_pods_in_trouble() {
    for dashboard in all() {
        let first = dashboard.panels().next().expect("a row").title().to_owned();
        assert_eq!(first, "Pods in trouble", "{}", dashboard.file);
        let exprs = dashboard.first_row().into_iter();
        let exprs: Vec<_> = exprs.flat_map(|panel| panel.queries()).collect();
        for part in [
            "by (phase, cause",
            "criscope_pods{state=\"crash_loop\"",
            "max(criscope_pod_start_oldest_open_seconds",
        ] {
            let has = exprs.iter().any(|query| query.expr.contains(part));
            assert!(has, "{}: {part}", dashboard.file);
        }
    }
}

/// criscope's own pages listen on loopback: a link to them leads nowhere.
#[test]
fn no_link_leads_to_a_loopback_page() {
    for dashboard in all() {
        for link in dashboard.json["links"].as_array().into_iter().flatten() {
            let url = link["url"].as_str().expect("url");
            assert!(!url.contains("$node"), "{}: {url}", dashboard.file);
        }
    }
}

#[test]
fn everything_comes_from_the_chosen_data_source() {
    let mut problems = Vec::new();
    for dashboard in all() {
        for (place, source) in dashboard.datasources() {
            let grafana = source["uid"] == "-- Grafana --";
            if !grafana && source != serde_json::json!({"type": "prometheus", "uid": "$datasource"})
            {
                problems.push(format!("{}: {place}: {source}", dashboard.file));
            }
        }
        for panel in dashboard.panels().filter(|p| !p.is_row()) {
            let mut all = panel.targets().iter().chain([panel.json]);
            if !all.all(|part| part["datasource"].is_object()) {
                problems.push(format!(
                    "{}: {}: no data source",
                    dashboard.file,
                    panel.title()
                ));
            }
        }
    }
    report(&problems);
}

#[test]
fn panels_do_not_overlap() {
    let mut problems = Vec::new();
    for dashboard in all() {
        let mut ids = BTreeSet::new();
        let mut taken: Vec<(String, [u64; 4])> = Vec::new();
        for panel in dashboard.panels() {
            let title = panel.title().to_owned();
            if !ids.insert(panel.json["id"].as_u64().expect("id")) {
                problems.push(format!(
                    "{}: {title}: its id is there twice",
                    dashboard.file
                ));
            }
            let [x, y, w, h] = panel.position();
            if w == 0 || h == 0 || x + w > COLUMNS {
                problems.push(format!("{}: {title}: beyond the grid", dashboard.file));
            }
            for (other, [ox, oy, ow, oh]) in &taken {
                if x < ox + ow && *ox < x + w && y < oy + oh && *oy < y + h {
                    problems.push(format!("{}: {title} lies over {other}", dashboard.file));
                }
            }
            taken.push((title, [x, y, w, h]));
        }
    }
    report(&problems);
}

/// The built-in runtime and sessions are part of every dashboard.
#[test]
fn dashboards_show_the_runtime_and_sessions() {
    for dashboard in all() {
        for part in ["runtime_", "stream_"] {
            // From the metric, or from what a rule records of it.
            let names = ["criscope_", "criscope:"].map(|prefix| format!("{prefix}{part}"));
            let mut queries = dashboard.queries().into_iter();
            let has = queries.any(|query| names.iter().any(|name| query.expr.contains(name)));
            assert!(has, "{}: no query of {part}", dashboard.file);
        }
    }
}

/// Duration histograms over time link to traces.
#[test]
fn latency_panels_show_exemplars() {
    let mut with = 0;
    for dashboard in all() {
        for panel in dashboard
            .panels()
            .filter(|p| p.text("type") == "timeseries")
        {
            for target in panel.targets() {
                let expr = target["expr"].as_str().expect("expr");
                let duration = ["criscope_rpc_duration", "criscope_pod_start_duration"];
                let wanted = expr.contains("histogram_quantile")
                    && duration.iter().any(|name| expr.contains(name));
                with += usize::from(wanted);
                assert!(
                    !wanted || target["exemplar"] == true,
                    "{}: {}",
                    dashboard.file,
                    panel.title()
                );
            }
        }
    }
    assert!(with > 10, "only {with}");
}

/// Every runbook is linked from a panel, and links lead to existing runbooks.
#[test]
fn panels_link_to_existing_runbooks() {
    let base = format!("{}/blob/main/docs/runbooks/", env!("CARGO_PKG_REPOSITORY"));
    let named: BTreeSet<_> = alerts().into_iter().filter_map(|r| r.alert).collect();
    let mut linked = BTreeSet::new();
    for dashboard in all() {
        for panel in dashboard.panels() {
            for link in panel.json["links"].as_array().into_iter().flatten() {
                let url = link["url"].as_str().expect("url");
                let page = url.strip_prefix(&base).and_then(|p| p.strip_suffix(".md"));
                let page = page.unwrap_or_else(|| panic!("{url}"));
                assert!(named.contains(page), "{}: {url}", dashboard.file);
                linked.insert(page.to_owned());
            }
        }
    }
    // Five alerts have no panel: three are about the process itself, which may be away, one about certificates, which most nodes have
    // none of, and one about the rollout, which `kubectl criscope status` shows.
    let missing: Vec<_> = named.difference(&linked).collect();
    assert_eq!(
        missing,
        [
            "CriscopeBypassed",
            "CriscopeCertificateExpiring",
            "CriscopeConfigReloadFailed",
            "CriscopeProxyRestarting",
            "CriscopeRolloutStuck"
        ]
    );
}

/// The checks find panels and queries: a dashboard of another shape would pass them vacuously.
#[test]
fn the_checks_find_the_panels() {
    for dashboard in all() {
        let panels: Vec<Panel<'_>> = dashboard.panels().collect();
        let rows = panels.iter().filter(|p| p.is_row()).count();
        assert!(rows >= 4 && panels.len() - rows >= 18, "{}", dashboard.file);
        let text = dashboard.json.to_string();
        let exprs = text.matches("\"expr\":").count();
        assert_eq!(exprs, dashboard.queries().len(), "{}", dashboard.file);
        assert!(!matches!(dashboard.json["panels"], Value::Null));
    }
}
