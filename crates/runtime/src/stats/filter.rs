//! The filters of statistics lists. All fields that are set must match.
//!
//! Ids match by prefix, like in the other lists.

use std::collections::HashMap;

use criscope_cri::v1::{ContainerStatsFilter, PodSandboxStatsFilter};

/// Returns whether a container matches the filter.
#[must_use]
pub fn wants_container(
    filter: Option<&ContainerStatsFilter>,
    id: &str,
    pod: &str,
    labels: &HashMap<String, String>,
) -> bool {
    filter.is_none_or(|filter| {
        is(&filter.id, id) && is(&filter.pod_sandbox_id, pod) && has(labels, &filter.label_selector)
    })
}

/// Returns whether a pod matches the filter.
#[must_use]
pub fn wants_pod(
    filter: Option<&PodSandboxStatsFilter>,
    id: &str,
    labels: &HashMap<String, String>,
) -> bool {
    filter.is_none_or(|filter| is(&filter.id, id) && has(labels, &filter.label_selector))
}

fn is(asked: &str, id: &str) -> bool {
    id.starts_with(asked)
}

fn has(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    let mut all = selector.iter();
    all.all(|(name, value)| labels.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn all_set_fields_must_match() {
        let labels = map(&[("app", "web"), ("tier", "1")]);
        assert!(wants_container(None, "c", "p", &labels));
        assert!(wants_pod(None, "p", &labels));
        for (id, pod, selector, wanted) in [
            ("", "", map(&[]), true),
            ("c", "", map(&[]), true),
            ("c0", "", map(&[]), true),
            ("d", "", map(&[]), false),
            ("c", "p", map(&[("app", "web")]), true),
            ("c", "q", map(&[]), false),
            ("", "p", map(&[("app", "db")]), false),
            ("", "", map(&[("app", "web"), ("none", "")]), false),
        ] {
            let filter = ContainerStatsFilter {
                id: id.to_owned(),
                pod_sandbox_id: pod.to_owned(),
                label_selector: selector.clone(),
            };
            assert_eq!(
                wants_container(Some(&filter), "c0", "p", &labels),
                wanted,
                "{id} {pod}"
            );
            let filter = PodSandboxStatsFilter {
                id: pod.to_owned(),
                label_selector: selector,
            };
            let wanted = wanted || id == "d";
            assert_eq!(wants_pod(Some(&filter), "p", &labels), wanted, "{pod}");
        }
    }
}
