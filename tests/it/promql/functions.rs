//! The supported functions, and what each requires of its arguments.

use promql_parser::parser::Expr;

use super::{Known, Labels, Values, Wanted};

pub(super) fn check(
    known: &Known,
    name: &str,
    args: &[&Expr],
    wanted: Wanted,
) -> Result<Labels, String> {
    let first = || args.first().copied().ok_or(format!("{name} of nothing"));
    match name {
        "rate" | "irate" | "increase" => known.walk(first()?, Wanted::Counter),
        "changes" | "delta" | "deriv" | "avg_over_time" | "max_over_time" | "min_over_time"
        | "sum_over_time" | "last_over_time" => known.walk(first()?, Wanted::Gauge),
        "histogram_quantile" => {
            let mut labels = known.walk(args.get(1).ok_or("no buckets")?, Wanted::Gauge)?;
            match labels.remove("le") {
                Some(Values::Bounds(_)) => Ok(labels),
                _ => Err("histogram_quantile of what has no le".into()),
            }
        }
        // The result has the labels of the selector's matchers.
        "absent" => {
            known.walk(first()?, Wanted::Gauge)?;
            let Expr::VectorSelector(selector) = first()? else {
                return Err("absent of more than a selector".into());
            };
            let matchers = selector.matchers.matchers.iter();
            Ok(matchers.map(|m| (m.name.clone(), Values::Any)).collect())
        }
        "abs" | "ceil" | "floor" | "round" | "clamp_max" | "clamp_min" | "sort" | "sort_desc" => {
            known.walk(first()?, wanted)
        }
        // `label_replace(vector, label, replacement, source, regex)`; without a source the label has that one value.
        "label_replace" => {
            let mut labels = known.walk(first()?, wanted)?;
            let texts: Vec<_> = args.iter().skip(1).filter_map(|arg| text(arg)).collect();
            let [label, _, source, _] = texts[..] else {
                return Err("label_replace takes a vector and four strings".into());
            };
            if !source.is_empty() && !labels.contains_key(source) {
                return Err(format!("label_replace: there is no label {source}"));
            }
            labels.insert(label.to_owned(), Values::Any);
            Ok(labels)
        }
        "time" | "vector" | "scalar" => Ok(Labels::new()),
        other => Err(format!("{other} is not among the functions known here")),
    }
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::StringLiteral(literal) => Some(&literal.val),
        _ => None,
    }
}
