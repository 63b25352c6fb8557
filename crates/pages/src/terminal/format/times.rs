//! Times in output for programs: each `*_unix_us`, microseconds since 1970, also gets a `*_time` as RFC 3339.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

use criscope_cri::units::rfc3339;
use criscope_cri::units::times::UnixMicros;

/// End of the names of times in microseconds.
const MICROSECONDS_SUFFIX: &str = "_unix_us";
/// End of the names of times in words.
const TIME_SUFFIX: &str = "_time";

/// A value that keeps the order of its fields, which `serde_json::Value` does not.
#[derive(Debug)]
pub(super) enum OrderedValue {
    Scalar(Value),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl OrderedValue {
    /// The value, in the order in which it is written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn new(value: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::from_slice(&serde_json::to_vec(value)?)
    }

    /// Adds the times in words. A time of zero stands for none.
    pub(super) fn with_times(self) -> Self {
        match self {
            Self::Scalar(value) => Self::Scalar(value),
            Self::List(items) => Self::List(items.into_iter().map(Self::with_times).collect()),
            Self::Object(fields) => {
                let fields = fields.into_iter().flat_map(|(name, value)| {
                    let time = time(&name, &value);
                    [Some((name, value.with_times())), time]
                });
                Self::Object(fields.flatten().collect())
            }
        }
    }
}

fn time(name: &str, value: &OrderedValue) -> Option<(String, OrderedValue)> {
    let name = name.strip_suffix(MICROSECONDS_SUFFIX)?;
    let OrderedValue::Scalar(value) = value else {
        return None;
    };
    let micros = value.as_u64().filter(|micros| *micros > 0)?;
    let time = rfc3339(UnixMicros::new(micros));
    let value = OrderedValue::Scalar(Value::String(time));
    Some((format!("{name}{TIME_SUFFIX}"), value))
}

impl Serialize for OrderedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Scalar(value) => value.serialize(serializer),
            Self::List(items) => items.serialize(serializer),
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for OrderedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OrderedValueVisitor)
    }
}

struct OrderedValueVisitor;

impl<'de> Visitor<'de> for OrderedValueVisitor {
    type Value = OrderedValue;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Scalar(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OrderedValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(OrderedValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<OrderedValue, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(OrderedValue::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_times(text: &str) -> String {
        let value: OrderedValue = serde_json::from_str(text).expect("json");
        serde_json::to_string(&value.with_times()).expect("json")
    }

    #[test]
    fn times_stand_beside_their_microseconds() {
        let text = r#"{"z":1.5,"now_unix_us":1769850487123456,"pods":[{"began_unix_us":951782400000000,"a":null}]}"#;
        let expected = r#"{"z":1.5,"now_unix_us":1769850487123456,"now_time":"2026-01-31T09:08:07.123Z","pods":[{"began_unix_us":951782400000000,"began_time":"2000-02-29T00:00:00.000Z","a":null}]}"#;
        assert_eq!(with_times(text), expected);
    }

    #[test]
    fn what_is_no_time_has_none() {
        for text in [
            r#"{"began_unix_us":0}"#,
            r#"{"began_unix_us":"1"}"#,
            r#"{"duration_us":7,"began_unix_us_x":7,"b":[true,-1,"x"]}"#,
            "[]",
        ] {
            assert_eq!(with_times(text), text);
        }
    }
}
