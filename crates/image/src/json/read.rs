//! The text of one value as a `Deserializer`.

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer as _, MapAccess, SeqAccess, Visitor,
};

use super::JsonError;
use super::parts::Parts;

/// Maximum nesting of the values that a type reads. What is ignored may be nested deeper.
const MAX_DEPTH: u8 = 64;

/// The text of a value, which is valid JSON, without white space around it.
#[derive(Clone, Copy)]
pub(super) struct JsonText<'de> {
    pub(super) text: &'de str,
    /// Where the document has it.
    pub(super) offset: usize,
    depth: u8,
}

/// The message of an error of `serde_json` without its place, which is that in the text of one value.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) if error.line() > 0 => reason.to_owned(),
        _ => text,
    }
}

impl<'de> JsonText<'de> {
    /// A document.
    pub(super) fn new(text: &'de str, offset: usize) -> Self {
        Self {
            text,
            offset,
            depth: 0,
        }
    }

    fn is_null(self) -> bool {
        self.text == "null"
    }

    /// The reader of `serde_json`, for scalars and for errors about them.
    fn plainly<T>(
        self,
        read: impl FnOnce(
            &mut serde_json::Deserializer<serde_json::de::StrRead<'de>>,
        ) -> serde_json::Result<T>,
    ) -> Result<T, JsonError> {
        read(&mut serde_json::Deserializer::from_str(self.text))
            .map_err(|error| self.placed(JsonError::custom(reason(&error))))
    }

    /// Adds the place to an error that has none.
    fn placed(self, mut error: JsonError) -> JsonError {
        error.offset.get_or_insert(self.offset);
        error
    }

    /// The parts; none for `null`, and `None` for another kind of value.
    fn parts(self, open: char) -> Result<Option<Parts<'de>>, JsonError> {
        if self.depth == MAX_DEPTH {
            return Err(self.placed(JsonError::custom("nested too deep")));
        }
        if self.is_null() {
            return Ok(Some(Parts::default()));
        }
        let inside = self.text.strip_prefix(open);
        Ok(inside.map(|inside| Parts::new(inside, self.offset + 1)))
    }

    fn inner(self, (text, offset): (&'de str, usize)) -> Self {
        Self {
            text,
            offset,
            depth: self.depth + 1,
        }
    }
}

/// The items of a list.
struct Items<'de> {
    whole: JsonText<'de>,
    parts: Parts<'de>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = JsonError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, JsonError> {
        let next = self.parts.next();
        next.map(|part| seed.deserialize(self.whole.inner(part)))
            .transpose()
    }
}

/// The entries of a map.
struct Entries<'de> {
    whole: JsonText<'de>,
    parts: Parts<'de>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = JsonError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, JsonError> {
        let next = self.parts.next();
        next.map(|part| seed.deserialize(self.whole.inner(part)))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, JsonError> {
        match self.parts.next() {
            Some(part) => seed.deserialize(self.whole.inner(part)),
            None => Err(JsonError::custom("a name without a value")),
        }
    }
}

/// The fields of a structure, each once and with the name that the structure has for it.
struct Fields<'de> {
    found: std::vec::IntoIter<(&'static str, JsonText<'de>)>,
    value: Option<JsonText<'de>>,
}

impl<'de> Fields<'de> {
    fn new(
        whole: JsonText<'de>,
        mut parts: Parts<'de>,
        names: &'static [&'static str],
    ) -> Result<Self, JsonError> {
        let mut found: Vec<(&'static str, JsonText<'de>)> = Vec::new();
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            let name: String = serde::Deserialize::deserialize(whole.inner(name))?;
            let same = names.iter().find(|known| **known == name);
            let known = same.or_else(|| {
                let mut all = names.iter();
                all.find(|known| known.eq_ignore_ascii_case(&name))
            });
            let Some(known) = known else { continue };
            let value = whole.inner(value);
            match found.iter_mut().find(|(name, _)| name == known) {
                Some((_, earlier)) => *earlier = value,
                None => found.push((known, value)),
            }
        }
        Ok(Self {
            found: found.into_iter(),
            value: None,
        })
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = JsonError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, JsonError> {
        let Some((name, value)) = self.found.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, JsonError> {
        match self.value.take() {
            Some(value) => seed.deserialize(value),
            None => Err(JsonError::custom("a name without a value")),
        }
    }
}

/// Reads scalars with `serde_json`, and `null` as their zero value.
macro_rules! scalars {
    ($($deserialize:ident: $visit:ident($zero:expr)),* $(,)?) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            if self.is_null() {
                return visitor.$visit($zero).map_err(|error| self.placed(error));
            }
            self.plainly(|inner| inner.$deserialize(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for JsonText<'de> {
    type Error = JsonError;

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

    /// For types that take several kinds of values.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.text.as_bytes().first() {
            Some(b'n') => visitor.visit_unit().map_err(|error| self.placed(error)),
            Some(b'[') => self.deserialize_seq(visitor),
            Some(b'{') => self.deserialize_map(visitor),
            _ => self.plainly(|inner| inner.deserialize_any(visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.is_null() {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.plainly(|inner| inner.deserialize_unit(visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.parts('[')? {
            Some(parts) => visitor.visit_seq(Items { whole: self, parts }),
            None => return self.plainly(|inner| inner.deserialize_seq(visitor)),
        }
        .map_err(|error| self.placed(error))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.parts('{')? {
            Some(parts) => visitor.visit_map(Entries { whole: self, parts }),
            None => return self.plainly(|inner| inner.deserialize_map(visitor)),
        }
        .map_err(|error| self.placed(error))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        match self.parts('{')? {
            Some(parts) => visitor.visit_map(Fields::new(self, parts, names)?),
            None => return self.plainly(|inner| inner.deserialize_map(visitor)),
        }
        .map_err(|error| self.placed(error))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.plainly(|inner| inner.deserialize_enum(name, variants, visitor))
    }

    /// It is valid JSON, which was checked first.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_unit()
    }
}
