//! Events as events.k8s.io/v1 validates them on creation and update (`pkg/apis/core/validation/events.go` of Kubernetes).

use http::StatusCode;
use k8s_openapi::api::events::v1::Event;
use serde_json::Value;

use super::{Reply, State};
use crate::support::parse;

impl State {
    pub(super) fn create_event(&self, namespace: &str, event: Event) -> Reply {
        let name = event.metadata.name.clone().unwrap_or_default();
        let key = format!("{namespace}/{name}");
        let mut events = self.events.lock().expect("events");
        if events.contains_key(&key) {
            return Err((
                StatusCode::CONFLICT,
                format!("events.k8s.io {name:?} already exists"),
            ));
        }
        valid(namespace, &event)?;
        events.insert(key, event.clone());
        Ok((
            StatusCode::CREATED,
            serde_json::to_value(event).expect("JSON"),
        ))
    }

    pub(super) fn patch_event(&self, namespace: &str, name: &str, patch: &Value) -> Reply {
        let mut events = self.events.lock().expect("events");
        let key = format!("{namespace}/{name}");
        let missing = || {
            (
                StatusCode::NOT_FOUND,
                format!("events.k8s.io {name:?} not found"),
            )
        };
        let old = events.get(&key).ok_or_else(missing)?;
        let mut new = serde_json::to_value(old).expect("JSON");
        for (field, value) in patch.as_object().expect("an object") {
            if field != "series" {
                return Err((
                    StatusCode::UNPROCESSABLE_ENTITY,
                    format!("{field}: field is immutable"),
                ));
            }
            new[field] = value.clone();
        }
        let new: Event = parse(new);
        valid(namespace, &new)?;
        events.insert(key, new.clone());
        Ok((StatusCode::OK, serde_json::to_value(new).expect("JSON")))
    }
}

fn valid(namespace: &str, event: &Event) -> Result<(), (StatusCode, String)> {
    let invalid = |text: &str| Err((StatusCode::UNPROCESSABLE_ENTITY, text.to_owned()));
    let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let is_dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let about = event.regarding.clone().unwrap_or_default();
    match () {
        () if name.is_empty() || name.len() > 253 || !name.chars().all(is_dns) => {
            invalid("metadata.name: a DNS subdomain")
        }
        () if name.contains("..") || name.contains("-.") => {
            invalid("metadata.name: a DNS subdomain")
        }
        () if event.metadata.namespace.as_deref() != Some(namespace) => {
            invalid("metadata.namespace: does not match the request")
        }
        // Events on objects of the cluster are in the namespace default.
        () if about.namespace.is_none() && namespace != "default" => {
            invalid("involvedObject.namespace: does not match event.namespace")
        }
        () if about
            .namespace
            .as_deref()
            .is_some_and(|own| own != namespace) =>
        {
            invalid("involvedObject.namespace: does not match event.namespace")
        }
        () if event.event_time.is_none() => invalid("eventTime: required"),
        () if !matches!(event.type_.as_deref(), Some("Normal" | "Warning")) => {
            invalid("type: has invalid value")
        }
        () if !(1..=128).contains(&len(&event.reason)) => {
            invalid("reason: can have at most 128 characters")
        }
        () if !(1..=128).contains(&len(&event.action)) => {
            invalid("action: can have at most 128 characters")
        }
        () if len(&event.reporting_controller) == 0 => invalid("reportingController: required"),
        () if !(1..=128).contains(&len(&event.reporting_instance)) => {
            invalid("reportingInstance: can have at most 128 characters")
        }
        () if len(&event.note) > 1024 => invalid("note: can have at most 1024 characters"),
        () if event.series.as_ref().is_some_and(|it| it.count < 2) => {
            invalid("series.count: should be at least 2")
        }
        () if event.deprecated_count.is_some() || event.deprecated_source.is_some() => {
            invalid("deprecated fields need to be unset")
        }
        () => Ok(()),
    }
}
