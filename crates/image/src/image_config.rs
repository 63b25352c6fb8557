//! The configuration of an image (image-spec, "Image Configuration").

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use criscope_linux::rootfs::{MAX_LAYERS, MAX_LISTED_LAYERS};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::digest::Digest;
use super::error::{Error, Result};
use super::json::{self, bounded_list, bounded_map, members, words};
use super::platform::{Fit, Platform};

/// The defaults for containers of an image. `Debug` shows no values, because environments contain secrets.
#[derive(Clone, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// The program and its first arguments.
    #[serde(deserialize_with = "words")]
    pub entrypoint: Vec<String>,
    /// Arguments of the entrypoint; the program and its arguments if there is no entrypoint.
    #[serde(deserialize_with = "words")]
    pub cmd: Vec<String>,
    /// `NAME=value`.
    #[serde(deserialize_with = "bounded_list")]
    pub env: Vec<String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty is root.
    pub user: String,
    /// The working directory; empty is `/`.
    pub working_dir: String,
    /// Such as `SIGQUIT` or `3`; empty is `SIGTERM`.
    pub stop_signal: String,
    /// `port/protocol`.
    #[serde(deserialize_with = "members")]
    pub exposed_ports: Vec<String>,
    /// Paths of anonymous volumes.
    #[serde(deserialize_with = "members")]
    pub volumes: Vec<String>,
}

/// The labels of an image. Containers do not need them, so they are not kept in memory.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Labels {
    #[serde(deserialize_with = "bounded_map")]
    labels: BTreeMap<String, String>,
}

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

    /// Applies the conventions of Docker and containerd for what images contain.
    fn normalize(&mut self) {
        // `ENTRYPOINT [""]` removes the entrypoint of a base image (moby `daemon/create.go`, containerd `WithProcessArgs`).
        if self.entrypoint.iter().all(String::is_empty) {
            self.entrypoint.clear();
        }
        // A variable without a value is one to be removed, and none has an empty name (moby `ReplaceOrAppendEnvValues`).
        self.env
            .retain(|variable| variable.find('=').is_some_and(|at| at > 0));
        for text in [&mut self.user, &mut self.stop_signal] {
            let trimmed = text.trim();
            if trimmed.len() < text.len() {
                *text = trimmed.to_owned();
            }
        }
        // A relative one is below the root: there is nothing else that it could be relative to.
        if !self.working_dir.is_empty() && !self.working_dir.starts_with('/') {
            self.working_dir.insert(0, '/');
        }
        for members in [&mut self.exposed_ports, &mut self.volumes] {
            members.retain(|member| !member.is_empty());
        }
    }

    fn check(&self) -> Result<()> {
        if self.user.len() > MAX_USER {
            let reason = format!("a user of more than {MAX_USER} bytes");
            return Err(Error::too_large("image configuration", reason));
        }
        let cost = self.cost();
        if cost > MAX_KEPT {
            let reason = format!(
                "what containers start with takes {cost} bytes, at most {MAX_KEPT} are kept"
            );
            return Err(Error::too_large("image configuration", reason));
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
    let raw: Raw = json::from_slice(bytes)
        .map_err(|error| Error::invalid("image configuration", error.to_string()))?;
    Ok(raw.config.unwrap_or_default().labels)
}

impl fmt::Debug for ImageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageConfig").finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw {
    os: String,
    architecture: String,
    variant: String,
    config: ImageConfig,
    rootfs: RootFs,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RootFs {
    diff_ids: Vec<Digest>,
}

/// Returns whether a document is the configuration of an image to run, and not that of an artifact: it has a list of layers.
pub(super) fn is_image_config(bytes: &[u8]) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Probe {
        rootfs: Layers,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Layers {
        r#type: String,
        diff_ids: Option<IgnoredAny>,
    }
    let probe: Probe = json::from_slice(bytes).unwrap_or_default();
    probe.rootfs.diff_ids.is_some() || probe.rootfs.r#type == "layers"
}

/// A parsed configuration.
#[derive(Debug)]
pub(super) struct ParsedConfig {
    pub(super) config: ImageConfig,
    /// The diff IDs of the layers, from the base up.
    pub(super) diff_ids: Vec<Digest>,
    pub(super) platform: Platform,
}

impl ParsedConfig {
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let raw: Raw = json::from_slice(bytes)
            .map_err(|error| Error::invalid("image configuration", error.to_string()))?;
        let mut config = raw.config;
        config.normalize();
        config.check()?;
        let diff_ids = raw.rootfs.diff_ids;
        let different: BTreeSet<_> = diff_ids.iter().collect();
        if different.len() > MAX_LAYERS || diff_ids.len() > MAX_LISTED_LAYERS {
            let reason = format!("more than the {MAX_LAYERS} layers that can be stacked");
            return Err(Error::invalid("image configuration", reason));
        }
        Ok(Self {
            config,
            diff_ids,
            platform: Platform {
                os: raw.os,
                architecture: raw.architecture,
                variant: raw.variant,
            },
        })
    }

    /// Returns whether the configuration names this platform. WebAssembly runs on each, if the handler of the pod runs it.
    pub(super) fn fit(&self, platform: &Platform) -> Fit {
        match self.platform.architecture.as_str() {
            "wasm" => Fit::Runs,
            _ => platform.fit(&self.platform),
        }
    }

    /// The error for an image of another platform.
    pub(super) fn other_platform(&self, what: &str, platform: &Platform) -> Error {
        Error::NoPlatform {
            what: what.to_owned(),
            wanted: platform.to_string(),
            offered: self.platform.to_string(),
        }
    }

    /// Checks that the manifest has as many layers.
    pub(super) fn check_layers(&self, layers: usize) -> Result<()> {
        if self.diff_ids.len() == layers {
            return Ok(());
        }
        let reason = format!("{} diff ids for {layers} layers", self.diff_ids.len());
        Err(Error::invalid("image configuration", reason))
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
        platform.variant.clear();
        assert_eq!(parsed.fit(&platform), Fit::Runs);
        assert!(parsed.check_layers(0).is_ok() && parsed.check_layers(1).is_err());
        platform.architecture = "s390x".to_owned();
        assert_eq!(parsed.fit(&platform), Fit::Other);
    }

    /// As runwasi builds them (`wasi-demo-app`), and `docker buildx` with `--platform wasi/wasm`.
    #[test]
    fn webassembly_has_no_platform_of_a_machine() {
        for os in ["wasip1", "wasi"] {
            let text = format!(
                r#"{{"architecture":"wasm","os":"{os}","rootfs":{{"type":"layers","diff_ids":[]}}}}"#
            );
            let parsed = ParsedConfig::read(text.as_bytes()).expect("a configuration");
            assert_eq!(parsed.fit(&Platform::host()), Fit::Runs, "{os}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let read = |config: serde_json::Value| {
            let text = serde_json::json!({"config": config, "rootfs": {}}).to_string();
            (ParsedConfig::read(text.as_bytes()), labels(text.as_bytes()))
        };
        let many = vec![""; json::MAX_ITEMS + 1];
        let (error, _) = read(serde_json::json!({"Env": many}));
        assert!(error.expect_err("many").to_string().contains("10000"));
        let map: BTreeMap<_, _> = (0..=json::MAX_ITEMS).map(|n| (n.to_string(), "")).collect();
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
        for text in [
            r#"{"rootfs":{}}"#,
            "{}",
            r#"{"rootfs":null,"config":null,"os":null}"#,
        ] {
            let parsed = ParsedConfig::read(text.as_bytes()).expect("a configuration");
            assert_eq!(parsed.config, ImageConfig::default());
            assert_eq!(parsed.fit(&Platform::host()), Fit::Silent);
            assert!(parsed.check_layers(1).is_err());
        }
    }

    fn config(value: &serde_json::Value) -> ImageConfig {
        let text = serde_json::json!({"config": value}).to_string();
        let parsed = ParsedConfig::read(text.as_bytes());
        parsed
            .unwrap_or_else(|error| panic!("{value}: {error}"))
            .config
    }

    #[test]
    fn commands_are_read_as_docker_reads_them() {
        use serde_json::json;
        for (value, words) in [
            (json!(["a", "b"]), &["a", "b"][..]),
            (json!("a b"), &["a b"]),
            (json!(["a", null]), &["a", ""]),
            (json!(""), &[]),
            (json!([]), &[]),
            (json!(null), &[]),
        ] {
            let read = config(&json!({"Cmd": value, "Entrypoint": value}));
            assert_eq!(read.cmd, words, "{value}");
            assert_eq!(read.entrypoint, words, "{value}");
        }
        // It stands for none, and an empty argument is one.
        let read = config(&json!({"Entrypoint": [""], "Cmd": ["sh"]}));
        assert!(read.entrypoint.is_empty() && read.cmd == ["sh"]);
        assert_eq!(config(&json!({"Entrypoint": ["a"], "Cmd": [""]})).cmd, [""]);
        let text = br#"{"config":{"Cmd":7}}"#;
        assert!(ParsedConfig::read(text).is_err());
    }

    #[test]
    fn what_programs_write_beside_the_specification_is_understood() {
        use serde_json::json;
        let read = config(&json!({
            "Env": ["A=b=c", "NOTHING", "=x", "", null, "B="],
            "User": " 1000:1000\n", "WorkingDir": "app/dir", "StopSignal": " SIGTERM ",
            "ExposedPorts": ["80/tcp", "80/tcp", "", "53/udp"], "Volumes": {"/v": null, "": {}},
            "Healthcheck": {"Test": null}, "ArgsEscaped": true, "OnBuild": null, "Shell": "x", "Labels": null,
            "AttachStdin": false, "Domainname": "", "MacAddress": 1,
        }));
        assert_eq!(read.env, ["A=b=c", "B="]);
        assert_eq!(
            (read.user.as_str(), read.working_dir.as_str()),
            ("1000:1000", "/app/dir")
        );
        assert_eq!(read.stop_signal, "SIGTERM");
        assert_eq!(read.exposed_ports, ["53/udp", "80/tcp"]);
        assert_eq!(read.volumes, ["/v"]);
        let nothing = config(
            &json!({"Env": null, "User": null, "WorkingDir": null, "StopSignal": null,
            "ExposedPorts": null, "Volumes": null, "Cmd": null, "Entrypoint": null}),
        );
        assert_eq!(nothing, ImageConfig::default());
        // Names in another case, the last of two, and bytes that are no text.
        let text = b"{\"CONFIG\":{\"cmd\":[\"a\"],\"env\":[\"A=\xff\"],\"Cmd\":[\"b\"]}}";
        let parsed = ParsedConfig::read(text).expect("a configuration");
        assert_eq!(
            (&parsed.config.cmd[..], &parsed.config.env[..]),
            (&["b".to_owned()][..], &["A=\u{fffd}".to_owned()][..])
        );
    }

    #[test]
    fn a_layer_may_occur_more_often_than_layers_can_be_stacked() {
        let read = |ids: Vec<Digest>| {
            let text = serde_json::json!({"rootfs": {"diff_ids": ids}}).to_string();
            ParsedConfig::read(text.as_bytes())
        };
        let id = |number: usize| Digest::sha256(number.to_string().as_bytes());
        assert!(read((0..MAX_LAYERS).map(id).collect()).is_ok());
        assert!(read((0..=MAX_LAYERS).map(id).collect()).is_err());
        assert!(read(vec![id(0); MAX_LAYERS + 1]).is_ok());
        assert!(read(vec![id(0); MAX_LISTED_LAYERS + 1]).is_err());
    }

    #[test]
    fn a_list_of_layers_tells_an_image_from_an_artifact() {
        for text in [
            r#"{"rootfs":{"type":"layers","diff_ids":[]}}"#,
            r#"{"rootfs":{"type":"layers","diff_ids":null}}"#,
            r#"{"RootFS":{"diff_ids":["x"]}}"#,
        ] {
            assert!(is_image_config(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"rootfs":{}}"#,
            r#"{"rootfs":"layers"}"#,
            "hello",
        ] {
            assert!(!is_image_config(text.as_bytes()), "{text}");
        }
    }
}
