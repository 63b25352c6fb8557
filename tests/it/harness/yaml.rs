//! Reads YAML into the values of JSON, which everything here can be made from.

use std::path::Path;

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value};

/// The one document of a file.
pub(crate) fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let documents =
        Yaml::load_from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let [document] = &documents[..] else {
        panic!("{}: {} documents", path.display(), documents.len());
    };
    value(document)
}

fn value(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => (*value).into(),
        Yaml::Value(Scalar::Integer(value)) => (*value).into(),
        Yaml::Value(Scalar::FloatingPoint(value)) => value.into_inner().into(),
        Yaml::Value(Scalar::String(value)) => value.as_ref().into(),
        Yaml::Sequence(items) => items.iter().map(value).collect(),
        Yaml::Mapping(pairs) => {
            let pairs = pairs.iter().map(|(key, item)| {
                let key = key.as_str().expect("a key is a string");
                (key.to_owned(), value(item))
            });
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        other => panic!("neither scalar, sequence nor mapping: {other:?}"),
    }
}
