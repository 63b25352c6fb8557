//! Suggestions for a mistyped pod name.

use std::collections::BTreeSet;

use crate::lifecycle::view::{PodSummary, UnknownPod};

/// Most suggestions.
const MAX_SUGGESTIONS: usize = 5;

/// Smallest Jaro-Winkler similarity of a suggestion; 1 is equality.
const MIN_SIMILARITY: f64 = 0.82;

/// The response for an unknown pod. `notes`: what that can mean; the first becomes part of the first sentence.
pub(super) fn unknown(
    namespace: &str,
    name: &str,
    pods: &[PodSummary],
    mut notes: Vec<String>,
) -> UnknownPod {
    let known: BTreeSet<_> = pods
        .iter()
        .map(|pod| (pod.namespace.as_str(), pod.name.as_str()))
        .collect();
    let others = match known.len() {
        0 => ", nor of any other".to_owned(),
        1 => "; one other pod is recorded".to_owned(),
        n => format!("; {n} other pods are recorded"),
    };
    let mut near: Vec<_> = known
        .iter()
        .map(|pod| (similarity(namespace, name, *pod), pod))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    UnknownPod {
        error: if notes.is_empty() {
            format!("no record of pod {namespace}/{name}{others}")
        } else {
            format!("no record of pod {namespace}/{name}: {}", notes.remove(0))
        },
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        notes,
        known: known.len(),
        more: near
            .len()
            .checked_sub(MAX_SUGGESTIONS)
            .filter(|more| *more > 0),
        near: near
            .into_iter()
            .take(MAX_SUGGESTIONS)
            .map(|(_, (namespace, name))| format!("{namespace}/{name}"))
            .collect(),
    }
}

/// About 1 for the same name in another namespace; a part of a name, such as a Deployment's, also counts as near.
fn similarity(namespace: &str, name: &str, pod: (&str, &str)) -> f64 {
    let of_name = match pod.1 {
        it if it == name => 1.0,
        it if it.starts_with(name) => 0.96,
        it if name.len() >= 3 && it.contains(name) => 0.95,
        it => strsim::jaro_winkler(it, name),
    };
    let elsewhere = if pod.0 == namespace { 0.0 } else { 0.01 };
    of_name - elsewhere
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::examples;

    fn near(namespace: &str, name: &str) -> Vec<String> {
        unknown(namespace, name, &examples::pods().pods, Vec::new()).near
    }

    #[test]
    fn near_names_are_found() {
        assert_eq!(near("default", "db-0")[0], "shop/db-0", "another namespace");
        let both = ["shop/web-7d4b9c6f5-qq4fz", "shop/web-7d4b9c6f5-x2x9k"];
        assert_eq!(near("shop", "web"), both, "a part");
        assert_eq!(near("shop", "modle-0")[0], "shop/model-0", "a slip");
        assert_eq!(near("shop", "db")[0], "shop/db-0", "a short part");
        assert!(near("shop", "nothing-like-it").is_empty());
        let unknown = unknown("shop", "zz", &[], Vec::new());
        assert_eq!((unknown.known, unknown.near.len()), (0, 0));
    }
}
