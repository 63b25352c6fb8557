//! A configuration of several files: tables are merged key by key, and a later file replaces the values of an earlier one,
//! arrays as a whole.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ValuePlace;
use super::reader::{SourceText, in_order, place_in};

/// Merges the tables of a later text into those of earlier ones. Positions become offsets in the whole configuration.
pub fn merge<'t>(into: &mut DeTable<'t>, from: DeTable<'t>, base: usize) {
    for (key, value) in from {
        let here = into.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut);
        match (here, value.get_ref()) {
            (Some(DeValue::Table(here)), DeValue::Table(_)) => {
                if let DeValue::Table(table) = value.into_inner() {
                    merge(here, table, base);
                }
            }
            _ => {
                // The position of the key is replaced too.
                into.remove(key.get_ref().as_ref());
                into.insert(moved(key, base), moved_value(value, base));
            }
        }
    }
}

fn moved<T>(spanned: Spanned<T>, base: usize) -> Spanned<T> {
    let span = spanned.span();
    Spanned::new(span.start + base..span.end + base, spanned.into_inner())
}

fn moved_value<'t>(value: Spanned<DeValue<'t>>, base: usize) -> Spanned<DeValue<'t>> {
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::Table(table) => {
            let mut to = DeTable::new();
            merge(&mut to, table, base);
            DeValue::Table(to)
        }
        DeValue::Array(rows) => {
            DeValue::Array(rows.into_iter().map(|row| moved_value(row, base)).collect())
        }
        other => other,
    };
    Spanned::new(span.start + base..span.end + base, value)
}

/// Where each value of a configuration is written, by key path.
pub type ValueOrigins = BTreeMap<String, ValuePlace>;

/// The positions of all values, arrays of tables by row.
pub fn origins(root: &DeTable<'_>, texts: &[SourceText<'_>]) -> ValueOrigins {
    let mut origins = ValueOrigins::new();
    table("", root, texts, &mut origins);
    origins
}

fn table(parent: &str, values: &DeTable<'_>, texts: &[SourceText<'_>], to: &mut ValueOrigins) {
    for (key, value) in in_order(values) {
        let name = key.get_ref();
        let path = match parent {
            "" => name.to_string(),
            _ => format!("{parent}.{name}"),
        };
        match value.get_ref() {
            DeValue::Table(values) => table(&path, values, texts, to),
            DeValue::Array(rows) => {
                for (i, row) in rows.iter().enumerate() {
                    if let DeValue::Table(values) = row.get_ref() {
                        table(&format!("{path}[{i}]"), values, texts, to);
                    }
                }
            }
            _ => {}
        }
        to.insert(path, place_in(texts, value.span().start));
    }
}
