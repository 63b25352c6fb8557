//! A parsed file with its positions, and the reader that returns values as their keys declare them.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::{ConfigError, ConfigErrors, ConfigProblem, ValuePlace};
use super::schema::{SettingDefault, SettingKey};
use super::value::UnparsedValue;

/// The text of a file, to convert byte offsets into lines.
#[derive(Clone, Copy, Debug)]
pub struct SourceText<'t> {
    /// The path, as in errors.
    pub name: &'t str,
    /// The whole text.
    pub text: &'t str,
    /// The offset of its first byte: each file of a configuration has offsets of its own.
    pub base: usize,
}

impl SourceText<'_> {
    /// Nothing: every key then has its default.
    pub const EMPTY: SourceText<'static> = SourceText {
        name: "",
        text: "",
        base: 0,
    };

    /// The position of a byte, by its offset from `base`.
    fn place(&self, at: usize) -> ValuePlace {
        let before = self.text.as_bytes().iter().take(at);
        ValuePlace::Line {
            file: self.name.to_owned(),
            line: before.filter(|byte| **byte == b'\n').count() + 1,
        }
    }
}

/// Parses a file. After syntax errors no others are reported: behind a broken line, keys may be assigned to the wrong
/// table, and errors about them would be misleading.
///
/// # Errors
/// If the file is not TOML.
pub fn parse<'t>(text: SourceText<'t>) -> Result<DeTable<'t>, ConfigErrors> {
    let (table, errors) = DeTable::parse_recoverable(text.text);
    let errors = errors.iter().map(|error| ConfigError {
        place: match error.span() {
            Some(span) => text.place(span.start),
            None => ValuePlace::File {
                file: text.name.to_owned(),
            },
        },
        key: String::new(),
        problem: ConfigProblem::Syntax(error.message().to_owned()),
    });
    ConfigErrors::from_list(errors.collect())?;
    Ok(table.into_inner())
}

/// The entry of a table, with the position of its key.
pub(super) type TableEntry<'d> = (&'d Spanned<DeString<'d>>, &'d Spanned<DeValue<'d>>);

/// The entries of a table in the order of the file.
pub(super) fn in_order<'d>(table: &'d DeTable<'d>) -> Vec<TableEntry<'d>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// The position of an offset in one of the texts, which are in the order of their offsets.
pub(super) fn place_in(texts: &[SourceText<'_>], at: usize) -> ValuePlace {
    let text = texts.iter().rev().find(|text| text.base <= at);
    text.map_or(ValuePlace::Nowhere, |text| text.place(at - text.base))
}

/// One table to read keys from.
#[derive(Clone, Debug)]
pub struct TableScope<'d> {
    /// Path of the table in the file: `backends.containerd`, `routing.rules[1]`.
    path: String,
    /// `None` if the file does not have the table; every key then has its default.
    table: Option<&'d DeTable<'d>>,
    span: Range<usize>,
}

impl TableScope<'_> {
    /// Returns whether the table has this key, valid or not.
    pub fn has<T>(&self, key: &SettingKey<T>) -> bool {
        self.table.is_some_and(|table| table.contains_key(key.name))
    }

    /// The table itself, with its position if the configuration has it.
    fn begin(&self) -> Option<usize> {
        self.table.map(|_| self.span.start)
    }

    /// The path of a key in this table.
    pub fn path_of<T>(&self, key: &SettingKey<T>) -> String {
        format!("{}.{}", self.path, key.name)
    }
}

/// A valid value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenValue<T> {
    /// The value.
    pub value: T,
    /// Where it is.
    pub place: ValuePlace,
}

/// The value of a command line flag that replaces a key.
#[derive(Clone, Copy, Debug)]
pub struct FlagValue<'d> {
    /// The path of the key.
    pub key: &'static str,
    /// With its dashes.
    pub name: &'static str,
    /// The value, as given.
    pub text: &'d str,
}

/// Reads values from a document and collects errors.
#[derive(Debug)]
pub struct SettingsReader<'d> {
    texts: Vec<SourceText<'d>>,
    root: Option<&'d DeTable<'d>>,
    flags: Vec<FlagValue<'d>>,
    /// What was found so far.
    pub errors: Vec<ConfigError>,
}

impl<'d> SettingsReader<'d> {
    /// Creates a reader of a document that was made of these texts, or of an empty one: then every key has its default.
    pub fn new(
        texts: Vec<SourceText<'d>>,
        root: Option<&'d DeTable<'d>>,
        flags: Vec<FlagValue<'d>>,
    ) -> Self {
        Self {
            texts,
            root,
            flags,
            errors: Vec::new(),
        }
    }

    /// Creates a reader of an empty document.
    pub fn empty() -> Self {
        Self::new(vec![SourceText::EMPTY], None, Vec::new())
    }

    pub(super) fn place(&self, span: &Range<usize>) -> ValuePlace {
        place_in(&self.texts, span.start)
    }

    /// Returns whether a table comes from a drop-in file, not from the first file.
    pub fn is_dropped_in(&self, scope: &TableScope<'_>) -> bool {
        let second = self.texts.get(1).map(|text| text.base);
        second.is_some_and(|second| scope.begin().is_some_and(|begin| begin >= second))
    }

    /// Reports a problem.
    pub fn fail(&mut self, place: ValuePlace, key: impl Into<String>, problem: ConfigProblem) {
        self.errors.push(ConfigError {
            place,
            key: key.into(),
            problem,
        });
    }

    /// Reports a problem at the key, or at the beginning of its table if the key is missing.
    pub fn fail_at<T>(
        &mut self,
        scope: &TableScope<'_>,
        key: &SettingKey<T>,
        problem: ConfigProblem,
    ) {
        let value = scope.table.and_then(|table| table.get(key.name));
        let span = value.map_or_else(|| scope.span.clone(), |value| value.span());
        self.fail(self.place(&span), scope.path_of(key), problem);
    }

    /// The table with this dotted path. [`check_shape`](super::check_shape) reports another type in its place.
    pub fn section(&self, path: &str) -> TableScope<'d> {
        let mut scope = TableScope {
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

    /// The tables in the table with this path and their names, in the order of the file.
    pub fn tables(&self, path: &str) -> Vec<(String, TableScope<'d>)> {
        let Some(table) = self.section(path).table else {
            return Vec::new();
        };
        let table = in_order(table).into_iter().map(|(key, value)| {
            let scope = TableScope {
                path: format!("{path}.{}", key.get_ref()),
                table: value.get_ref().as_table(),
                span: key.span(),
            };
            (key.get_ref().to_string(), scope)
        });
        table.collect()
    }

    /// The tables of an array of tables.
    pub fn rows(&self, path: &str, name: &str) -> Vec<TableScope<'d>> {
        let value = self.section(path).table.and_then(|table| table.get(name));
        let Some(rows) = value.and_then(|value| value.get_ref().as_array()) else {
            return Vec::new();
        };
        let row = rows.iter().enumerate().map(|(i, row)| TableScope {
            path: format!("{path}.{name}[{i}]"),
            table: row.get_ref().as_table(),
            span: row.span(),
        });
        row.collect()
    }

    /// The value of a key in the file, if it is present and valid. Reports no error: [`value`](Self::value) does.
    pub fn given<T>(&self, scope: &TableScope<'d>, key: &SettingKey<T>) -> Option<GivenValue<T>> {
        let value = scope.table?.get(key.name)?;
        Some(GivenValue {
            value: key.kind.read(&UnparsedValue::new(value.get_ref())).ok()?,
            place: self.place(&value.span()),
        })
    }

    /// The value of a key: the flag's, else the file's, else the default. An invalid value is reported, like a
    /// missing required one; the default is then returned until the errors are reported.
    pub fn value<T>(
        &mut self,
        scope: &TableScope<'d>,
        key: &SettingKey<T>,
        default: impl FnOnce() -> T,
    ) -> T {
        let in_file = self.in_file(scope, key);
        let path = scope.path_of(key);
        let flag = self.flags.iter().find(|flag| flag.key == path).copied();
        let flag = flag.and_then(
            |flag| match key.kind.read(&UnparsedValue::Text(flag.text)) {
                Ok(value) => Some(value),
                Err(error) => {
                    self.fail(ValuePlace::Flag(flag.name), "", error.into());
                    None
                }
            },
        );
        flag.or(in_file).unwrap_or_else(default)
    }

    /// Reports that a key is missing in a table.
    pub fn require<T>(&mut self, scope: &TableScope<'_>, key: &SettingKey<T>) {
        if scope.table.is_some() && !scope.has(key) {
            self.fail_at(scope, key, ConfigProblem::Missing(key.kind.words()));
        }
    }

    fn in_file<T>(&mut self, scope: &TableScope<'d>, key: &SettingKey<T>) -> Option<T> {
        if let SettingDefault::Required { .. } = key.fallback {
            self.require(scope, key);
        }
        let value = scope.table?.get(key.name)?;
        match key.kind.read(&UnparsedValue::new(value.get_ref())) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail_at(scope, key, error.into());
                None
            }
        }
    }
}
