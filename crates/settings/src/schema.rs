//! The declaration of keys, and the effective values.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::value::ValueKind;

/// One key.
#[derive(Debug)]
pub struct SettingKey<T: 'static> {
    /// Path of its table; `NAME` matches any name, `[]` marks an array of tables.
    pub section: &'static str,
    /// The key itself.
    pub name: &'static str,
    /// How its value is parsed, checked and shown.
    pub kind: &'static (dyn ValueKind<Value = T> + Sync),
    /// The default.
    pub fallback: SettingDefault<T>,
    /// True if SIGHUP applies a change; otherwise a restart does.
    pub live: bool,
    /// Doc comments, each line with its leading space.
    pub help: &'static str,
}

/// The default of a key.
#[derive(Debug)]
pub enum SettingDefault<T> {
    /// A value.
    Is(fn() -> T),
    /// A description of the default; `example` is a value for the annotated file.
    Unset {
        /// The description.
        words: &'static str,
        /// A TOML value.
        example: &'static str,
    },
    /// The key is required.
    Required {
        /// A TOML value.
        example: &'static str,
    },
}

impl<T> SettingKey<T> {
    /// Adds the effective value, unless it means that the key is not set.
    pub fn list(&self, path: &str, value: &T, to: &mut EffectiveSettings) {
        if self.kind.is_set(value) {
            let setting = EffectiveSetting {
                value: self.kind.show(value),
                live: self.live,
            };
            to.insert(format!("{path}.{}", self.name), setting);
        }
    }
}

/// A key without its type, for the reference.
#[derive(Clone, Debug)]
pub struct KeyDescription {
    /// Path of its table, as in [`SettingKey`].
    pub section: &'static str,
    /// The key itself.
    pub name: &'static str,
    /// The accepted values.
    pub words: String,
    /// The default as a TOML value or as a description.
    pub fallback: String,
    /// A TOML value: the default, or an example.
    pub example: String,
    /// Whether SIGHUP applies a change; otherwise a restart does.
    pub live: bool,
    /// What it does.
    pub help: &'static str,
}

/// A key without its type.
pub trait UntypedKey {
    /// The key, for the reference.
    fn describe(&self) -> KeyDescription;
}

impl<T> UntypedKey for SettingKey<T> {
    fn describe(&self) -> KeyDescription {
        let (fallback, example) = match self.fallback {
            SettingDefault::Is(value) => {
                let shown = self.kind.show(&value());
                (format!("`{shown}`"), shown)
            }
            SettingDefault::Unset { words, example } => (words.to_owned(), example.to_owned()),
            SettingDefault::Required { example } => ("required".to_owned(), example.to_owned()),
        };
        KeyDescription {
            section: self.section,
            name: self.name,
            words: self.kind.words(),
            fallback,
            example,
            live: self.live,
            help: self.help.trim(),
        }
    }
}

/// All sections and keys of a configuration, in the order of the reference.
#[derive(Debug, Default)]
pub struct SettingsSchema {
    /// Path and purpose.
    pub sections: Vec<(&'static str, &'static str)>,
    /// In the order of their sections.
    pub keys: Vec<KeyDescription>,
}

impl SettingsSchema {
    /// All keys that `S` and its parts declare.
    pub fn from_section<S: SettingsSection>() -> Self {
        let mut schema = Self::default();
        S::describe(&mut schema);
        schema
    }

    /// Adds the keys of a section. Several declarations may share one table; the first describes it.
    pub fn section<S: SettingsSection>(&mut self, keys: &[&dyn UntypedKey]) {
        let known = self.sections.iter().any(|(path, _)| *path == S::PATH);
        if !known && !keys.is_empty() {
            self.sections.push((S::PATH, S::ABOUT.trim()));
        }
        self.keys.extend(keys.iter().map(|key| key.describe()));
    }
}

/// A declared section, or several of them.
pub trait SettingsSection: Clone {
    /// Path of its table, as in [`SettingKey`].
    const PATH: &'static str;
    /// What the section is for.
    const ABOUT: &'static str;
    /// Adds its keys and those of its parts.
    fn describe(to: &mut SettingsSchema);
    /// The path of this table in the file; `row` is its index in an array of tables.
    fn path(&self, row: usize) -> String;
    /// Adds its effective values.
    fn list(&self, path: &str, to: &mut EffectiveSettings);
    /// Takes over the live values of another configuration.
    fn reload(&mut self, new: &Self);
}

impl<S: SettingsSection> SettingsSection for Vec<S> {
    const PATH: &'static str = S::PATH;
    const ABOUT: &'static str = S::ABOUT;

    fn describe(to: &mut SettingsSchema) {
        S::describe(to);
    }

    fn path(&self, _: usize) -> String {
        S::PATH.to_owned()
    }

    fn list(&self, _: &str, to: &mut EffectiveSettings) {
        for (row, table) in self.iter().enumerate() {
            table.list(&table.path(row), to);
        }
    }

    /// Rows are added and removed as a whole.
    fn reload(&mut self, new: &Self) {
        if SettingsSchema::from_section::<S>()
            .keys
            .iter()
            .any(|key| key.live)
        {
            self.clone_from(new);
        }
    }
}

/// A section that is only effective under a condition.
impl<S: SettingsSection> SettingsSection for Option<Box<S>> {
    const PATH: &'static str = S::PATH;
    const ABOUT: &'static str = S::ABOUT;

    fn describe(to: &mut SettingsSchema) {
        S::describe(to);
    }

    fn path(&self, _: usize) -> String {
        S::PATH.to_owned()
    }

    fn list(&self, path: &str, to: &mut EffectiveSettings) {
        if let Some(section) = self {
            section.list(path, to);
        }
    }

    fn reload(&mut self, new: &Self) {
        if let (Some(section), Some(new)) = (self, new) {
            section.reload(new);
        }
    }
}

/// Effective values by key path. Keys that are not set are omitted.
pub type EffectiveSettings = BTreeMap<String, EffectiveSetting>;

/// One effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// In the syntax of the file.
    pub value: String,
    /// True if SIGHUP applies a change; otherwise a restart does.
    pub live: bool,
}

/// A fingerprint of the settings, to compare nodes: 12 hexadecimal digits.
pub fn fingerprint(settings: &EffectiveSettings) -> String {
    let mut hash = Sha256::new();
    for (path, setting) in settings {
        hash.update(format!("{path} = {}\n", setting.value));
    }
    let mut text = String::with_capacity(12);
    for byte in &hash.finalize()[..6] {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
