//! A parsed file with its positions, and the reader that takes values out of it by their schema.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::{ConfigError, ConfigErrors, Place, Problem};
use super::schema::{Is, Key};
use super::value::{Kind, Raw};

/// The text of a file, to turn byte positions into lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'t> {
    pub(super) name: &'t str,
    pub(super) text: &'t str,
}

impl Text<'_> {
    pub(super) fn place(&self, at: usize) -> Place {
        let before = self.text.as_bytes().iter().take(at);
        Place::Line {
            file: self.name.to_owned(),
            line: before.filter(|byte| **byte == b'\n').count() + 1,
        }
    }
}

/// Parses a file. All syntax errors are reported, but no others with them: after a broken line its neighbours may land
/// in the wrong table, and what is said about them would be wrong.
pub(super) fn parse<'t>(text: Text<'t>) -> Result<DeTable<'t>, ConfigErrors> {
    let (table, errors) = DeTable::parse_recoverable(text.text);
    let errors = errors.iter().map(|error| ConfigError {
        place: match error.span() {
            Some(span) => text.place(span.start),
            None => Place::File {
                file: text.name.to_owned(),
            },
        },
        key: String::new(),
        problem: Problem::Syntax(error.message().to_owned()),
    });
    ConfigErrors::from_list(errors.collect())?;
    Ok(table.into_inner())
}

/// The entry of a table, with the positions of its key.
pub(super) type Entry<'d> = (&'d Spanned<DeString<'d>>, &'d Spanned<DeValue<'d>>);

/// The entries of a table in the order of the file.
pub(super) fn in_order<'d>(table: &'d DeTable<'d>) -> Vec<Entry<'d>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// One table to read keys from.
#[derive(Clone, Debug)]
pub(super) struct Scope<'d> {
    /// Its path as it stands in the file: `backends.containerd`, `routing.rules[1]`.
    pub(super) path: String,
    /// `None` if the file does not have it; then every key has its default.
    pub(super) table: Option<&'d DeTable<'d>>,
    /// Where it begins.
    pub(super) span: Range<usize>,
}

/// A value that was given, and where.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// Takes values out of a document and collects what is wrong with them.
#[derive(Debug)]
pub(super) struct Reader<'d> {
    text: Text<'d>,
    root: Option<&'d DeTable<'d>>,
    pub(super) errors: Vec<ConfigError>,
}

impl<'d> Reader<'d> {
    pub(super) fn new(text: Text<'d>, root: &'d DeTable<'d>) -> Self {
        Self {
            text,
            root: Some(root),
            errors: Vec::new(),
        }
    }

    /// Reads from nothing: everything has its default.
    pub(super) fn empty() -> Self {
        Self {
            text: Text { name: "", text: "" },
            root: None,
            errors: Vec::new(),
        }
    }

    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        self.text.place(span.start)
    }

    /// Where a key is written; if it is not, where its table begins.
    pub(super) fn place_of<K, D>(&self, scope: &Scope<'_>, key: &Key<K, D>) -> Place {
        let value = scope.table.and_then(|table| table.get(key.name));
        let span = value.map_or_else(|| scope.span.clone(), |value| value.span());
        self.place(&span)
    }

    pub(super) fn fail(&mut self, place: Place, key: impl Into<String>, problem: Problem) {
        self.errors.push(ConfigError {
            place,
            key: key.into(),
            problem,
        });
    }

    /// The table with this dotted path. Something else in its place has been reported by the check of the shape.
    pub(super) fn section(&self, path: &str) -> Scope<'d> {
        let mut scope = Scope {
            path: path.to_owned(),
            table: self.root,
            span: 0..0,
        };
        for part in path.split('.') {
            let found = scope.table.and_then(|table| table.get_key_value(part));
            scope.table = found.and_then(|(_, value)| value.get_ref().as_table());
            if let Some((key, _)) = found {
                scope.span = key.span();
            }
        }
        scope
    }

    /// The tables in the table with this path, in the order of the file.
    pub(super) fn tables(&self, path: &str) -> Vec<(String, Scope<'d>)> {
        let Some(table) = self.section(path).table else {
            return Vec::new();
        };
        in_order(table)
            .into_iter()
            .map(|(key, value)| {
                let scope = Scope {
                    path: format!("{path}.{}", key.get_ref()),
                    table: value.get_ref().as_table(),
                    span: key.span(),
                };
                (key.get_ref().to_string(), scope)
            })
            .collect()
    }

    /// The tables of an array of tables.
    pub(super) fn rows(&self, path: &str, name: &str) -> Vec<Scope<'d>> {
        let value = self.section(path).table.and_then(|table| table.get(name));
        let Some(rows) = value.and_then(|value| value.get_ref().as_array()) else {
            return Vec::new();
        };
        rows.iter()
            .enumerate()
            .map(|(i, row)| Scope {
                path: format!("{path}.{name}[{i}]"),
                table: row.get_ref().as_table(),
                span: row.span(),
            })
            .collect()
    }

    /// The value of a key, if it is given and right.
    pub(super) fn given<K: Kind, D>(
        &mut self,
        scope: &Scope<'d>,
        key: &Key<K, D>,
    ) -> Option<Given<K::Value>> {
        let value = scope.table?.get(key.name)?;
        let place = self.place(&value.span());
        match key.kind.read(&Raw::new(value.get_ref())) {
            Ok(value) => Some(Given { value, place }),
            Err(error) => {
                self.fail(place, path_of(scope, key), error.into());
                None
            }
        }
    }

    /// The value of a key, or its default.
    pub(super) fn value<K: Kind>(
        &mut self,
        scope: &Scope<'d>,
        key: &Key<K, Is<K::Value>>,
    ) -> K::Value {
        self.given(scope, key)
            .map_or_else(|| (key.default.0)(), |given| given.value)
    }

    /// The value of a key that must be given.
    pub(super) fn required<K: Kind, D>(
        &mut self,
        scope: &Scope<'d>,
        key: &Key<K, D>,
    ) -> Option<Given<K::Value>> {
        let table = scope.table?;
        if !table.contains_key(key.name) {
            let place = self.place(&scope.span);
            self.fail(
                place,
                path_of(scope, key),
                Problem::Missing(key.kind.words()),
            );
            return None;
        }
        self.given(scope, key)
    }
}

pub(super) fn path_of<K, D>(scope: &Scope<'_>, key: &Key<K, D>) -> String {
    format!("{}.{}", scope.path, key.name)
}
