//! The part of the OpenMetrics text format 1.0.0 that our metrics need
//! (<https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md>).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use prometheus::proto::{Histogram, Metric, MetricFamily, MetricType};

use super::exemplars::{Exemplar, HistogramExemplars};

/// `Content-Type` of this format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Exemplars by full metric name.
pub type ExemplarsByName = HashMap<String, Arc<HistogramExemplars>>;

/// Encodes families with their exemplars.
pub fn encode(families: &[MetricFamily], exemplars: &ExemplarsByName) -> String {
    let mut out = String::with_capacity(64 << 10);
    for family in families {
        // Writing to a String cannot fail.
        let _ = write_family(&mut out, family, exemplars.get(family.name()));
    }
    out.push_str("# EOF\n");
    out
}

fn write_family(
    out: &mut String,
    family: &MetricFamily,
    exemplars: Option<&Arc<HistogramExemplars>>,
) -> fmt::Result {
    let (kind, name) = match family.get_field_type() {
        // The name of a counter's family lacks the `_total` of its samples.
        MetricType::COUNTER => (
            "counter",
            family
                .name()
                .strip_suffix("_total")
                .unwrap_or(family.name()),
        ),
        MetricType::HISTOGRAM => ("histogram", family.name()),
        MetricType::GAUGE => ("gauge", family.name()),
        _ => ("unknown", family.name()),
    };
    writeln!(out, "# TYPE {name} {kind}")?;
    if let Some(unit) = unit(name) {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    writeln!(out, "# HELP {name} {}", escaped(family.help()))?;
    for metric in family.get_metric() {
        match family.get_field_type() {
            MetricType::COUNTER => {
                let value = metric.get_counter().get_value();
                write_sample(out, name, "_total", metric, value)?;
            }
            MetricType::HISTOGRAM => {
                let exemplars = exemplars.map_or_else(Vec::new, |all| all.for_series(metric));
                write_histogram(out, name, metric, &exemplars)?;
            }
            _ => write_sample(out, name, "", metric, metric.get_gauge().get_value())?,
        }
    }
    Ok(())
}

/// Returns the unit of a metric, which the specification requires as a suffix of the family name.
pub(super) fn unit(family: &str) -> Option<&'static str> {
    ["seconds", "bytes"].into_iter().find(|unit| {
        family
            .strip_suffix(unit)
            .is_some_and(|name| name.ends_with('_'))
    })
}

fn write_sample(
    out: &mut String,
    name: &str,
    suffix: &str,
    metric: &Metric,
    value: f64,
) -> fmt::Result {
    write!(out, "{name}{suffix}")?;
    write_labels(out, metric, None)?;
    writeln!(out, " {}", number(value))
}

fn write_histogram(
    out: &mut String,
    name: &str,
    metric: &Metric,
    exemplars: &[Option<Exemplar>],
) -> fmt::Result {
    let histogram: &Histogram = metric.get_histogram();
    let bounded = histogram
        .get_bucket()
        .iter()
        .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    let last = (f64::INFINITY, histogram.get_sample_count());
    for (i, (bound, count)) in bounded.chain([last]).enumerate() {
        write!(out, "{name}_bucket")?;
        write_labels(out, metric, Some(bound))?;
        write!(out, " {count}")?;
        if let Some(Some(exemplar)) = exemplars.get(i) {
            write_exemplar(out, exemplar)?;
        }
        out.push('\n');
    }
    write!(out, "{name}_sum")?;
    write_labels(out, metric, None)?;
    writeln!(out, " {}", number(histogram.get_sample_sum()))?;
    write!(out, "{name}_count")?;
    write_labels(out, metric, None)?;
    writeln!(out, " {}", histogram.get_sample_count())
}

fn write_exemplar(out: &mut String, exemplar: &Exemplar) -> fmt::Result {
    let at = exemplar.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    write!(
        out,
        " # {{trace_id=\"{}\"}} {} {}.{:03}",
        exemplar.trace_id,
        number(exemplar.value),
        at.as_secs(),
        at.subsec_millis()
    )
}

fn write_labels(out: &mut String, metric: &Metric, le: Option<f64>) -> fmt::Result {
    let mut before = '{';
    for pair in metric.get_label() {
        write!(out, "{before}{}=\"{}\"", pair.name(), escaped(pair.value()))?;
        before = ',';
    }
    if let Some(le) = le {
        write!(out, "{before}le=\"{}\"", canonical(le))?;
        before = ',';
    }
    if before == ',' {
        out.push('}');
    }
    Ok(())
}

/// Escapes help texts and label values.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(text);
    }
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    Cow::Owned(text.replace('\n', "\\n"))
}

/// Formats a value.
fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

/// Formats a bucket bound. It is a label value, so its form must be canonical: the specification asks for Go's `%g`
/// with `.0` after whole numbers, which is also what Prometheus 3 normalizes bounds to.
fn canonical(bound: f64) -> String {
    if bound == 0.0 {
        return "0.0".to_owned();
    }
    if !bound.is_finite() {
        return number(bound);
    }
    let scientific = format!("{bound:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{bound:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceId;

    use super::*;
    use criscope_cri::Method;
    use criscope_cri::call::Ending;

    use crate::metric::{BACKEND, CALL_BUCKETS, Metric, Unit, label, metrics};
    use crate::process::PROCESS_CPU;
    use crate::registry::Registry;

    metrics! {
        BACKEND_RECONNECTS = Metric::counter("backend_reconnects_total", &[BACKEND],
            "Connections made to the backend after the first.");
        BACKEND_UP = Metric::gauge("backend_up", Unit::Flag, &[BACKEND],
            "1 if the backend is connected and answers.");
        BACKEND_RPC_DURATION = Metric::histogram("backend_rpc_duration_seconds", Unit::Seconds,
            &[BACKEND, label::<Method>("method"), label::<Ending>("outcome")], CALL_BUCKETS,
            "Time of a call.").with_exemplars();
    }

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn registry() -> Registry {
        Registry::new(prometheus::Registry::new(), ["main".to_owned()])
    }

    #[test]
    fn counters_gauges_and_units() {
        let registry = registry();
        let reconnects = registry.counters(&BACKEND_RECONNECTS).expect("counters");
        reconnects.inc_by(registry.backends().value("main"), 3);
        registry
            .computed(&PROCESS_CPU, |out| out.put(&[], 0.25))
            .expect("computed");
        registry
            .computed(&BACKEND_UP, |out| out.put(&["a\"b\\c\n"], f64::NAN))
            .expect("computed");
        assert_eq!(
            registry.encode_openmetrics(),
            "# TYPE criscope_backend_reconnects counter\n\
             # HELP criscope_backend_reconnects Connections made to the backend after the first.\n\
             criscope_backend_reconnects_total{backend=\"main\"} 3\n\
             # TYPE criscope_backend_up gauge\n\
             # HELP criscope_backend_up 1 if the backend is connected and answers.\n\
             criscope_backend_up{backend=\"a\\\"b\\\\c\\n\"} NaN\n\
             # TYPE process_cpu_seconds counter\n\
             # UNIT process_cpu_seconds seconds\n\
             # HELP process_cpu_seconds User and system CPU time used.\n\
             process_cpu_seconds_total 0.25\n\
             # EOF\n"
        );
    }

    #[test]
    fn the_last_exported_call_of_a_bucket_is_its_exemplar() {
        let registry = registry();
        let duration = registry
            .histograms(&BACKEND_RPC_DURATION)
            .expect("histograms");
        let trace = TraceId::from_hex(TRACE).expect("hex");
        let [main, several] = ["main", "_ALL"].map(|name| registry.backends().value(name));
        let other = TraceId::from(7u128);
        // Bounds are inclusive. A call that is not exported replaces no exemplar.
        for (value, trace) in [
            (0.004, Some(other)),
            (0.005, Some(trace)),
            (0.003, None),
            (900.0, Some(trace)),
        ] {
            let labels = (main, Method::RunPodSandbox, Ending::Ok);
            duration.observe_traced(labels, value, trace);
        }
        duration.observe((several, Method::RunPodSandbox, Ending::Ok), 0.002);
        let text = registry.encode_openmetrics();
        let with: Vec<_> = text.lines().filter(|l| l.contains(" # ")).collect();
        let [five, inf] = &with[..] else {
            panic!("{text}")
        };
        let series = "backend=\"main\",method=\"RunPodSandbox\",outcome=\"ok\"";
        let name = "criscope_backend_rpc_duration_seconds_bucket";
        for (line, le, count, value) in [(five, "0.005", 3, "0.005"), (inf, "+Inf", 4, "900")] {
            let start = format!(
                "{name}{{{series},le=\"{le}\"}} {count} # {{trace_id=\"{TRACE}\"}} {value} "
            );
            let at = line
                .strip_prefix(&start)
                .unwrap_or_else(|| panic!("{line}\n{start}"));
            let at: f64 = at.parse().expect("a time");
            let now = UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
            assert!((now - 60.0..=now).contains(&at), "{at}");
        }
        for line in [
            "# TYPE criscope_backend_rpc_duration_seconds histogram",
            "# UNIT criscope_backend_rpc_duration_seconds seconds",
            &format!("{name}{{{series},le=\"1.0\"}} 3"),
            &format!("criscope_backend_rpc_duration_seconds_count{{{series}}} 4"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        let plain = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        assert!(!plain.contains(TRACE));
    }

    /// Expected values are those of Go's `strconv.FormatFloat(x, 'g', -1, 64)`.
    #[test]
    fn bounds_are_formatted_as_in_go() {
        let table = [
            (0.0, "0.0"),
            (0.00005, "5e-05"),
            (0.0001, "0.0001"),
            (0.00025, "0.00025"),
            (0.5, "0.5"),
            (1.0, "1.0"),
            (30.0, "30.0"),
            (262_144.0, "262144.0"),
            (1_000_000.0, "1e+06"),
            (1_048_576.0, "1.048576e+06"),
            (16_777_216.0, "1.6777216e+07"),
            (-2.5, "-2.5"),
            (f64::INFINITY, "+Inf"),
        ];
        for (bound, text) in table {
            assert_eq!(canonical(bound), text);
        }
    }
}
