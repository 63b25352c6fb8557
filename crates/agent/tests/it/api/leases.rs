//! Leases and Nodes with resource versions, and watches of Leases. A watch is answered as soon as there is an event, and ends then,
//! as API servers may end one at any time.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Api, Refusal, Reply, State};
use crate::support::parse;

/// How long a watch without events lasts.
const WATCH_TIME: Duration = Duration::from_secs(20);

/// Leases of one namespace.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    version: u64,
    pub(crate) objects: BTreeMap<String, Value>,
    /// Every change, with its version.
    events: Vec<(u64, Value)>,
    changes: watch::Sender<u64>,
}

impl Leases {
    pub(crate) fn change(&mut self, kind: &str, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = lease["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        if kind == "DELETED" {
            self.objects.remove(&name);
        } else {
            self.objects.insert(name, lease.clone());
        }
        let event = json!({"type": kind, "object": lease});
        self.events.push((self.version, event));
        self.changes.send_replace(self.version);
        lease
    }

    fn get(&self, name: &str) -> Result<Value, Refusal> {
        let found = self.objects.get(name).cloned();
        found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("leases {name:?} not found")))
    }

    /// An annotation of a Lease.
    pub(crate) fn annotation(&self, name: &str, key: &str) -> Option<String> {
        let lease = self.objects.get(name)?;
        lease["metadata"]["annotations"][key]
            .as_str()
            .map(str::to_owned)
    }

    /// The name of the holder of a Lease.
    pub(crate) fn holder(&self, name: &str) -> Option<String> {
        let holder = self.objects.get(name)?["spec"]["holderIdentity"].as_str()?;
        Some(holder.to_owned())
    }
}

fn conflict() -> Refusal {
    (
        StatusCode::CONFLICT,
        "the object has been modified".to_owned(),
    )
}

/// Applies a merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().expect("an object").remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// The value of a parameter of a query.
fn parameter(query: &str, name: &str) -> Option<String> {
    let found = query
        .split('&')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let decoded = percent_encoding::percent_decode_str(found?).decode_utf8_lossy();
    Some(decoded.replace('+', " "))
}

/// Returns whether a selector, `key`, `key=value` or `key in (a,b)`, chooses an object.
fn is_selected(object: &Value, selector: &str) -> bool {
    let labels = &object["metadata"]["labels"];
    if let Some((key, values)) = selector.split_once(" in ") {
        let values = values.trim_matches(['(', ')']);
        return values.split(',').any(|value| labels[key] == value);
    }
    match selector.split_once('=') {
        Some((key, value)) => labels[key] == value,
        None => selector.is_empty() || labels.get(selector).is_some(),
    }
}

impl Api {
    /// Adds a Node that is Ready.
    pub(crate) fn add_node(&self, name: &str, labels: &Value) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let mut nodes = self.state.nodes.lock().expect("nodes");
        nodes.insert(name.to_owned(), node);
    }

    /// The state of a node in the rollout.
    pub(crate) fn state_of(&self, node: &str) -> Option<String> {
        let leases = self.state.leases.lock().expect("leases");
        leases.annotation(node, "criscope.dev/state")
    }
}

impl State {
    /// Answers a request about Leases, Nodes and DaemonSets.
    pub(super) fn cluster_object(
        &self,
        (resource, verb): (&str, &str),
        name: &str,
        query: &str,
        value: &dyn Fn() -> Result<Value, Refusal>,
    ) -> Reply {
        match (resource, verb) {
            ("leases", verb) => self.lease(verb, name, query, value),
            ("nodes", "get") => self.node(name),
            ("nodes", "list") => Ok((StatusCode::OK, self.list_nodes(query))),
            ("daemonsets", "update") => {
                let set = value()?;
                self.daemon_set.lock().expect("a set").clone_from(&set);
                Ok((StatusCode::OK, set))
            }
            _ => {
                let set = self.daemon_set.lock().expect("a set").clone();
                Ok((StatusCode::OK, set))
            }
        }
    }

    fn lease(
        &self,
        verb: &str,
        name: &str,
        query: &str,
        value: &dyn Fn() -> Result<Value, Refusal>,
    ) -> Reply {
        let mut leases = self.leases.lock().expect("leases");
        match verb {
            "list" => {
                let selector = parameter(query, "labelSelector").unwrap_or_default();
                let items = leases
                    .objects
                    .values()
                    .filter(|lease| is_selected(lease, &selector));
                let items: Vec<_> = items.collect();
                let version = leases.version.to_string();
                Ok((
                    StatusCode::OK,
                    json!({
                        "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                        "metadata": {"resourceVersion": version}, "items": items,
                    }),
                ))
            }
            "get" => Ok((StatusCode::OK, leases.get(name)?)),
            "create" => {
                let lease = value()?;
                let _: Lease = parse(lease.clone());
                let name = lease["metadata"]["name"].as_str().expect("a name");
                if leases.objects.contains_key(name) {
                    return Err((
                        StatusCode::CONFLICT,
                        format!("leases {name:?} already exists"),
                    ));
                }
                Ok((StatusCode::CREATED, leases.change("ADDED", lease)))
            }
            "update" => {
                let lease = value()?;
                let _: Lease = parse(lease.clone());
                let old = leases.get(name)?;
                if old["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
                    return Err(conflict());
                }
                Ok((StatusCode::OK, leases.change("MODIFIED", lease)))
            }
            "patch" => {
                let mut lease = leases.get(name)?;
                merge(&mut lease, &value()?);
                let _: Lease = parse(lease.clone());
                Ok((StatusCode::OK, leases.change("MODIFIED", lease)))
            }
            _ => {
                let lease = leases.get(name)?;
                Ok((StatusCode::OK, leases.change("DELETED", lease)))
            }
        }
    }

    /// The events after the version of the request.
    pub(super) async fn watch_leases(&self, query: &str) -> Response<Full<Bytes>> {
        let selector = parameter(query, "labelSelector").unwrap_or_default();
        let version = parameter(query, "resourceVersion").unwrap_or_default();
        let version: u64 = version.parse().expect("a version");
        let mut changes = self.leases.lock().expect("leases").changes.subscribe();
        let lines = timeout(WATCH_TIME, async {
            loop {
                let lines = {
                    let leases = self.leases.lock().expect("leases");
                    let new = leases.events.iter().filter(|(at, _)| *at > version);
                    let new = new.filter(|(_, event)| is_selected(&event["object"], &selector));
                    new.map(|(_, event)| format!("{event}\n"))
                        .collect::<String>()
                };
                if !lines.is_empty() {
                    return lines;
                }
                let _ = changes.changed().await;
            }
        });
        let body = lines.await.unwrap_or_default();
        let mut response = Response::new(Full::new(body.into()));
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    pub(super) fn node(&self, name: &str) -> Reply {
        let nodes = self.nodes.lock().expect("nodes");
        let found = nodes.get(name).cloned();
        let missing = || (StatusCode::NOT_FOUND, format!("nodes {name:?} not found"));
        Ok((StatusCode::OK, found.ok_or_else(missing)?))
    }

    pub(super) fn list_nodes(&self, query: &str) -> Value {
        let selector = parameter(query, "labelSelector").unwrap_or_default();
        let field = parameter(query, "fieldSelector").unwrap_or_default();
        let name = field.strip_prefix("metadata.name=");
        let nodes = self.nodes.lock().expect("nodes");
        let items = nodes.iter().filter(|(own, node)| {
            is_selected(node, &selector) && name.is_none_or(|name| name == *own)
        });
        let items: Vec<_> = items.map(|(_, node)| node).collect();
        json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": items})
    }
}
