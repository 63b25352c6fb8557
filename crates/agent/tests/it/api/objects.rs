//! Pods, listed by label, and the Lease of the installer, with its resource version.

use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use super::{Reply, State};
use crate::support::parse;

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

    pub(super) fn lease(
        &self,
        method: &Method,
        value: &dyn Fn() -> Result<Value, (StatusCode, String)>,
    ) -> Reply {
        let mut lease = self.lease.lock().expect("lease");
        let version = lease
            .metadata
            .resource_version
            .clone()
            .unwrap_or_else(|| "1".to_owned());
        if method == Method::PUT {
            let new: Lease = parse(value()?);
            if new.metadata.resource_version.as_ref() != Some(&version) {
                return Err((
                    StatusCode::CONFLICT,
                    "the object has been modified".to_owned(),
                ));
            }
            *lease = new;
            let next = version.parse::<u64>().expect("a number") + 1;
            lease.metadata.resource_version = Some(next.to_string());
        } else {
            lease.metadata.resource_version = Some(version);
        }
        Ok((StatusCode::OK, serde_json::to_value(&*lease).expect("JSON")))
    }
}
