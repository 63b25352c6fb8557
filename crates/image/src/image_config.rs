//! The configuration of an image (image-spec, "Image Configuration").

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use criscope_linux::rootfs::MAX_LAYERS;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::digest::Digest;
use super::error::{Error, Result};
use super::platform::{DeclaredPlatform, Platform};

/// The defaults for containers of an image. `Debug` shows no values, because environments contain secrets.
#[derive(Clone, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// The program and its first arguments.
    #[serde(deserialize_with = "bounded_list")]
    pub entrypoint: Vec<String>,
    /// Arguments of the entrypoint; the program and its arguments if there is no entrypoint.
    #[serde(deserialize_with = "bounded_list")]
    pub cmd: Vec<String>,
    /// `NAME=value`.
    #[serde(deserialize_with = "bounded_list")]
    pub env: Vec<String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty is root.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// The working directory; empty is `/`.
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    /// Such as `SIGQUIT` or `3`; empty is `SIGTERM`.
    #[serde(deserialize_with = "or_default")]
    pub stop_signal: String,
    /// `port/protocol`.
    #[serde(deserialize_with = "keys")]
    pub exposed_ports: Vec<String>,
    /// Paths of anonymous volumes.
    #[serde(deserialize_with = "keys")]
    pub volumes: Vec<String>,
}

/// The labels of an image. Containers do not need them, so they are not kept in memory.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Labels {
    #[serde(deserialize_with = "bounded_map")]
    labels: BTreeMap<String, String>,
}

/// Maximum number of items in one list or map.
const MAX_ITEMS: usize = 10_000;
/// Maximum bytes of a configuration kept in memory. A larger one could not be passed to a program.
const MAX_KEPT: usize = 256 << 10;
/// Approximate memory of an item besides its bytes.
const ITEM_COST: usize = 48;
/// Maximum bytes of the user, which every list of images contains.
const MAX_USER: usize = 512;

impl ImageConfig {
    /// Approximate memory it takes.
    fn cost(&self) -> usize {
        let lists = [
            &self.entrypoint,
            &self.cmd,
            &self.env,
            &self.exposed_ports,
            &self.volumes,
        ];
        let items = lists.into_iter().flatten();
        let texts = [&self.user, &self.working_dir, &self.stop_signal];
        items.chain(texts).map(|text| text.len() + ITEM_COST).sum()
    }

    fn check(&self) -> Result<()> {
        let too_large = |reason: String| {
            let what = "image configuration".to_owned();
            Err(Error::TooLarge { what, reason })
        };
        if self.user.len() > MAX_USER {
            return too_large(format!("a user of more than {MAX_USER} bytes"));
        }
        let cost = self.cost();
        if cost > MAX_KEPT {
            return too_large(format!(
                "what containers start with takes {cost} bytes, at most {MAX_KEPT} are kept"
            ));
        }
        Ok(())
    }
}

/// Parses the labels of a configuration.
pub(super) fn labels(bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Raw {
        #[serde(default)]
        config: Option<Labels>,
    }
    let raw: Raw = serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid("image configuration", error.to_string()))?;
    Ok(raw.config.unwrap_or_default().labels)
}

impl fmt::Debug for ImageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageConfig").finish_non_exhaustive()
    }
}

/// Docker writes `null` for empty values.
fn or_default<'de, D, T>(deserializer: D) -> std::result::Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A list or map of at most [`MAX_ITEMS`] items: three bytes of JSON can become an item many times that size.
struct Bounded<T>(T);

impl<'de> Deserialize<'de> for Bounded<Vec<String>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Bounded<Vec<String>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = list.next_element()? {
                    all.push(item);
                    check_length(all.len())?;
                }
                Ok(Bounded(all))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<BTreeMap<String, T>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Map<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
            type Value = Bounded<BTreeMap<String, T>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((key, value)) = map.next_entry()? {
                    all.insert(key, value);
                    check_length(all.len())?;
                }
                Ok(Bounded(all))
            }
        }
        deserializer.deserialize_map(Map(PhantomData))
    }
}

fn check_length<E: serde::de::Error>(length: usize) -> std::result::Result<(), E> {
    match length {
        0..=MAX_ITEMS => Ok(()),
        _ => Err(E::custom(format!("more than {MAX_ITEMS} items"))),
    }
}

fn bounded_list<'de, D>(deserializer: D) -> std::result::Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    let list = Option::<Bounded<Vec<String>>>::deserialize(deserializer)?;
    Ok(list.map_or_else(Vec::new, |list| list.0))
}

/// Also used for the annotations of a manifest.
pub(super) fn bounded_map<'de, D, T>(
    deserializer: D,
) -> std::result::Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let map = Option::<Bounded<BTreeMap<String, T>>>::deserialize(deserializer)?;
    Ok(map.map_or_else(BTreeMap::new, |map| map.0))
}

/// Go serialises a set as a map to empty objects.
fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    let map: BTreeMap<String, IgnoredAny> = bounded_map(deserializer)?;
    Ok(map.into_keys().collect())
}

#[derive(Deserialize)]
struct Raw {
    #[serde(flatten)]
    platform: DeclaredPlatform,
    #[serde(default)]
    config: Option<ImageConfig>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default, deserialize_with = "or_default")]
    diff_ids: Vec<Digest>,
}

/// A parsed configuration.
#[derive(Debug)]
pub(super) struct ParsedConfig {
    pub(super) config: ImageConfig,
    /// The diff IDs of the layers, from the base up.
    pub(super) diff_ids: Vec<Digest>,
    platform: DeclaredPlatform,
}

impl ParsedConfig {
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let raw: Raw = serde_json::from_slice(bytes)
            .map_err(|error| Error::invalid("image configuration", error.to_string()))?;
        let config = raw.config.unwrap_or_default();
        config.check()?;
        if raw.rootfs.diff_ids.len() > MAX_LAYERS {
            let reason = format!("more than the {MAX_LAYERS} layers that can be stacked");
            return Err(Error::invalid("image configuration", reason));
        }
        Ok(Self {
            config,
            diff_ids: raw.rootfs.diff_ids,
            platform: raw.platform,
        })
    }

    /// Checks that the image runs on the platform, and that the manifest has as many layers. WebAssembly runs on each, if the handler of the
    /// pod runs it; containerd does not look at the platform of an image that is not in an index.
    pub(super) fn check(&self, what: &str, layers: usize, platform: &Platform) -> Result<()> {
        // As in containerd, an image without a platform is accepted.
        let silent = self.platform.os.is_empty() && self.platform.architecture.is_empty();
        let is_wasm = self.platform.architecture == "wasm";
        if !silent && !is_wasm && platform.fits(&self.platform).is_none() {
            return Err(Error::NoPlatform {
                what: what.to_owned(),
                wanted: platform.to_string(),
                offered: self.platform.to_string(),
            });
        }
        if self.diff_ids.len() != layers {
            let reason = format!("{} diff ids for {layers} layers", self.diff_ids.len());
            return Err(Error::invalid("image configuration", reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_by_docker_is_parsed() {
        let text = r#"{"architecture":"amd64","os":"linux","config":{"Cmd":["sh"],"Entrypoint":null,"Env":["A=b"],
            "ExposedPorts":{"80/tcp":{}},"Volumes":null,"User":"1000:1000","WorkingDir":"/w","StopSignal":"SIGQUIT",
            "Labels":{"a":"b"},"OnBuild":null,"Healthcheck":{"Test":["CMD"]}},"rootfs":{"type":"layers","diff_ids":[]},
            "history":[{}],"created":"2026-01-01T00:00:00Z"}"#;
        let parsed = ParsedConfig::read(text.as_bytes()).expect("a configuration");
        let config = &parsed.config;
        assert_eq!((config.cmd.len(), config.entrypoint.len()), (1, 0));
        assert_eq!(config.exposed_ports, ["80/tcp"]);
        assert_eq!(config.user, "1000:1000");
        assert_eq!(config.stop_signal, "SIGQUIT");
        assert!(!format!("{config:?}").contains("A=b"));
        let mut platform = Platform::host();
        platform.architecture = "amd64".to_owned();
        assert!(parsed.check("x", 0, &platform).is_ok());
        assert!(parsed.check("x", 1, &platform).is_err());
        platform.architecture = "s390x".to_owned();
        assert!(matches!(
            parsed.check("x", 0, &platform),
            Err(Error::NoPlatform { .. })
        ));
    }

    /// As runwasi builds them (`wasi-demo-app`), and `docker buildx` with `--platform wasi/wasm`.
    #[test]
    fn webassembly_has_no_platform_of_a_machine() {
        for os in ["wasip1", "wasi"] {
            let text = format!(
                r#"{{"architecture":"wasm","os":"{os}","rootfs":{{"type":"layers","diff_ids":[]}}}}"#
            );
            let parsed = ParsedConfig::read(text.as_bytes()).expect("a configuration");
            assert!(parsed.check("x", 0, &Platform::host()).is_ok(), "{os}");
            assert!(parsed.check("x", 1, &Platform::host()).is_err(), "{os}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let read = |config: serde_json::Value| {
            let text = serde_json::json!({"config": config, "rootfs": {}}).to_string();
            (ParsedConfig::read(text.as_bytes()), labels(text.as_bytes()))
        };
        let many = vec![""; MAX_ITEMS + 1];
        let (error, _) = read(serde_json::json!({"Env": many}));
        assert!(error.expect_err("many").to_string().contains("10000"));
        let map: BTreeMap<_, _> = (0..=MAX_ITEMS).map(|n| (n.to_string(), "")).collect();
        for field in ["Volumes", "ExposedPorts"] {
            assert!(read(serde_json::json!({field: map})).0.is_err(), "{field}");
        }
        let (kept, labels) = read(serde_json::json!({"Labels": map}));
        assert!(kept.is_ok() && labels.is_err());
        let long = "x".repeat(MAX_KEPT);
        let (error, _) = read(serde_json::json!({"Cmd": [long]}));
        let error = error.expect_err("long");
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
        assert!(error.to_string().contains("262144"), "{error}");
        let (error, _) = read(serde_json::json!({"User": "x".repeat(MAX_USER + 1)}));
        assert!(error.is_err());
        let (kept, labels) = read(serde_json::json!({"Labels": {"a": long}, "Cmd": null}));
        assert!(kept.is_ok());
        assert_eq!(labels.expect("labels")["a"].len(), MAX_KEPT);
    }

    #[test]
    fn an_empty_configuration_is_accepted() {
        let parsed = ParsedConfig::read(br#"{"rootfs":{}}"#).expect("a configuration");
        assert_eq!(parsed.config, ImageConfig::default());
        assert!(ParsedConfig::read(b"{}").is_err());
    }
}
