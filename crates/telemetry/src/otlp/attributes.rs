//! The names of everything that criscope's spans, log records and resource say, pinned to one version of OpenTelemetry's semantic
//! conventions. Labels of metrics are those of a scrape (`docs/METRICS.md`).

use std::borrow::Cow;

use opentelemetry_semantic_conventions::attribute as key;

use self::Stability::{Development, Own, ReleaseCandidate, Stable};

/// Schema of resource and scopes: version 1.45.0 of 2 November 2026, the first with stable conventions for RPC.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.45.0";

/// Status of a call. `opentelemetry-semantic-conventions` 0.33 has version 1.42, where the attribute had another name.
pub const RPC_STATUS_CODE: &str = "rpc.status_code";

/// How firmly the conventions define an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Fixed for good.
    Stable,
    /// Stable with the next version, unless a fault is found.
    ReleaseCandidate,
    /// Free to change with each version.
    Development,
    /// An attribute of criscope, which the conventions do not have.
    Own,
}

/// Every exported attribute.
pub const ATTRIBUTES: &[(&str, Stability)] = &[
    (key::CLIENT_ADDRESS, Stable),
    (key::CONTAINER_ID, Stable),
    (key::CONTAINER_IMAGE_NAME, Stable),
    (key::CONTAINER_IMAGE_REPO_DIGESTS, Stable),
    (key::CONTAINER_IMAGE_TAGS, Stable),
    (key::CONTAINER_RUNTIME_NAME, Development),
    (key::CONTAINER_RUNTIME_VERSION, Development),
    (key::ERROR_TYPE, Stable),
    (key::EXCEPTION_MESSAGE, Stable),
    (key::FILE_DIRECTORY, Development),
    (key::FILE_PATH, Development),
    (key::HOST_NAME, Development),
    (key::HTTP_RESPONSE_STATUS_CODE, Stable),
    (key::K8S_CONTAINER_NAME, Stable),
    (key::K8S_CONTAINER_RESTART_COUNT, Stable),
    (key::K8S_NAMESPACE_NAME, Stable),
    (key::K8S_NODE_NAME, Stable),
    (key::K8S_POD_NAME, Stable),
    (key::K8S_POD_UID, Stable),
    (key::NETWORK_PEER_ADDRESS, Stable),
    (key::OS_TYPE, Development),
    (key::PROCESS_EXECUTABLE_NAME, ReleaseCandidate),
    (key::PROCESS_EXIT_CODE, ReleaseCandidate),
    (key::PROCESS_PID, ReleaseCandidate),
    (key::RPC_METHOD, Stable),
    (key::RPC_METHOD_ORIGINAL, Stable),
    (RPC_STATUS_CODE, Stable),
    (key::RPC_SYSTEM_NAME, Stable),
    (key::SERVER_ADDRESS, Stable),
    (key::SERVICE_INSTANCE_ID, Stable),
    (key::SERVICE_NAME, Stable),
    (key::SERVICE_VERSION, Stable),
    ("criscope.attempts", Own),
    ("criscope.backend", Own),
    ("criscope.client", Own),
    ("criscope.client.pid", Own),
    ("criscope.cni.command", Own),
    ("criscope.cni.plugin", Own),
    ("criscope.config.changed", Own),
    ("criscope.config.restart_needed", Own),
    ("criscope.containers", Own),
    ("criscope.contents", Own),
    ("criscope.deadline_ms", Own),
    ("criscope.doing", Own),
    ("criscope.endpoint", Own),
    ("criscope.image.layer", Own),
    ("criscope.image.pulled", Own),
    ("criscope.image.verifier", Own),
    ("criscope.images", Own),
    ("criscope.inferred", Own),
    ("criscope.layers", Own),
    ("criscope.lines", Own),
    ("criscope.lines.damaged", Own),
    ("criscope.mode", Own),
    ("criscope.nri.plugin", Own),
    ("criscope.orphans", Own),
    ("criscope.outcome", Own),
    ("criscope.partials", Own),
    ("criscope.problems", Own),
    ("criscope.reason", Own),
    ("criscope.request.bytes", Own),
    ("criscope.response.bytes", Own),
    ("criscope.retries", Own),
    ("criscope.runtime_handler", Own),
    ("criscope.sandbox.attempt", Own),
    ("criscope.sandbox.id", Own),
    ("criscope.sandboxes", Own),
    ("criscope.stream.bytes.in", Own),
    ("criscope.stream.bytes.out", Own),
    ("criscope.stream.outcome", Own),
    ("criscope.stream.protocol", Own),
    ("criscope.stream.transport", Own),
];

/// How firmly an exported attribute is defined; `None` for others.
pub fn stability(name: &str) -> Option<Stability> {
    let mut all = ATTRIBUTES.iter();
    all.find(|(known, _)| *known == name)
        .map(|(_, stability)| *stability)
}

/// The attribute of a log record for a field of the line. Fields that the conventions do not have are criscope's.
pub(crate) fn record_attribute(field: &'static str) -> Cow<'static, str> {
    match field {
        // The conventions deprecate the name of the field.
        "error.message" => Cow::Borrowed(key::EXCEPTION_MESSAGE),
        field if field.starts_with("criscope.") || stability(field).is_some() => {
            Cow::Borrowed(field)
        }
        field => Cow::Owned(format!("criscope.{field}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_attributes_have_the_own_prefix() {
        for (name, stability) in ATTRIBUTES {
            assert_eq!(name.starts_with("criscope."), *stability == Own, "{name}");
        }
    }

    #[test]
    fn fields_of_lines_have_a_name_in_records() {
        let table = [
            ("rpc.status_code", "rpc.status_code"),
            ("error.message", "exception.message"),
            ("criscope.fault", "criscope.fault"),
            ("duration_ms", "criscope.duration_ms"),
        ];
        for (field, name) in table {
            assert_eq!(record_attribute(field), name);
        }
    }
}
