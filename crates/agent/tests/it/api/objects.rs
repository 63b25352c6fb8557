//! Pods, listed by label.

use serde_json::{Value, json};

use super::State;

impl State {
    pub(super) fn list_pods(&self, namespace: &str, query: &str) -> Value {
        let query = percent_encoding::percent_decode_str(query)
            .decode_utf8_lossy()
            .into_owned();
        let selector = query
            .split('&')
            .find_map(|it| it.strip_prefix("labelSelector="));
        let is_meant = |pod: &&Value| {
            pod["metadata"]["namespace"] == namespace
                && selector
                    .unwrap_or_default()
                    .split(',')
                    .filter(|it| !it.is_empty())
                    .all(|it| {
                        let (key, value) = it.split_once('=').expect("a selector");
                        pod["metadata"]["labels"][key] == value
                    })
        };
        let pods = self.pods.lock().expect("pods");
        let items: Vec<_> = pods.values().filter(is_meant).collect();
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items})
    }
}
