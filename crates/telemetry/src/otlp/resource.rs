//! The OpenTelemetry resource of this process.

use std::fs;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use opentelemetry_semantic_conventions::attribute as key;

use super::attributes::SCHEMA_URL;
use super::variables::ReadVariable;

/// Builds the resource. `OTEL_RESOURCE_ATTRIBUTES` overrides its attributes, `OTEL_SERVICE_NAME` its name
/// (OpenTelemetry, resource SDK).
pub(super) fn resource(env: &ReadVariable<'_>) -> Resource {
    let mut ours = vec![
        KeyValue::new(key::SERVICE_NAME, "criscope"),
        KeyValue::new(key::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
        KeyValue::new(key::SERVICE_INSTANCE_ID, instance_id()),
        KeyValue::new(key::PROCESS_PID, i64::from(std::process::id())),
        KeyValue::new(key::OS_TYPE, "linux"),
    ];
    if let Ok(name) = fs::read_to_string("/proc/sys/kernel/hostname") {
        ours.push(KeyValue::new(key::HOST_NAME, name.trim().to_owned()));
    }
    if let Some(node) = env("NODE_NAME") {
        ours.push(KeyValue::new(key::K8S_NODE_NAME, node));
    }
    let mut builder = Resource::builder_empty()
        .with_schema_url(ours, SCHEMA_URL)
        .with_detector(Box::new(EnvResourceDetector::new()));
    if let Some(name) = env("OTEL_SERVICE_NAME") {
        builder = builder.with_service_name(name);
    }
    builder.build()
}

/// A random UUID (RFC 9562, version 4), new at each start.
fn instance_id() -> String {
    let mut bytes = RandomIdGenerator::default().new_trace_id().to_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use opentelemetry::Key;

    use super::*;

    #[test]
    fn the_resource_identifies_the_process() {
        let resource = resource(&|name| (name == "NODE_NAME").then(|| "node-7".to_owned()));
        let get = |key: &'static str| resource.get(&Key::new(key)).map(|v| v.to_string());
        assert_eq!(get("service.name").as_deref(), Some("criscope"));
        assert_eq!(
            get("service.version").as_deref(),
            Some(env!("CARGO_PKG_VERSION"))
        );
        assert_eq!(get("k8s.node.name").as_deref(), Some("node-7"));
        assert_eq!(get("process.pid"), Some(std::process::id().to_string()));
        assert!(get("host.name").is_some_and(|n| !n.is_empty()));
        assert_eq!(resource.schema_url(), Some(SCHEMA_URL));
    }

    #[test]
    fn the_environment_overrides_attributes() {
        let resource = resource(&|name| (name == "OTEL_SERVICE_NAME").then(|| "edge".to_owned()));
        assert_eq!(
            resource
                .get(&Key::new("service.name"))
                .map(|v| v.to_string())
                .as_deref(),
            Some("edge")
        );
        assert!(resource.get(&Key::new("k8s.node.name")).is_none());
    }

    #[test]
    fn the_instance_is_a_new_random_uuid() {
        let id = instance_id();
        assert_ne!(id, instance_id());
        assert_eq!(id.len(), 36);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
