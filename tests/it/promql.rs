//! Checks PromQL against the catalogue: metrics, labels and label values exist, rates are of counters, quantiles keep
//! `le`, and the two sides of an operator can match.

mod functions;
mod known;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::token::{T_LAND, T_LOR, T_LUNLESS};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    AggregateExpr, BinaryExpr, Call, Expr, LabelModifier, VectorMatchCardinality, VectorSelector,
    parse,
};

pub(crate) use self::known::{Known, Labels, Values};
use self::known::{Series, spellings};

/// The kind of metric expected of a selector.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// A gauge.
    Gauge,
    /// A counter.
    Counter,
    /// Either: its sum is recorded, and rates are computed from that.
    Any,
}

impl Known {
    /// Returns the labels of an expression's result, or what is wrong with the expression.
    pub(crate) fn check(&self, query: &str) -> Result<Labels, String> {
        self.walk(&parse(query)?, Wanted::Gauge)
    }

    /// Like `check`, for a recording rule that sums counters.
    pub(crate) fn check_total(&self, query: &str) -> Result<Labels, String> {
        self.walk(&parse(query)?, Wanted::Any)
    }

    fn walk(&self, expr: &Expr, wanted: Wanted) -> Result<Labels, String> {
        match expr {
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(Labels::new()),
            Expr::Paren(inner) => self.walk(&inner.expr, wanted),
            Expr::Unary(inner) => self.walk(&inner.expr, wanted),
            Expr::VectorSelector(selector) => self.select(selector, wanted),
            Expr::MatrixSelector(selector) => self.select(&selector.vs, wanted),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate, wanted),
            Expr::Binary(binary) => self.binary(binary, wanted),
            Expr::Call(call) => self.call(call, wanted),
            Expr::Subquery(_) => Err("a subquery: record it".into()),
            Expr::Extension(_) => Err("not PromQL".into()),
        }
    }

    fn select(&self, selector: &VectorSelector, wanted: Wanted) -> Result<Labels, String> {
        let name = selector
            .name
            .as_deref()
            .ok_or("a selector without a metric")?;
        let series = self
            .series(name)
            .ok_or_else(|| format!("{name} is not in the catalogue"))?;
        match wanted {
            Wanted::Gauge if series.counter => {
                return Err(format!("{name} is a counter: take its rate"));
            }
            Wanted::Counter if !series.counter => {
                return Err(format!("{name} is no counter, and has no rate"));
            }
            _ => {}
        }
        if !selector.matchers.or_matchers.is_empty() {
            return Err(format!(
                "{name}: `or` between matchers is not of Prometheus 2"
            ));
        }
        for matcher in &selector.matchers.matchers {
            check_matcher(name, series, matcher)?;
        }
        Ok(series.labels.clone())
    }

    fn aggregate(&self, aggregate: &AggregateExpr, wanted: Wanted) -> Result<Labels, String> {
        let inner = self.walk(&aggregate.expr, wanted)?;
        if let Some(param) = &aggregate.param {
            self.walk(param, Wanted::Gauge)?;
        }
        let op = aggregate.op.to_string();
        if op == "count_values" {
            return Err("count_values makes labels of values".into());
        }
        let picks = ["topk", "bottomk"].contains(&op.as_str());
        let by = match &aggregate.modifier {
            None if picks => return Ok(inner),
            None => return Ok(Labels::new()),
            Some(LabelModifier::Exclude(labels)) => return without(&inner, &labels.labels),
            Some(LabelModifier::Include(labels)) => only(&inner, &labels.labels)?,
        };
        Ok(if picks { inner } else { by })
    }

    fn binary(&self, binary: &BinaryExpr, wanted: Wanted) -> Result<Labels, String> {
        let left = self.walk(&binary.lhs, wanted)?;
        let right = self.walk(&binary.rhs, wanted)?;
        match (binary.lhs.value_type(), binary.rhs.value_type()) {
            (ValueType::Vector, ValueType::Vector) => {}
            (ValueType::Scalar, _) => return Ok(right),
            _ => return Ok(left),
        }
        let modifier = binary.modifier.as_ref();
        let matched = match modifier.and_then(|m| m.matching.as_ref()) {
            Some(LabelModifier::Include(on)) => {
                only(&right, &on.labels)?;
                only(&left, &on.labels)?
            }
            Some(LabelModifier::Exclude(ignored)) => {
                let mut both = left.clone();
                both.extend(right.clone());
                without(&both, &ignored.labels)?;
                let left = keep(&left, |name| !ignored.labels.contains(name));
                same(&left, &keep(&right, |name| !ignored.labels.contains(name)))?;
                left
            }
            None if binary.op.id() == T_LOR => left.clone(),
            None => {
                same(&left, &right)?;
                left.clone()
            }
        };
        if [T_LAND, T_LOR, T_LUNLESS].contains(&binary.op.id()) {
            let mut all = left;
            if binary.op.id() == T_LOR {
                all.extend(right);
            }
            return Ok(all);
        }
        match modifier.map(|m| &m.card) {
            None | Some(VectorMatchCardinality::OneToOne) => Ok(matched),
            Some(VectorMatchCardinality::ManyToOne(more)) => {
                let mut all = left;
                all.extend(only(&right, &more.labels)?);
                Ok(all)
            }
            Some(_) => Err("group_right: turn it round".into()),
        }
    }

    fn call(&self, call: &Call, wanted: Wanted) -> Result<Labels, String> {
        let args: Vec<&Expr> = call.args.args.iter().map(AsRef::as_ref).collect();
        functions::check(self, call.func.name, &args, wanted)
    }
}

fn keep(labels: &Labels, good: impl Fn(&String) -> bool) -> Labels {
    let kept = labels.iter().filter(|(name, _)| good(name));
    kept.map(|(name, values)| (name.clone(), values.clone()))
        .collect()
}

fn only(labels: &Labels, names: &[String]) -> Result<Labels, String> {
    for name in names {
        if !labels.contains_key(name) {
            let there: Vec<_> = labels.keys().collect();
            return Err(format!("there is no label {name} here, only {there:?}"));
        }
    }
    Ok(keep(labels, |name| names.contains(name)))
}

fn without(labels: &Labels, names: &[String]) -> Result<Labels, String> {
    only(labels, names)?;
    Ok(keep(labels, |name| !names.contains(name)))
}

fn same(left: &Labels, right: &Labels) -> Result<(), String> {
    let (left, right): (Vec<_>, Vec<_>) = (left.keys().collect(), right.keys().collect());
    match left == right {
        true => Ok(()),
        false => Err(format!("these never meet: {left:?} and {right:?}")),
    }
}

/// Checks that a matcher can match a value, and that one on `le` matches all spellings of its number.
fn check_matcher(metric: &str, series: &Series, matcher: &Matcher) -> Result<(), String> {
    let Matcher { name, value, op } = matcher;
    let values = series
        .labels
        .get(name)
        .ok_or_else(|| format!("{metric} has no label {name}"))?;
    match values {
        Values::Any => Ok(()),
        Values::Fixed(values) => {
            let written: Vec<&str> = match op {
                MatchOp::Equal | MatchOp::NotEqual => vec![value],
                MatchOp::Re(_) | MatchOp::NotRe(_) => value.split('|').collect(),
            };
            let stranger = written
                .into_iter()
                .find(|written| !values.iter().any(|value| matches(written, value)));
            match stranger {
                Some(stranger) => Err(format!("{metric}: {name} is never {stranger}")),
                None => Ok(()),
            }
        }
        Values::Bounds(bounds) => {
            let hit = |spelling: &String| match op {
                MatchOp::Equal => spelling == value,
                _ => value.split('|').any(|written| matches(written, spelling)),
            };
            let complete = bounds.iter().any(|bound| spellings(*bound).iter().all(hit));
            match complete {
                true => Ok(()),
                false => Err(format!(
                    "{metric}: le=\"{value}\" is not every spelling of a bound in {bounds:?}"
                )),
            }
        }
    }
}

/// Returns whether a regular expression without `|` matches a whole value. Supports only what the shipped ones use.
fn matches(written: &str, value: &str) -> bool {
    if let Some(number) = written.strip_suffix("(\\.0)?") {
        return value.strip_suffix(".0").unwrap_or(value) == number;
    }
    match written.split_once(".*") {
        Some((start, end)) => {
            value.len() >= start.len() + end.len()
                && value.starts_with(start)
                && value.ends_with(end)
        }
        None => written == value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checker reports mistakes.
    #[test]
    fn mistakes_are_found() {
        let known = Known::catalogue();
        let good = [
            "sum by (method) (rate(criscope_rpc_total{code!=\"OK\"}[5m]))",
            "histogram_quantile(0.9, sum by (le) (rate(criscope_rpc_duration_seconds_bucket[5m])))",
            "criscope_rpc_in_flight > 3 and criscope_rpc_oldest_in_flight_seconds > 1",
            "rate(criscope_rpc_duration_seconds_bucket{le=~\"1(\\\\.0)?\"}[5m])",
            "rate(criscope_rpc_total{method=~\"List.*|Version\"}[5m])",
            "criscope_backend_up * on (instance, job, cluster) group_left (version) criscope_build_info",
            "sum by (verb) (label_replace(criscope_rpc_in_flight, \"verb\", \"$1\", \"method\", \"(.+)\"))",
        ];
        for query in good {
            known
                .check(query)
                .unwrap_or_else(|e| panic!("{query}: {e}"));
        }
        let bad = [
            ("rate(criscope_rpcs_total[5m])", "not in the catalogue"),
            ("rate(criscope_rpc_total{pod=\"a\"}[5m])", "no label pod"),
            ("rate(criscope_rpc_total{code=\"Ok\"}[5m])", "never Ok"),
            (
                "rate(criscope_rpc_total{code=~\"OK|BAD\"}[5m])",
                "never BAD",
            ),
            ("rate(criscope_rpc_in_flight[5m])", "no rate"),
            ("max_over_time(criscope_rpc_total[5m])", "is a counter"),
            ("sum(criscope_rpc_total)", "is a counter"),
            ("sum by (pod) (criscope_rpc_in_flight)", "no label pod"),
            (
                "histogram_quantile(0.9, sum by (method) (rate(criscope_rpc_duration_seconds_bucket[5m])))",
                "le",
            ),
            (
                "rate(criscope_rpc_duration_seconds_bucket{le=\"1\"}[5m])",
                "every spelling",
            ),
            (
                "rate(criscope_rpc_duration_seconds_bucket{le=\"7\"}[5m])",
                "every spelling",
            ),
            (
                "criscope_rpc_in_flight and sum by (instance) (criscope_backend_up)",
                "never meet",
            ),
            (
                "label_replace(criscope_rpc_in_flight, \"a\", \"$1\", \"pod\", \"(.+)\")",
                "no label pod",
            ),
            ("criscope_rpc_in_flight +", "invalid"),
            ("info(criscope_rpc_in_flight)", "info"),
        ];
        for (query, why) in bad {
            let error = known.check(query).expect_err(query);
            assert!(error.contains(why), "{query}: {error}");
        }
    }
}
