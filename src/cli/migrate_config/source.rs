//! Reads the configuration of another runtime with its drop-in files, as one list of keys.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use toml::{Table, Value};

/// Why the configuration of another runtime cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceConfigError {
    /// A file or directory cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file is not TOML. Its text may hold a password, so the parser's quotation of it is left out.
    #[error("{} is not valid TOML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        message: String,
    },
    /// containerd would refuse this version as well.
    #[error("{} has version {version}; versions 1, 2 and 3 are known", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version of the configuration.
        version: i64,
    },
}

/// A key by its parts, and its value.
pub(super) type SourceSetting = (Vec<String>, Value);

/// Reads containerd's configuration and its imports. Later files win.
pub(super) fn containerd(path: &Path) -> Result<Vec<SourceSetting>, SourceConfigError> {
    let mut all = Table::new();
    import(path, &mut all, &mut BTreeSet::new())?;
    let version = all.get("version").and_then(Value::as_integer).unwrap_or(1);
    if !(1..=3).contains(&version) {
        let path = path.to_owned();
        return Err(SourceConfigError::Version { path, version });
    }
    let mut leaves = Vec::new();
    flatten(&mut Vec::new(), all, &mut leaves);
    for (key, _) in &mut leaves {
        short(key);
    }
    leaves.retain(|(key, _)| !matches!(key[0].as_str(), "version" | "imports"));
    Ok(leaves)
}

fn import(
    path: &Path,
    all: &mut Table,
    seen: &mut BTreeSet<PathBuf>,
) -> Result<(), SourceConfigError> {
    if !seen.insert(path.to_owned()) {
        return Ok(());
    }
    let table = read(path)?;
    let imports = table.get("imports").and_then(Value::as_array);
    let imports = imports.into_iter().flatten().filter_map(Value::as_str);
    let imports: Vec<_> = imports.map(str::to_owned).collect();
    merge(all, table);
    for pattern in imports {
        // Relative paths start at the directory of the file that names them.
        let pattern = path.parent().unwrap_or(Path::new("/")).join(pattern);
        for path in matching(&pattern)? {
            import(&path, all, seen)?;
        }
    }
    Ok(())
}

/// Reads CRI-O's configuration with its drop-in files. Later files win.
pub(super) fn crio(path: &Path) -> Result<Vec<SourceSetting>, SourceConfigError> {
    let mut all = Table::new();
    // A node may have drop-in files only.
    let drop_ins = matching(&path.with_file_name("crio.conf.d").join("*"))?;
    if path.exists() || drop_ins.is_empty() {
        merge(&mut all, read(path)?);
    }
    for path in drop_ins {
        merge(&mut all, read(&path)?);
    }
    let mut leaves = Vec::new();
    flatten(&mut Vec::new(), all, &mut leaves);
    Ok(leaves)
}

fn read(path: &Path) -> Result<Table, SourceConfigError> {
    let text = fs::read_to_string(path).map_err(|source| SourceConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    text.parse()
        .map_err(|error: toml::de::Error| SourceConfigError::Syntax {
            path: path.to_owned(),
            message: error.message().to_owned(),
        })
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(here)), Value::Table(table)) => merge(here, table),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// The files of a pattern whose last part may have `*`, in lexical order. A plain path must exist, a directory need not.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, SourceConfigError> {
    let name = pattern.file_name().and_then(|name| name.to_str());
    let (Some(dir), Some(name)) = (pattern.parent(), name) else {
        return Ok(Vec::new());
    };
    if !name.contains('*') {
        return Ok(vec![pattern.to_owned()]);
    }
    let mut files = paths_in(dir).map_err(|source| SourceConfigError::Read {
        path: dir.to_owned(),
        source,
    })?;
    files.retain(|path| {
        let found = path.file_name().and_then(|name| name.to_str());
        path.is_file() && found.is_some_and(|found| fits(name, found))
    });
    files.sort();
    Ok(files)
}

/// The paths in a directory; none if it does not exist.
fn paths_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Returns whether a name fits a pattern with `*`.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|left| {
            let ends = (0..=left.len()).filter(|at| left.is_char_boundary(*at));
            ends.into_iter().any(|at| fits(rest, &left[at..]))
        }),
    }
}

fn flatten(at: &mut Vec<String>, table: Table, to: &mut Vec<SourceSetting>) {
    for (key, value) in table {
        at.push(key);
        match value {
            // An empty table may be a handler with defaults only.
            Value::Table(table) if !table.is_empty() => flatten(at, table, to),
            value => to.push((at.clone(), value)),
        }
        at.pop();
    }
}

/// Keys of the CRI plugin have the same names in all versions, which differ in the plugins they belong to. `tasks` reads files of
/// classes.
fn short(key: &mut Vec<String>) {
    if key.len() < 3 || key[0] != "plugins" {
        return;
    }
    let short = match key[1].as_str() {
        "cri"
        | "io.containerd.grpc.v1.cri"
        | "io.containerd.cri.v1.runtime"
        | "io.containerd.cri.v1.images" => "cri",
        "io.containerd.nri.v1.nri" => "nri",
        "tasks-service" | "io.containerd.service.v1.tasks-service" => "tasks",
        _ => return,
    };
    key.splice(0..2, [short.to_owned()]);
}
