//! The descriptions in an archive. CRI-O, containerd and Podman each read some of them:
//!
//! | file | contents | read by |
//! |---|---|---|
//! | `config.dump` | id, name, image and times, as checkpointctl defines them (`ContainerConfig`) | all |
//! | `spec.dump` | the OCI specification; with the annotations of the request as CRI-O writes them, without which it restores nothing | all |
//! | `status.dump` | ContainerStatus of the CRI as JSON | containerd |
//! | `status` | times and exit as containerd stores them (`ContainerdStatus`) | checkpointctl |

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::store::ContainerRecord;
use criscope_cri::v1;

/// The annotation in which CRI-O keeps those of the request.
const ANNOTATIONS: &str = "io.kubernetes.cri-o.Annotations";
/// Go's zero time.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Name and content of a file.
pub(super) type Dump = (&'static str, Vec<u8>);

/// The contents of the files.
pub(super) struct Facts<'a> {
    pub(super) record: &'a ContainerRecord,
    pub(super) name: String,
    pub(super) status: v1::ContainerStatus,
    /// The OCI specification.
    pub(super) spec: Value,
    /// The time of the checkpoint, in nanoseconds since 1970.
    pub(super) at: i64,
}

/// All files.
pub(super) fn all(facts: &Facts<'_>) -> [Dump; 4] {
    let record = facts.record;
    let image = record.image_name.as_str();
    // CRI-O accepts nothing but the digits of an image's id. containerd takes a name, and pulls by it.
    let reference = record.image_id.trim_start_matches("sha256:");
    let config = json!({
        "id": record.id,
        "name": facts.name,
        "rootfsImage": image,
        "rootfsImageRef": reference,
        "rootfsImageName": image,
        "runtime": record.handler,
        "createdTime": rfc3339(record.created_at),
        "checkpointedTime": rfc3339(facts.at),
        "restoredTime": NEVER,
        "restored": false,
    });
    let mut spec = facts.spec.clone();
    if let Some(spec) = spec.as_object_mut() {
        let annotations = spec.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            let own = json!(record.config.annotations).to_string();
            annotations.insert(ANNOTATIONS.to_owned(), own.into());
        }
    }
    let status = json!({
        "CreatedAt": record.created_at,
        "StartedAt": record.started_at,
        "FinishedAt": record.finished_at,
        "ExitCode": 0,
        "Pid": record.pid,
        "Reason": "",
        "Message": "",
    });
    let files = [
        ("config.dump", config),
        ("spec.dump", spec),
        ("status.dump", cri(&facts.status)),
        ("status", status),
    ];
    files.map(|(name, value)| (name, value.to_string().into_bytes()))
}

/// With the names of the fields in the CRI's JSON.
fn cri(status: &v1::ContainerStatus) -> Value {
    json!({
        "id": status.id,
        "metadata": status.metadata,
        "state": status.state,
        "created_at": status.created_at,
        "started_at": status.started_at,
        "image": status.image,
        "image_ref": status.image_ref,
        "image_id": status.image_id,
        "labels": status.labels,
        "annotations": status.annotations,
        "mounts": status.mounts,
        "log_path": status.log_path,
    })
}

fn rfc3339(unix_ns: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(unix_ns.into()).ok();
    let text = time.and_then(|time| time.format(&Rfc3339).ok());
    text.unwrap_or_else(|| NEVER.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_those_of_cri_o_and_containerd() {
        let mut record = ContainerRecord {
            id: "c1".to_owned(),
            image_id: "sha256:0a1b".to_owned(),
            image_name: "example.com/a:1".to_owned(),
            created_at: 1_500_000_000_000_000_000,
            ..ContainerRecord::default()
        };
        let annotations = &mut record.config.annotations;
        annotations.insert("a".to_owned(), "b".to_owned());
        let facts = Facts {
            record: &record,
            name: "main_pod".to_owned(),
            status: v1::ContainerStatus {
                id: "c1".to_owned(),
                created_at: 7,
                ..Default::default()
            },
            spec: json!({"ociVersion": "1.0.2"}),
            at: 0,
        };
        let files = all(&facts);
        let read = |name: &str| {
            let (_, text) = files.iter().find(|(found, _)| *found == name).expect(name);
            serde_json::from_slice::<Value>(text).expect(name)
        };
        let config = read("config.dump");
        assert_eq!(config["rootfsImageRef"], "0a1b");
        assert_eq!(config["createdTime"], "2017-07-14T02:40:00Z");
        assert_eq!(config["checkpointedTime"], "1970-01-01T00:00:00Z");
        let spec = read("spec.dump");
        assert_eq!(spec["annotations"][ANNOTATIONS], r#"{"a":"b"}"#);
        assert_eq!(spec["ociVersion"], "1.0.2");
        assert_eq!(read("status.dump")["created_at"], 7);
        assert_eq!(read("status")["CreatedAt"], 1_500_000_000_000_000_000_i64);
    }
}
