//! Bytes in a human-readable record: a string if they are UTF-8, else a list of numbers.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

/// For `#[serde(with)]`.
pub(crate) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => to.serialize_str(text),
        Err(_) => bytes.as_ref().serialize(to),
    }
}

/// For `#[serde(with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    Ok(match Written::deserialize(from)? {
        Written::Text(text) => text.into(),
        Written::Bytes(bytes) => bytes.into(),
    })
}

#[cfg(test)]
mod tests {
    use crate::v1::{ContainerConfig, KeyValue};

    #[test]
    fn a_record_holds_every_byte_of_the_environment() {
        let value = |value: &'static [u8]| KeyValue {
            key: "K".to_owned(),
            value: value.into(),
        };
        let config = ContainerConfig {
            envs: vec![value(b"words"), value(b"\xff\x00not text"), value(b"")],
            ..ContainerConfig::default()
        };
        let json = serde_json::to_string(&config).expect("valid");
        assert!(json.contains(r#""value":"words""#), "{json}");
        let read: ContainerConfig = serde_json::from_str(&json).expect("valid");
        assert!(read == config);
    }

    #[test]
    fn a_record_of_an_older_version_lacks_fields() {
        let read: ContainerConfig = serde_json::from_str(r#"{"log_path":"a"}"#).expect("valid");
        assert_eq!(read.log_path, "a");
    }
}
