//! The configuration file of criscope: written if there is none, kept if it fits.

use std::path::{Path, PathBuf};

use super::detect::{Distribution, WRITTEN_BY_INSTALL};
use super::plan::{InstallMode, PlanError};
use crate::config::{Config, FlagOverrides};
use crate::settings::{lexical, show_endpoint};

/// The file of the units.
pub(super) const CONFIG_PATH: &str = "/etc/criscope/criscope.toml";

/// The default of `server.listen`.
pub(super) const DEFAULT_LISTEN: &str = "/run/criscope/criscope.sock";

/// CRI-O is recognised by the end of its socket's path: a kubelet then reads statistics itself.
const CRIO_SOCKET_SUFFIX: &str = "run/crio/crio.sock";
const CRIO_ENDPOINT: &str = "/run/criscope/run/crio/crio.sock";

/// The annotated example.
const SAMPLE_CONFIG: &str = include_str!("../../deploy/criscope.toml");

/// The configuration in the packages: for containerd, and not a choice of the administrator.
pub(super) const PACKAGED_CONFIG: &str = include_str!("../../deploy/packaging/criscope.toml");

/// A configuration that `install` has not written.
#[derive(Debug)]
pub(super) struct ExistingConfig {
    text: String,
    config: Config,
}

impl ExistingConfig {
    /// The configuration file, unless it is the unchanged example or was written by an installation.
    pub(super) fn from_text(text: Option<String>) -> Result<Option<Self>, PlanError> {
        let Some(text) =
            text.filter(|text| text != SAMPLE_CONFIG && !text.starts_with(WRITTEN_BY_INSTALL))
        else {
            return Ok(None);
        };
        let config = Config::from_text(CONFIG_PATH, &text, &FlagOverrides::default())?;
        Ok(Some(Self { text, config }))
    }

    /// Returns whether this is a package's configuration, unchanged. Such a file is replaced where it does not fit.
    pub(super) fn is_packaged(&self) -> bool {
        self.text == PACKAGED_CONFIG
    }

    pub(super) fn endpoint(&self) -> &Path {
        &self.config.server.listen
    }

    fn upstreams(&self) -> impl Iterator<Item = PathBuf> {
        let backends = self.config.backends.iter();
        backends.filter_map(|backend| Some(lexical(backend.endpoint.as_deref()?)))
    }

    /// The runtime that it names.
    pub(super) fn upstream(&self) -> Option<PathBuf> {
        self.upstreams().next()
    }

    /// Returns the text, if it has the settings that the plan requires.
    pub(super) fn keep(self, wanted: &RequiredSettings<'_>) -> Result<String, PlanError> {
        match self.missing(wanted) {
            Some(needs) => Err(PlanError::Config {
                path: CONFIG_PATH.into(),
                needs,
            }),
            None => Ok(self.text),
        }
    }

    /// The first required setting that it does not have.
    fn missing(&self, wanted: &RequiredSettings<'_>) -> Option<String> {
        if lexical(self.endpoint()) != lexical(wanted.endpoint) {
            let endpoint = show_endpoint(wanted.endpoint);
            return Some(format!("server.listen = {endpoint:?}"));
        }
        match wanted.upstream {
            Some(upstream) if !self.upstreams().any(|found| found == lexical(upstream)) => {
                let endpoint = show_endpoint(upstream);
                Some(format!("a backend with endpoint = {endpoint:?}"))
            }
            None if self.config.runtime.is_none() => {
                Some("the built-in runtime as a backend".to_owned())
            }
            _ => None,
        }
    }
}

/// The upstream of a configuration that an installation wrote.
pub(super) fn written_upstream(text: Option<&str>) -> Option<PathBuf> {
    let text = text.filter(|text| text.starts_with(WRITTEN_BY_INSTALL))?;
    let config = Config::from_text(CONFIG_PATH, text, &FlagOverrides::default()).ok()?;
    config.backends.first()?.endpoint.clone()
}

/// Settings that the plan requires of the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequiredSettings<'a> {
    pub(super) endpoint: &'a Path,
    /// `None` for the built-in runtime.
    pub(super) upstream: Option<&'a Path>,
    pub(super) distribution: Distribution,
}

/// The endpoint in front of a runtime.
pub(super) fn endpoint(upstream: &Path, mode: InstallMode) -> PathBuf {
    let crio = mode == InstallMode::Front && show_endpoint(upstream).ends_with(CRIO_SOCKET_SUFFIX);
    PathBuf::from(if crio { CRIO_ENDPOINT } else { DEFAULT_LISTEN })
}

/// A new configuration.
pub(super) fn write(wanted: &RequiredSettings<'_>) -> String {
    let mut text = format!(
        "{WRITTEN_BY_INSTALL}# All settings: https://github.com/criscope/criscope/blob/main/docs/CONFIG.md\n"
    );
    if wanted.endpoint != Path::new(DEFAULT_LISTEN) {
        // By default these paths are next to the socket, where the service may not write.
        text.push_str(&format!(
            "\n[server]\nlisten = {:?}\n\n[admin]\nsocket = \"unix:///run/criscope/criscope.admin.sock\"\n",
            show_endpoint(wanted.endpoint)
        ));
    }
    let kubelet = match wanted.distribution {
        Distribution::MicroK8s => Some("/var/snap/microk8s/common/var/lib/kubelet"),
        _ => None,
    };
    let state = wanted.endpoint != Path::new(DEFAULT_LISTEN);
    if state || kubelet.is_some() {
        text.push_str("\n[story]\n");
    }
    if state {
        text.push_str("state_dir = \"/run/criscope/criscope.state\"\n");
    }
    if let Some(directory) = kubelet {
        text.push_str(&format!("kubelet_dir = {directory:?}\n"));
    }
    if let Some(upstream) = wanted.upstream {
        let shown = show_endpoint(upstream);
        let name = match () {
            () if shown.contains("crio") => "crio",
            () if shown.contains("containerd") => "containerd",
            () if shown.contains("dockerd") => "cri-dockerd",
            () => "upstream",
        };
        text.push_str(&format!(
            "\n[backends.{name}]\nkind = \"upstream\"\nendpoint = {shown:?}\n"
        ));
    }
    text
}
