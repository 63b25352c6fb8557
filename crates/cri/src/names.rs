//! Enums whose values have names, and enums that are serialized by name.

/// An enum whose values have names: the words in logs, on pages and in the journal, or the values of a metric's label.
pub trait Named: Copy + 'static {
    /// The names, in the order of the values.
    const NAMES: &'static [&'static str];

    /// The position of the value's name.
    fn index(self) -> usize;
}

/// Values with names: nothing, one value, or a tuple.
pub trait NamedSet: Copy + 'static {
    /// The names that each value can have.
    const NAME_LISTS: &'static [&'static [&'static str]];

    /// The positions of the names.
    type Indices: AsRef<[usize]>;

    /// Returns the position of each value's name.
    fn indices(self) -> Self::Indices;
}

impl NamedSet for () {
    const NAME_LISTS: &'static [&'static [&'static str]] = &[];
    type Indices = [usize; 0];

    fn indices(self) -> Self::Indices {
        []
    }
}

impl<A: Named> NamedSet for A {
    const NAME_LISTS: &'static [&'static [&'static str]] = &[A::NAMES];
    type Indices = [usize; 1];

    fn indices(self) -> Self::Indices {
        [self.index()]
    }
}

impl<A: Named, B: Named> NamedSet for (A, B) {
    const NAME_LISTS: &'static [&'static [&'static str]] = &[A::NAMES, B::NAMES];
    type Indices = [usize; 2];

    fn indices(self) -> Self::Indices {
        [self.0.index(), self.1.index()]
    }
}

impl<A: Named, B: Named, C: Named> NamedSet for (A, B, C) {
    const NAME_LISTS: &'static [&'static [&'static str]] = &[A::NAMES, B::NAMES, C::NAMES];
    type Indices = [usize; 3];

    fn indices(self) -> Self::Indices {
        [self.0.index(), self.1.index(), self.2.index()]
    }
}

/// Declares an enum whose values have names.
#[macro_export]
macro_rules! named {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $enum:ident {
            $($(#[$value_attribute:meta])* $value:ident = $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $enum {
            $($(#[$value_attribute])* $value,)+
        }

        #[allow(dead_code, unreachable_pub)]
        impl $enum {
            /// Every value.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The name of the value.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        impl $crate::Named for $enum {
            const NAMES: &'static [&'static str] = &[$($name),+];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// The names of some values, as [`Named::NAMES`].
#[macro_export]
macro_rules! names {
    ($values:expr, $name:expr) => {{
        let mut names = [""; $values.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = $name($values[i]);
            i += 1;
        }
        names
    }};
}

/// Declares the positions in a list of names as a type.
#[macro_export]
macro_rules! listed {
    ($(#[$attribute:meta])* $visibility:vis struct $type:ident in $names:expr;) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        $visibility struct $type(usize);

        impl $crate::Named for $type {
            const NAMES: &'static [&'static str] = $names;

            fn index(self) -> usize {
                self.0
            }
        }
    };
}

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
