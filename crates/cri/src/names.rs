//! Enums that are serialized by name.

/// Implements serde for enums with `ALL` and `name()`: each value is serialized as its name.
#[macro_export]
macro_rules! serde_by_name {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
                let found = Self::ALL.into_iter().find(|value| value.name() == name);
                found.ok_or_else(|| serde::de::Error::custom(format_args!("unknown name {name:?}")))
            }
        }
    )+};
}
