//! The text of one value as a `Deserializer`: `serde_json` finds the values in it, which mean here what they mean in Go.

use std::cell::Cell;
use std::fmt;
use std::iter::from_fn;

use serde::Deserializer;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Error, Result};

/// Maximum nesting of the values that a type reads. What is ignored may be nested deeper.
const MAX_DEPTH: u8 = 64;

/// The names of the fields of a structure.
type Names = &'static [&'static str];

/// The text of a value in a document that is valid JSON, without white space around it.
#[derive(Clone, Copy)]
pub(super) struct JsonText<'de, 'a> {
    text: &'de str,
    /// Receives the innermost value that cannot be read.
    failed: &'a Cell<Option<&'de str>>,
    depth: u8,
}

/// The message of an error of `serde_json` without its place, which is that in the text of one value.
pub(super) fn reason(error: &Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) if error.line() > 0 => reason.to_owned(),
        _ => text,
    }
}

impl<'de, 'a> JsonText<'de, 'a> {
    /// A document.
    pub(super) fn new(text: &'de str, failed: &'a Cell<Option<&'de str>>) -> Self {
        Self {
            text,
            failed,
            depth: 0,
        }
    }

    fn is_null(self) -> bool {
        self.text == "null"
    }

    /// Notes where an error is, unless a value in this one has it.
    fn placed<T>(self, result: Result<T>) -> Result<T> {
        result.inspect_err(|_| self.failed.set(self.failed.get().or(Some(self.text))))
    }

    /// The reader of `serde_json`, for scalars and for errors about them.
    fn plainly<T>(
        self,
        read: impl FnOnce(&mut serde_json::Deserializer<serde_json::de::StrRead<'de>>) -> Result<T>,
    ) -> Result<T> {
        self.placed(read(&mut serde_json::Deserializer::from_str(self.text)))
    }

    /// Reads a list, a map, or the fields of a structure. `null` is an empty one.
    fn nested<V: Visitor<'de>>(
        self,
        empty: &'static str,
        fields: Option<Names>,
        visitor: V,
    ) -> Result<V::Value> {
        if self.depth == MAX_DEPTH {
            return self.placed(Err(Error::custom("nested too deep")));
        }
        let text = if self.is_null() { empty } else { self.text };
        let mut inner = serde_json::Deserializer::from_str(text);
        let nested = NestedVisitor {
            whole: self,
            fields,
            visitor,
        };
        self.placed(match empty {
            "[]" => inner.deserialize_seq(nested),
            _ => inner.deserialize_map(nested),
        })
    }

    fn inner(self, value: &'de RawValue) -> Self {
        Self {
            text: value.get(),
            depth: self.depth + 1,
            ..self
        }
    }
}

/// Passes the values in a value on, each with its text.
struct NestedVisitor<'de, 'a, V> {
    whole: JsonText<'de, 'a>,
    fields: Option<Names>,
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for NestedVisitor<'de, '_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut list: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        // The text is valid JSON, so that no item is an error.
        let items = from_fn(|| list.next_element::<&RawValue>().ok().flatten());
        let items = SeqDeserializer::new(items.map(|item| self.whole.inner(item)));
        self.visitor.visit_seq(items).map_err(A::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let entries = from_fn(|| map.next_entry::<String, &RawValue>().ok().flatten());
        let entries = entries.map(|(name, value)| (name, self.whole.inner(value)));
        let Some(names) = self.fields else {
            let entries = MapDeserializer::new(entries);
            return self.visitor.visit_map(entries).map_err(A::Error::custom);
        };
        // Each once, and with the name that the structure has for it.
        let mut found: Vec<(&'static str, JsonText<'de, '_>)> = Vec::new();
        for (name, value) in entries {
            let same = names.iter().find(|known| **known == name);
            let similar = names.iter().find(|known| known.eq_ignore_ascii_case(&name));
            let Some(known) = same.or(similar) else {
                continue;
            };
            match found.iter_mut().find(|(name, _)| name == known) {
                Some((_, earlier)) => *earlier = value,
                None => found.push((known, value)),
            }
        }
        let fields = MapDeserializer::new(found.into_iter());
        self.visitor.visit_map(fields).map_err(A::Error::custom)
    }
}

impl<'de> IntoDeserializer<'de, Error> for JsonText<'de, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Reads scalars with `serde_json`, and `null` as their zero value.
macro_rules! scalars {
    ($($deserialize:ident: $visit:ident($zero:expr)),* $(,)?) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            if self.is_null() {
                return self.placed(visitor.$visit($zero));
            }
            self.plainly(|inner| inner.$deserialize(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for JsonText<'de, '_> {
    type Error = Error;

    scalars! {
        deserialize_bool: visit_bool(false),
        deserialize_i8: visit_i8(0),
        deserialize_i16: visit_i16(0),
        deserialize_i32: visit_i32(0),
        deserialize_i64: visit_i64(0),
        deserialize_u8: visit_u8(0),
        deserialize_u16: visit_u16(0),
        deserialize_u32: visit_u32(0),
        deserialize_u64: visit_u64(0),
        deserialize_f32: visit_f32(0.0),
        deserialize_f64: visit_f64(0.0),
        deserialize_char: visit_str(""),
        deserialize_str: visit_str(""),
        deserialize_string: visit_str(""),
        deserialize_bytes: visit_bytes(b""),
        deserialize_byte_buf: visit_bytes(b""),
        deserialize_identifier: visit_str(""),
    }

    serde::forward_to_deserialize_any! { unit unit_struct tuple tuple_struct enum }

    /// For types that take several kinds of values.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.text.as_bytes().first() {
            Some(b'n') => self.placed(visitor.visit_unit()),
            Some(b'[') => self.deserialize_seq(visitor),
            Some(b'{') => self.deserialize_map(visitor),
            _ => self.plainly(|inner| inner.deserialize_any(visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.is_null() {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.nested("[]", None, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.nested("{}", None, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        names: Names,
        visitor: V,
    ) -> Result<V::Value> {
        self.nested("{}", Some(names), visitor)
    }

    /// It is valid JSON, which was checked first.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }
}
