//! How the fields of a frame are written and read.

use std::fmt;

use super::MAX_FRAME;

/// A frame that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed frame")
    }
}

impl std::error::Error for Malformed {}

/// What a frame is made of.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> Result<Self, Malformed>;
}

macro_rules! number {
    ($($ty:ty),*) => {$(
        impl Field for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                let (head, rest) = from.split_first_chunk().ok_or(Malformed)?;
                *from = rest;
                Ok(Self::from_le_bytes(*head))
            }
        }
    )*};
}

number!(u8, u16, u32, i32, u64);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let len = u32::take(from)? as usize;
        let (head, rest) = from.split_at_checked(len).ok_or(Malformed)?;
        *from = rest;
        Self::from_utf8(head.to_vec()).map_err(|_| Malformed)
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let len = u32::take(from)?;
        (0..len).map(|_| T::take(from)).collect()
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty),* }

        #[allow(unused_variables)]
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(Self { $($field: Field::take(from)?),* })
            }
        }
    };
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$kind_doc:meta])* $tag:literal $kind:ident($ty:ty)),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$kind_doc])* $kind($ty)),* }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$kind(value) => { out.push($tag); value.put(out); })*
                }
            }
            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                match u8::take(from)? {
                    $($tag => Ok(Self::$kind(Field::take(from)?)),)*
                    _ => Err(Malformed),
                }
            }
        }

        impl $name {
            /// Appends this as one frame.
            pub fn encode(&self, out: &mut Vec<u8>) {
                frame(out, |out| self.put(out));
            }

            /// Reads one from a frame without its length. What a newer side added at the end is left alone.
            ///
            /// # Errors
            /// The frame is none of these.
            pub fn decode(mut frame: &[u8]) -> Result<Self, Malformed> {
                Self::take(&mut frame)
            }
        }
    };
}

pub(super) fn frame(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// Length of the frame that starts `bytes`, with its prefix; `None` if not even the prefix is there.
///
/// # Errors
/// The frame is longer than [`MAX_FRAME`].
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(head) = bytes.first_chunk() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*head) as usize;
    if len > MAX_FRAME {
        return Err(Malformed);
    }
    Ok(Some(len + 4))
}
