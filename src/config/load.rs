//! Reads a configuration from a file and its drop-in files, or from standard input.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use toml::de::DeTable;

use super::Config;
use crate::proxy::backend::settings::UPSTREAM;
use crate::settings::merge::{merge, origins};
use crate::settings::reader::{FlagValue, SourceText, parse};
use crate::settings::{
    ConfigError, ConfigErrors, ConfigProblem, SettingsReader, SettingsSchema, ValueOrigins,
    ValuePlace, check_shape,
};

/// The directory of drop-in files, next to the configuration file.
const DROP_IN_DIRECTORY: &str = "conf.d";

/// Command line flags that replace keys of the file, as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlagOverrides {
    /// `--listen`: replaces `server.listen`.
    pub listen: Option<String>,
    /// `--upstream`: adds the backend `upstream`, or replaces its endpoint.
    pub upstream: Option<String>,
    /// `--admin`: replaces `admin.listen`.
    pub admin: Option<String>,
}

/// A configuration and its source, so that it can be read again.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The settings.
    pub config: Config,
    /// The file; `None` if there is none, `-` for standard input.
    pub path: Option<PathBuf>,
    /// The drop-in files, in the order in which they were read.
    pub drop_ins: Vec<PathBuf>,
    /// Where each value is written that is not a default.
    pub origins: ValueOrigins,
    /// The flags.
    pub overrides: FlagOverrides,
}

/// A file and its text.
#[derive(Debug)]
struct ConfigSource {
    name: String,
    text: String,
}

impl FlagOverrides {
    /// The flags that replace one key each.
    fn keys(&self) -> Vec<FlagValue<'_>> {
        let flags = [
            ("server.listen", "--listen", &self.listen),
            ("admin.listen", "--admin", &self.admin),
        ];
        let flags = flags.into_iter().filter_map(|(key, name, text)| {
            let text = text.as_deref()?;
            Some(FlagValue { key, name, text })
        });
        flags.collect()
    }

    /// The keys that the flags set.
    fn origins(&self) -> ValueOrigins {
        let mut origins: ValueOrigins = self
            .keys()
            .iter()
            .map(|flag| (flag.key.to_owned(), ValuePlace::Flag(flag.name)))
            .collect();
        if self.upstream.is_some() {
            let key = format!("backends.{UPSTREAM}.endpoint");
            origins.insert(key, ValuePlace::Flag("--upstream"));
        }
        origins
    }
}

impl LoadedConfig {
    /// Reads the files again, added ones too, with the same flags. Without a file the result is the same.
    ///
    /// # Errors
    /// As [`Config::load`], and if the configuration came from standard input.
    pub fn reload(&self) -> Result<Self, ConfigErrors> {
        match &self.path {
            Some(path) if is_stdin(path) => {
                let problem = ConfigProblem::ReadOnce;
                Err(whole(&name_of(path), problem).into())
            }
            path => Config::load(path.as_deref(), &self.overrides),
        }
    }
}

impl Config {
    /// Reads a file (`-` is standard input) and its drop-in files `conf.d/*.toml`, in lexical order; flags
    /// replace their keys.
    ///
    /// # Errors
    /// All errors, each with its position and key. If a text is not TOML, only syntax errors.
    pub fn load(path: Option<&Path>, flags: &FlagOverrides) -> Result<LoadedConfig, ConfigErrors> {
        let Some(path) = path else {
            return Ok(LoadedConfig {
                config: finish(
                    SettingsReader::new(vec![SourceText::EMPTY], None, flags.keys()),
                    flags,
                )?,
                path: None,
                drop_ins: Vec::new(),
                origins: flags.origins(),
                overrides: flags.clone(),
            });
        };
        let drop_ins = drop_ins(path)?;
        let mut sources = vec![source(path)?];
        for path in &drop_ins {
            sources.push(source(path)?);
        }
        let (config, mut origins) = from_sources(&sources, flags)?;
        origins.extend(flags.origins());
        Ok(LoadedConfig {
            config,
            path: Some(path.to_owned()),
            drop_ins,
            origins,
            overrides: flags.clone(),
        })
    }

    /// Reads a text; errors refer to it as `name`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_text(name: &str, text: &str, flags: &FlagOverrides) -> Result<Self, ConfigErrors> {
        let source = ConfigSource {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        Ok(from_sources(&[source], flags)?.0)
    }
}

/// Reads texts; values of later ones replace values of earlier ones.
fn from_sources(
    sources: &[ConfigSource],
    flags: &FlagOverrides,
) -> Result<(Config, ValueOrigins), ConfigErrors> {
    let mut texts = Vec::new();
    let mut root = DeTable::new();
    let mut errors = Vec::new();
    let mut base = 0;
    for ConfigSource { name, text } in sources {
        let text = SourceText { name, text, base };
        match parse(text) {
            Ok(table) => merge(&mut root, table, base),
            Err(found) => errors.extend(found),
        }
        base += text.text.len() + 1;
        texts.push(text);
    }
    ConfigErrors::from_list(errors)?;
    let origins = origins(&root, &texts);
    let mut reader = SettingsReader::new(texts, Some(&root), flags.keys());
    check_shape(
        &mut reader,
        &root,
        &SettingsSchema::from_section::<Config>(),
    );
    Ok((finish(reader, flags)?, origins))
}

/// The drop-in files of a configuration file, in lexical order. Hidden files are left out, as editors and configuration
/// managers leave some behind.
fn drop_ins(path: &Path) -> Result<Vec<PathBuf>, ConfigErrors> {
    if is_stdin(path) {
        return Ok(Vec::new());
    }
    let dir = path.with_file_name(DROP_IN_DIRECTORY);
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(&dir, error).into()),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| unreadable(&dir, error))?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|end| end == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn source(path: &Path) -> Result<ConfigSource, ConfigErrors> {
    let name = name_of(path);
    match read(path) {
        Ok(text) => Ok(ConfigSource { name, text }),
        Err(error) => Err(unreadable(path, error).into()),
    }
}

fn unreadable(path: &Path, error: io::Error) -> ConfigError {
    whole(&name_of(path), ConfigProblem::Unreadable(error))
}

fn finish(mut reader: SettingsReader<'_>, flags: &FlagOverrides) -> Result<Config, ConfigErrors> {
    let config = Config::read(&mut reader, flags.upstream.as_deref());
    ConfigErrors::from_list(reader.errors)?;
    Ok(config)
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn name_of(path: &Path) -> String {
    if is_stdin(path) {
        "<stdin>".to_owned()
    } else {
        path.display().to_string()
    }
}

fn read(path: &Path) -> io::Result<String> {
    if is_stdin(path) {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(path)
}

fn whole(file: &str, problem: ConfigProblem) -> ConfigError {
    ConfigError {
        place: ValuePlace::File {
            file: file.to_owned(),
        },
        key: String::new(),
        problem,
    }
}
