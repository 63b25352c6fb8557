//! A network configuration file: one plugin (`.conf`, `.json`) or a list (`.conflist`). Unknown keys are kept.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::error::ParseError;
use super::version::Version;

/// One network: a chain of plugins.
#[derive(Clone)]
pub struct Network {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) disable_check: bool,
    pub(crate) disable_gc: bool,
    pub(crate) plugins: Vec<Plugin>,
    pub(crate) source: PathBuf,
    /// The list as read: stored in the cache, from which the DEL reads it.
    pub(crate) list: Value,
}

/// One plugin of a network, with all its keys.
#[derive(Clone)]
pub struct Plugin {
    pub(crate) kind: String,
    pub(crate) conf: Map<String, Value>,
}

// Configurations may contain credentials of other systems: only names are shown.
impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("plugins", &self.plugins)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Plugin").field(&self.kind).finish()
    }
}

impl Network {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the specification that is used with its plugins.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The plugins, in the order of an ADD.
    #[must_use]
    pub fn plugins(&self) -> &[Plugin] {
        &self.plugins
    }

    /// The file it was read from.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Parses a file, whose kind depends on its extension, as in libcni.
    pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Self, ParseError> {
        let mut value = serde_json::from_slice::<Value>(text)?;
        if path
            .extension()
            .is_some_and(|extension| extension == "conflist")
        {
            if !inlined_only(&value) {
                add_subdir(path, &mut value)?;
            }
            return Self::from_list(path, value);
        }
        if value.get("type").is_none() {
            return Err(ParseError::NoType);
        }
        let list = json!({
            "name": value.get("name").cloned().unwrap_or_default(),
            "cniVersion": value.get("cniVersion").cloned().unwrap_or_default(),
            "plugins": [value],
        });
        Self::from_list(path, list)
    }

    /// The network of the plugin `loopback`.
    pub(crate) fn loopback() -> Self {
        let conf = Map::from_iter([("type".to_owned(), Value::from("loopback"))]);
        let list = json!({"cniVersion": "0.3.1", "name": "cni-loopback", "plugins": [conf]});
        Self {
            name: "cni-loopback".to_owned(),
            version: Version::V0_3_1,
            disable_check: false,
            disable_gc: false,
            plugins: vec![Plugin {
                kind: "loopback".to_owned(),
                conf,
            }],
            source: PathBuf::from("built in"),
            list,
        }
    }

    /// Validates a list, from a file or from the cache.
    pub(crate) fn from_list(source: &Path, list: Value) -> Result<Self, ParseError> {
        let name = list.get("name").and_then(Value::as_str).unwrap_or_default();
        if !valid_name(name) {
            return Err(ParseError::Name(name.to_owned()));
        }
        let plugins = list
            .get("plugins")
            .and_then(Value::as_array)
            .filter(|plugins| !plugins.is_empty())
            .ok_or(ParseError::Missing("plugins"))?
            .iter()
            .map(Plugin::parse)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: name.to_owned(),
            version: negotiate(&list)?,
            disable_check: flag(&list, "disableCheck")?,
            disable_gc: flag(&list, "disableGC")?,
            plugins,
            source: source.to_owned(),
            list,
        })
    }
}

impl Plugin {
    /// The type: the name of its program.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn parse(value: &Value) -> Result<Self, ParseError> {
        let conf = value.as_object().ok_or(ParseError::WrongType {
            key: "plugin",
            expected: "an object",
        })?;
        let kind = conf.get("type").and_then(Value::as_str).unwrap_or_default();
        if matches!(kind, "" | "." | "..") || kind.contains(['/', '\0']) {
            return Err(ParseError::Type(kind.to_owned()));
        }
        Ok(Self {
            kind: kind.to_owned(),
            conf: conf.clone(),
        })
    }

    /// Returns whether it declares a capability.
    #[must_use]
    pub fn declares(&self, capability: &str) -> bool {
        let declared = self
            .conf
            .get("capabilities")
            .and_then(|all| all.get(capability));
        declared.and_then(Value::as_bool).unwrap_or(false)
    }
}

fn inlined_only(list: &Value) -> bool {
    flag(list, "loadOnlyInlinedPlugins").unwrap_or(false)
}

/// Appends plugins from the directory next to the list that is named after the network (libcni 1.3).
fn add_subdir(path: &Path, list: &mut Value) -> Result<(), ParseError> {
    let name = list.get("name").and_then(Value::as_str).unwrap_or_default();
    if !valid_name(name) {
        return Ok(());
    }
    let dir = path.with_file_name(name);
    let Ok(entries) = std::fs::read_dir(&dir) else {
        return Ok(());
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "conf")
    });
    files.sort_unstable();
    for file in files {
        let plugin = read_plugin(&file).map_err(|source| ParseError::PluginFile {
            path: file,
            source: Box::new(source),
        })?;
        let Some(list) = list.as_object_mut() else {
            return Ok(());
        };
        if let Some(plugins) = list
            .entry("plugins")
            .or_insert_with(|| json!([]))
            .as_array_mut()
        {
            plugins.push(plugin);
        }
    }
    Ok(())
}

fn read_plugin(file: &Path) -> Result<Value, ParseError> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

/// Returns the newest supported version of `cniVersions` (1.1) and `cniVersion`.
fn negotiate(list: &Value) -> Result<Version, ParseError> {
    let one = list.get("cniVersion").and_then(Value::as_str);
    let many = list
        .get("cniVersions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let named: Vec<_> = many.filter_map(Value::as_str).chain(one).collect();
    named
        .iter()
        .filter_map(|text| Version::parse(text))
        .max()
        .ok_or_else(|| match named.first() {
            Some(version) => ParseError::Version((*version).to_owned()),
            None => ParseError::Missing("cniVersion"),
        })
}

/// libcni also accepts these flags as strings.
fn flag(list: &Value, key: &'static str) -> Result<bool, ParseError> {
    match list.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(ParseError::WrongType {
            key,
            expected: "a boolean",
        }),
    }
}

/// Returns whether this is a valid name of a network or container: a letter or digit, then also `_ . -`.
pub(crate) fn valid_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<Network, ParseError> {
        Network::parse(Path::new("/nowhere/1.conflist"), text.as_bytes())
    }

    #[test]
    fn a_single_plugin_becomes_a_list_with_all_its_keys() {
        let text = br#"{"cniVersion":"0.4.0","name":"a","type":"x","odd":{"key":[1]}}"#;
        let network = Network::parse(Path::new("/n/1.conf"), text).expect("valid");
        assert_eq!(
            (network.name(), network.version(), network.plugins().len()),
            ("a", Version::V0_4_0, 1)
        );
        assert_eq!(network.plugins[0].conf["odd"]["key"][0], 1);
    }

    #[test]
    fn the_newest_supported_version_is_negotiated() {
        let network = list(
            r#"{"cniVersion":"0.4.0","cniVersions":["1.0.0","1.1.0","2.0.0"],"name":"a","plugins":[{"type":"x"}]}"#,
        );
        assert_eq!(network.expect("valid").version(), Version::V1_1_0);
    }

    #[test]
    fn errors_of_invalid_files_name_the_mistake() {
        for (text, why) in [
            ("{", "not JSON"),
            ("[]", "name"),
            (r#"{"name":"a","cniVersion":"1.0.0"}"#, "no plugins"),
            (
                r#"{"name":"a","cniVersion":"1.0.0","plugins":[]}"#,
                "no plugins",
            ),
            (
                r#"{"name":"a","cniVersion":"9.0.0","plugins":[{"type":"x"}]}"#,
                "9.0.0",
            ),
            (r#"{"name":"a","plugins":[{"type":"x"}]}"#, "no cniVersion"),
            (
                r#"{"name":"../a","cniVersion":"1.0.0","plugins":[{"type":"x"}]}"#,
                "name",
            ),
            (
                r#"{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"../x"}]}"#,
                "type",
            ),
            (
                r#"{"name":"a","cniVersion":"1.0.0","plugins":[{}]}"#,
                "type",
            ),
            (
                r#"{"name":"a","cniVersion":"1.0.0","disableCheck":3,"plugins":[{"type":"x"}]}"#,
                "disableCheck",
            ),
        ] {
            let error = list(text).expect_err(text);
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }
}
