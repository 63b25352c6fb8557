//! Checks that a file has only known keys, each in its table.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::error::{ConfigProblem, ValueSuggestion};
use super::reader::{SettingsReader, in_order};
use super::schema::{KeyDescription, SettingsSchema};
use super::suggest::nearest;
use super::value::{BackendName, HandlerName, UnparsedValue, ValueError, ValueKind};

/// The schema as a tree. The child `NAME` of a table matches every name.
#[derive(Debug)]
struct SchemaNode {
    shape: ExpectedShape,
    children: SchemaChildren,
}

type SchemaChildren = BTreeMap<&'static str, SchemaNode>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedShape {
    Value,
    Table,
    /// An array of tables.
    Rows,
}

impl SchemaNode {
    fn new(shape: ExpectedShape) -> Self {
        Self {
            shape,
            children: SchemaChildren::new(),
        }
    }
}

fn tree(keys: &[KeyDescription]) -> SchemaChildren {
    let mut root = SchemaChildren::new();
    for key in keys {
        let mut here = &mut root;
        for part in key.section.split('.') {
            let (name, shape) = match part.strip_suffix("[]") {
                Some(rows) => (rows, ExpectedShape::Rows),
                None => (part, ExpectedShape::Table),
            };
            let node = here.entry(name).or_insert_with(|| SchemaNode::new(shape));
            here = &mut node.children;
        }
        here.insert(key.name, SchemaNode::new(ExpectedShape::Value));
    }
    root
}

/// Reports unknown keys and values in the place of tables, or the reverse.
pub fn check(reader: &mut SettingsReader<'_>, root: &DeTable<'_>, schema: &SettingsSchema) {
    let tree = tree(&schema.keys);
    ShapeCheck { reader, schema }.table("", root, &tree);
}

struct ShapeCheck<'r, 'd> {
    reader: &'r mut SettingsReader<'d>,
    schema: &'r SettingsSchema,
}

impl ShapeCheck<'_, '_> {
    fn fail(&mut self, path: &str, at: usize, problem: ConfigProblem) {
        let place = self.reader.place(&(at..at));
        self.reader.fail(place, path, problem);
    }

    fn table(&mut self, parent: &str, table: &DeTable<'_>, known: &SchemaChildren) {
        for (key, value) in in_order(table) {
            let name = key.get_ref().as_ref();
            let at = key.span().start;
            let path = match parent {
                "" => name.to_owned(),
                _ => format!("{parent}.{name}"),
            };
            let named = known.get("NAME");
            if named.is_some()
                && let Err(error) = check_name(parent, name)
            {
                self.fail(&path, at, error.into());
            }
            match named.or_else(|| known.get(name)) {
                Some(node) => self.value(&path, value.get_ref(), at, node),
                None => {
                    let hint = hint(name, known, self.schema);
                    self.fail(&path, at, ConfigProblem::UnknownKey(hint));
                }
            }
        }
    }

    fn value(&mut self, path: &str, value: &DeValue<'_>, at: usize, node: &SchemaNode) {
        let children = &node.children;
        let expected = match (node.shape, value) {
            // Values are checked when they are read.
            (ExpectedShape::Value, _) => return,
            (ExpectedShape::Table, DeValue::Table(table)) => {
                return self.table(path, table, children);
            }
            (ExpectedShape::Rows, DeValue::Array(rows)) => {
                for (i, row) in rows.iter().enumerate() {
                    let path = format!("{path}[{i}]");
                    match row.get_ref() {
                        DeValue::Table(table) => self.table(&path, table, children),
                        other => {
                            self.fail(&path, row.span().start, wrong_shape("a table", other));
                        }
                    }
                }
                return;
            }
            (ExpectedShape::Table, _) => "a table",
            (ExpectedShape::Rows, _) => "an array of tables",
        };
        self.fail(path, at, wrong_shape(expected, value));
    }
}

/// Returns whether a table with free names may have this one.
fn check_name(parent: &str, name: &str) -> Result<(), ValueError> {
    let name = UnparsedValue::Text(name);
    match parent {
        "backends" => BackendName.read(&name).map(drop),
        _ => HandlerName.read(&name).map(drop),
    }
}

fn wrong_shape(expected: &'static str, value: &DeValue<'_>) -> ConfigProblem {
    let found = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    };
    ConfigProblem::Shape { expected, found }
}

/// Suggests the nearest key of the same table, else the same key of another table, else all keys of the table.
fn hint(name: &str, known: &SchemaChildren, schema: &SettingsSchema) -> ValueSuggestion {
    if let Some(near) = nearest(name, known.keys().copied()) {
        return ValueSuggestion::Nearest(near.to_owned());
    }
    // `level` in [telemetry] means the only key of that name in a table below it.
    let below: Vec<_> = known
        .iter()
        .filter_map(|(section, node)| Some((section, node.children.get_key_value(name)?.0)))
        .map(|(section, key)| format!("{section}.{key}"))
        .collect();
    if let [one] = below.as_slice() {
        return ValueSuggestion::Nearest(one.clone());
    }
    let elsewhere = schema.keys.iter();
    let elsewhere: Vec<_> = elsewhere
        .filter(|key| key.name == name && !key.section.contains(['[', 'N']))
        .map(|key| format!("{}.{}", key.section, key.name))
        .collect();
    match elsewhere.as_slice() {
        [one] => ValueSuggestion::Nearest(one.clone()),
        _ => ValueSuggestion::Known(known.keys().map(|&key| key.to_owned()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SettingsReader;
    use crate::settings;
    use crate::value::{BooleanValue, VisibleText};

    settings! {
        /// A section with parts.
        pub struct Program in "program" {
            /// A switch.
            debug: bool = false, BooleanValue;
            /// A text.
            listen: String = String::new(), VisibleText;
        }
        parts {
            log: Log = Log::read;
            rules: Rule = Rule::read;
            backends: Backend = |reader| Backend::read(reader, String::new());
            server: Server = Server::read;
        }
    }

    settings! {
        /// A section below another one.
        pub struct Log in "program.log" {
            /// A text.
            level: String = String::new(), VisibleText;
        }
    }

    settings! {
        /// Tables of an array.
        pub struct Rule in "program.log.rules[]" {
            /// A text.
            method: String = String::new(), VisibleText;
        }
    }

    settings! {
        /// Tables with free names.
        pub struct Backend in "backends.NAME" named name {
            /// A text.
            kind: String = String::new(), VisibleText;
        }
    }

    settings! {
        /// Another section.
        pub struct Server in "server" {
            /// A text.
            timeout: String = String::new(), VisibleText;
        }
    }

    #[test]
    fn the_tree_has_every_key() {
        let schema = SettingsSchema::from_section::<Program>();
        assert_eq!(schema.keys.len(), 6);
        let root = tree(&schema.keys);
        for key in &schema.keys {
            let mut here = &root;
            for part in key.section.split('.') {
                let part = part.trim_end_matches("[]");
                here = &here.get(part).expect(part).children;
            }
            let node = here.get(key.name).expect("a leaf");
            assert_eq!(node.shape, ExpectedShape::Value);
        }
        let program = Program::read(&mut SettingsReader::empty());
        assert_eq!(program.log.level, "");
    }

    #[test]
    fn a_key_in_the_wrong_table_is_found() {
        let schema = SettingsSchema::from_section::<Program>();
        let root = tree(&schema.keys);
        let program = &root.get("program").expect("there").children;
        assert_eq!(
            hint("level", program, &schema),
            ValueSuggestion::Nearest("log.level".to_owned())
        );
        assert_eq!(
            hint("timeout", program, &schema),
            ValueSuggestion::Nearest("server.timeout".to_owned())
        );
        assert_eq!(
            hint("tls", program, &schema),
            ValueSuggestion::Known(["debug", "listen", "log"].map(str::to_owned).into())
        );
    }
}
