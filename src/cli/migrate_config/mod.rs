//! `criscope migrate-config`

mod convert;
mod source;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use toml::Value;

pub(super) use source::SourceConfigError;

use super::CommandFailure;
use crate::config::{Config, FlagOverrides};
use convert::{quoted, written};
use source::{SourceSetting, fits};
use tables::{KeyMapping, KeyTable, SpecialKey};

/// The runtime whose configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SourceRuntime {
    Containerd,
    Crio,
}

/// Convert the configuration of containerd or CRI-O
///
/// Prints a configuration for the built-in runtime. Standard error gets the keys without a counterpart, the tasks for the
/// administrator, and different defaults. Nothing is changed. containerd's imports and CRI-O's drop-in files are read too.
/// Credentials are never printed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The runtime whose configuration is converted
    #[arg(long, value_name = "RUNTIME")]
    from: SourceRuntime,
    /// The runtime's configuration file [default: /etc/containerd/config.toml or /etc/crio/crio.conf]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl SourceRuntime {
    fn settings(self, file: &Path) -> Result<Vec<SourceSetting>, SourceConfigError> {
        match self {
            Self::Containerd => source::containerd(file),
            Self::Crio => source::crio(file),
        }
    }

    fn table(self) -> io::Result<KeyTable> {
        KeyTable::read(match self {
            Self::Containerd => include_str!("containerd.toml"),
            Self::Crio => include_str!("crio.toml"),
        })
    }
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let usual = match args.from {
        SourceRuntime::Containerd => "/etc/containerd/config.toml",
        SourceRuntime::Crio => "/etc/crio/crio.conf",
    };
    let file = args.file.as_deref().unwrap_or(Path::new(usual));
    let migration = ConfigMigration::new(args.from.settings(file)?, &args.from.table()?);
    anstream::stdout()
        .lock()
        .write_all(migration.file().as_bytes())?;
    let mut report = anstream::stderr().lock();
    for line in &migration.report {
        writeln!(report, "{line}")?;
    }
    Ok(())
}

/// The table of a key and its name.
type TargetSetting = (String, String);

#[derive(Debug, Default)]
struct ConfigMigration {
    /// Values as they are written, by key.
    values: BTreeMap<TargetSetting, String>,
    handlers: BTreeSet<String>,
    /// Handlers that are left out.
    left_out: BTreeSet<String>,
    /// Handlers whose program is a shim of containerd (CRI-O's type `vm`).
    shims: BTreeSet<String>,
    /// Lines of `hosts.toml` by registry.
    hosts: BTreeMap<String, Vec<String>>,
    report: Vec<String>,
}

impl ConfigMigration {
    fn new(leaves: Vec<SourceSetting>, table: &KeyTable) -> Self {
        let mut migration = Self::default();
        for (key, value) in leaves {
            if let Some(at) = key.iter().position(|part| part == "runtimes")
                && let Some(name) = key.get(at + 1)
            {
                migration.handlers.insert(name.clone());
            }
            migration.take(&key, &value, &table.rows);
        }
        migration.finish(&table.defaults);
        migration
    }

    fn take(&mut self, key: &[String], value: &Value, rows: &[KeyMapping]) {
        let shown = key.join(".");
        let found = rows.iter().find_map(|row| Some((row, row.captured(key)?)));
        let Some((row, name)) = found else {
            if !is_unset(value) {
                self.report.push(format!("{shown}: no counterpart"));
            }
            return;
        };
        // Dumped configurations name every key. An empty value counts as missing, except an empty list.
        let has_value = matches!(
            value,
            Value::Boolean(_) | Value::Array(_) | Value::Integer(_)
        );
        if is_unset(value) && !has_value {
            return;
        }
        if let Some(special) = row.special {
            self.special(special, key, &name, value);
        } else if let Some(to) = &row.to {
            self.set(&shown, to, &name, row.convert.apply(value));
            if let Some(note) = &row.note {
                self.report.push(format!("{shown}: {to}; {note}"));
            }
        } else if let Some(why) = &row.note {
            let text = value.as_str().map_or_else(|| written(value), str::to_owned);
            if !is_unset(value) && !row.usual.iter().any(|one| fits(one, &text)) {
                self.report.push(format!("{shown}: {why}"));
            }
        }
    }

    fn special(&mut self, special: SpecialKey, key: &[String], name: &str, value: &Value) {
        let shown = key.join(".");
        let runtime_type = target(&handler_table(name), "runtime_type");
        match special {
            SpecialKey::Hosts => self.host(key, name, value),
            SpecialKey::Secret => self.report.push(format!(
                "{shown}: credentials are not taken over; use `imagePullSecrets`, a credential provider of the kubelet, or a file of Docker in `runtime.images.docker_config`"
            )),
            SpecialKey::ShimPath => {
                self.values.insert(runtime_type, written(value));
            }
            SpecialKey::RuntimeType => match value.as_str().unwrap_or_default() {
                "io.containerd.runc.v1"
                | "io.containerd.runc.v2"
                | "io.containerd.runtime.v1.linux"
                | "oci" => {}
                "vm" => {
                    self.shims.insert(name.to_owned());
                }
                text if text.contains('.') => {
                    self.values.entry(runtime_type).or_insert_with(|| quoted(text));
                }
                text => {
                    self.report.push(format!(
                        "{shown}: handler {name} has an unknown type ({text}) and is left out"
                    ));
                    self.left_out.insert(name.to_owned());
                }
            },
        }
    }

    fn set(&mut self, shown: &str, to: &str, name: &str, value: Result<String, String>) {
        let Some((table, key)) = to.rsplit_once('.') else {
            return;
        };
        let table = match table.strip_suffix(".NAME") {
            Some(table) => format!("{table}.{}", quoted_key(name)),
            None => table.to_owned(),
        };
        match value {
            Ok(value) => {
                self.values.insert((table, key.to_owned()), value);
            }
            Err(why) => self.report.push(format!("{shown}: not taken over: {why}")),
        }
    }

    fn host(&mut self, key: &[String], registry: &str, value: &Value) {
        let lines = self.hosts.entry(registry.to_owned()).or_default();
        match (key.last().map_or("", String::as_str), value) {
            ("endpoint", Value::Array(all)) => {
                lines.extend(all.iter().map(|host| format!("[host.{}]", written(host))));
            }
            ("insecure_skip_verify", Value::Boolean(true)) => {
                lines.push("skip_verify = true".to_owned())
            }
            ("ca_file", file) => lines.push(format!("ca = {}", written(file))),
            ("cert_file" | "key_file", file) => {
                lines.push(format!("# client certificate or key: {}", written(file)))
            }
            _ => {}
        }
    }

    /// Completes handlers, and removes what criscope would refuse.
    fn finish(&mut self, defaults: &[(String, String)]) {
        for name in &self.left_out {
            let table = handler_table(name);
            self.values.retain(|(of, _), _| *of != table);
            self.handlers.remove(name);
        }
        for name in &self.shims {
            let table = handler_table(name);
            if let Some(program) = self.values.remove(&target(&table, "path")) {
                self.values.insert(target(&table, "runtime_type"), program);
            }
        }
        let default = self.values.get(&target("runtime", "default_handler"));
        let default = default.map(|name| name.trim_matches('"').to_owned());
        match default {
            Some(name) if self.left_out.contains(&name) => {
                self.values.remove(&target("runtime", "default_handler"));
                self.report.push(format!(
                    "the default, {name}, is left out: choose another in `runtime.default_handler`"
                ));
            }
            // Both runtimes have this handler by default.
            Some(name) => {
                self.handlers.insert(name);
            }
            None => {}
        }
        for name in self.handlers.clone() {
            let mut program_keys = ["path", "runtime_type"].into_iter();
            let table = handler_table(&name);
            let has_program =
                program_keys.any(|key| self.values.contains_key(&target(&table, key)));
            if !has_program && name != "runc" && name != "crun" {
                self.report.push(format!("handler {name}: the program `{name}` is searched on PATH; containerd starts runc for it: see `runtime.handlers.NAME.path`"));
            }
        }
        for (registry, lines) in &self.hosts {
            self.report.push(format!(
                "registry {registry}: write {registry}/hosts.toml in a directory of `runtime.images.certs_dirs`:"
            ));
            self.report
                .extend(lines.iter().map(|line| format!("    {line}")));
        }
        self.refused();
        for (key, difference) in defaults {
            let set = key.rsplit_once('.').map(|(table, key)| target(table, key));
            if set.is_some_and(|set| !self.values.contains_key(&set)) {
                self.report.push(format!("default of {key}: {difference}"));
            }
        }
    }

    /// Reads the result, and leaves out values that are not valid for criscope.
    fn refused(&mut self) {
        while let Err(errors) =
            Config::from_text("migrated", &self.file(), &FlagOverrides::default())
        {
            let before = self.values.len();
            for error in errors.iter() {
                let Some((table, key)) = error.key.rsplit_once('.') else {
                    continue;
                };
                self.values.remove(&target(table, key));
                self.report
                    .push(format!("{}: not taken over: {}", error.key, error.problem));
            }
            if self.values.len() == before {
                break;
            }
        }
    }

    /// The file of criscope.
    fn file(&self) -> String {
        let mut tables: BTreeMap<&str, String> = BTreeMap::new();
        let handlers = self.handlers.iter();
        let handlers: Vec<_> = handlers.map(|name| handler_table(name)).collect();
        for table in &handlers {
            tables.entry(table).or_default();
        }
        for ((table, key), value) in &self.values {
            tables
                .entry(table)
                .or_default()
                .push_str(&format!("{key} = {value}\n"));
        }
        let tables = tables
            .into_iter()
            .map(|(table, lines)| format!("[{table}]\n{lines}"));
        tables.collect::<Vec<_>>().join("\n")
    }
}

fn target(table: &str, key: &str) -> TargetSetting {
    (table.to_owned(), key.to_owned())
}

fn handler_table(name: &str) -> String {
    format!("runtime.handlers.{}", quoted_key(name))
}

/// A name as a part of a key.
fn quoted_key(name: &str) -> String {
    let mut characters = name.chars();
    if !name.is_empty() && characters.all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

/// Returns whether a value has the same meaning as a missing key.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Boolean(on) => !on,
        Value::Integer(number) => *number == 0,
        Value::Array(list) => list.is_empty(),
        Value::Table(table) => table.is_empty(),
        Value::Float(_) | Value::Datetime(_) => false,
    }
}

#[cfg(test)]
mod tests;
