//! The configuration of an image: what a container of it runs unless it is told otherwise.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};

use super::digest::Digest;
use super::error::{Error, Result};
use super::platform::{Offered, Platform};

/// What containers of the image start with. `Debug` shows no value of it: environments hold secrets.
#[derive(Clone, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// The program and its first arguments.
    #[serde(deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    /// What follows the entrypoint, or the program if there is none.
    #[serde(deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    /// `NAME=value`.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty is root.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// Where it starts; empty is `/`.
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    /// Such as `SIGQUIT` or `3`; empty is `SIGTERM`.
    #[serde(deserialize_with = "or_default")]
    pub stop_signal: String,
    /// `port/protocol`.
    #[serde(deserialize_with = "keys")]
    pub exposed_ports: Vec<String>,
    /// Paths that the image wants to be volumes.
    #[serde(deserialize_with = "keys")]
    pub volumes: Vec<String>,
    /// Of the image.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

impl fmt::Debug for ImageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageConfig").finish_non_exhaustive()
    }
}

/// Docker writes `null` for what is empty.
fn or_default<'de, D, T>(deserializer: D) -> std::result::Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Go writes a set as a map to empty objects.
fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    let map: Option<BTreeMap<String, serde::de::IgnoredAny>> = Option::deserialize(deserializer)?;
    Ok(map.unwrap_or_default().into_keys().collect())
}

#[derive(Deserialize)]
struct Raw {
    #[serde(flatten)]
    platform: Offered,
    #[serde(default)]
    config: Option<ImageConfig>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default, deserialize_with = "or_default")]
    diff_ids: Vec<Digest>,
}

/// A configuration that was read.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) config: ImageConfig,
    /// Of the unpacked layers, from the bottom up.
    pub(super) diff_ids: Vec<Digest>,
    platform: Offered,
}

impl Parsed {
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let raw: Raw = serde_json::from_slice(bytes)
            .map_err(|error| Error::invalid("image configuration", error.to_string()))?;
        Ok(Self {
            config: raw.config.unwrap_or_default(),
            diff_ids: raw.rootfs.diff_ids,
            platform: raw.platform,
        })
    }

    /// Whether it runs here, and belongs to a manifest with so many layers.
    pub(super) fn check(&self, what: &str, layers: usize, platform: &Platform) -> Result<()> {
        // An image that says nothing is taken at its word, as containerd does.
        let silent = self.platform.os.is_empty() && self.platform.architecture.is_empty();
        if !silent && platform.fits(&self.platform).is_none() {
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
    fn as_docker_writes_it() {
        let text = r#"{"architecture":"amd64","os":"linux","config":{"Cmd":["sh"],"Entrypoint":null,"Env":["A=b"],
            "ExposedPorts":{"80/tcp":{}},"Volumes":null,"User":"1000:1000","WorkingDir":"/w","StopSignal":"SIGQUIT",
            "Labels":{"a":"b"},"OnBuild":null,"Healthcheck":{"Test":["CMD"]}},"rootfs":{"type":"layers","diff_ids":[]},
            "history":[{}],"created":"2026-01-01T00:00:00Z"}"#;
        let parsed = Parsed::read(text.as_bytes()).expect("a configuration");
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

    #[test]
    fn one_without_anything() {
        let parsed = Parsed::read(br#"{"rootfs":{}}"#).expect("a configuration");
        assert_eq!(parsed.config, ImageConfig::default());
        assert!(Parsed::read(b"{}").is_err());
    }
}
