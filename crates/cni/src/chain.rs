//! One verb over the plugins of one network.

use std::time::Instant;

use serde_json::{Map, Value};

use super::capabilities::runtime_config;
use super::conf::{Network, Plugin};
use super::error::{Error, Verb};
use super::exec::{Run, first_missing, missing};
use super::host_local::{self, data_dir, ipam_type};
use super::network::blocking;
use super::observer::{Invocation, PluginRun};
use super::pod::Attachment;
use super::result::CniResult;
use super::settings::Settings;
use super::version::Version;

/// The capability of plugins that forward ports.
const PORT_MAPPINGS: &str = "portMappings";

/// An attachment of a network.
pub(crate) struct Chain<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) network: &'a Network,
    /// Empty for STATUS and GC, which do not concern one container.
    pub(crate) container: &'a str,
    /// Empty if the namespace no longer exists.
    pub(crate) netns: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) args: &'a [(String, String)],
    pub(crate) capabilities: &'a Map<String, Value>,
    pub(crate) deadline: Instant,
}

impl Chain<'_> {
    /// Checks before an ADD that all plugins are installed: one that failed at a missing plugin could not be rolled back either.
    pub(crate) async fn check_installed(&self) -> Result<(), Error> {
        let Some(plugin) = self.missing().await? else {
            return Ok(());
        };
        let failure = async { Err(missing(&plugin.kind, &self.settings.bin_dirs)) };
        let observed = self.observed(Verb::Add, plugin, Box::pin(failure));
        observed.await.map(drop)
    }

    /// Runs the plugins forward, each with the result of the previous one.
    pub(crate) async fn add(&self) -> Result<CniResult, Error> {
        let mut last = None;
        for plugin in &self.network.plugins {
            let output = self.run(Verb::Add, plugin, last.as_ref(), None).await?;
            let result = CniResult::parse(&output, self.network.version).map_err(|error| {
                Error::BadResult {
                    plugin: plugin.kind.clone(),
                    verb: Verb::Add,
                    why: error.to_string(),
                }
            })?;
            last = Some(result.in_version(self.network.version));
        }
        last.ok_or_else(|| Error::NotReady {
            why: format!("network {} has no plugins", self.network.name),
        })
    }

    /// Runs the plugins backward and stops at the first failure, as the specification requires: the first attachment (an
    /// address) must not be released while something that depends on it (a forwarded port) still exists.
    ///
    /// Plugins that are not installed are passed over, and returned: they would keep the pod for ever. In place of one that has an
    /// address, the plugin is called that manages addresses. If one forwards ports, it is the last, so that no other pod gets the
    /// address of these ports.
    pub(crate) async fn del(&self, result: Option<&CniResult>) -> Result<Vec<String>, Error> {
        let result = result.filter(|_| self.network.version >= Version::V0_4_0);
        let mut missing = Vec::new();
        for plugin in self.network.plugins.iter().rev() {
            match self.run(Verb::Del, plugin, result, None).await {
                Err(Error::PluginMissing { plugin: kind, .. }) => {
                    missing.push(kind);
                    if self.forwards_ports(plugin) {
                        break;
                    }
                    missing.extend(self.release_address(plugin, result).await?);
                }
                done => drop(done?),
            }
        }
        Ok(missing)
    }

    /// Returns whether a plugin forwards ports of the node to the pod.
    fn forwards_ports(&self, plugin: &Plugin) -> bool {
        let ports = self.capabilities.get(PORT_MAPPINGS);
        let ports = ports.and_then(Value::as_array);
        plugin.declares(PORT_MAPPINGS) && ports.is_some_and(|ports| !ports.is_empty())
    }

    /// Releases the address that a plugin would release which is not installed. Returns the plugin that manages addresses if that is
    /// not installed either, and the address cannot be released without it.
    async fn release_address(
        &self,
        plugin: &Plugin,
        result: Option<&CniResult>,
    ) -> Result<Option<String>, Error> {
        let Some(kind) = ipam_type(plugin) else {
            return Ok(None);
        };
        // It gets the configuration of the plugin that calls it (specification, section 4).
        let ipam = Plugin {
            kind: kind.to_owned(),
            conf: plugin.conf.clone(),
        };
        match self.run(Verb::Del, &ipam, result, None).await {
            Err(Error::PluginMissing { .. }) => {}
            done => return done.map(|_| None),
        }
        let Some(dir) = data_dir(plugin) else {
            return Ok(Some(ipam.kind));
        };
        let network = self.network.name.clone();
        let (container, interface) = (self.container.to_owned(), self.interface.to_owned());
        blocking(move || {
            let released = host_local::release(&dir, Some(&network), &container, Some(&interface));
            released.map_err(|error| Error::cache("release", &dir, error))
        })
        .await?;
        Ok(None)
    }

    /// Runs the plugins forward. `Ok` if the version has no CHECK or the network disables it.
    pub(crate) async fn check(&self, result: &CniResult) -> Result<(), Error> {
        if self.network.version < Version::V0_4_0 || self.network.disable_check {
            return Ok(());
        }
        for plugin in &self.network.plugins {
            self.run(Verb::Check, plugin, Some(result), None).await?;
        }
        Ok(())
    }

    async fn missing(&self) -> Result<Option<&Plugin>, Error> {
        let plugins = &self.network.plugins;
        let kinds = plugins.iter().map(|plugin| &*plugin.kind);
        let number = first_missing(kinds, &self.settings.bin_dirs).await?;
        Ok(number.and_then(|number| plugins.get(number)))
    }

    /// Returns whether one of its plugins is not installed.
    pub(crate) async fn lacks_plugins(&self) -> bool {
        matches!(self.missing().await, Ok(Some(_)))
    }

    /// Checks that all plugins are installed, and runs them forward if the version has STATUS.
    pub(crate) async fn status(&self) -> Result<(), Error> {
        if let Some(plugin) = self.missing().await? {
            return Err(missing(&plugin.kind, &self.settings.bin_dirs));
        }
        if self.network.version < Version::V1_1_0 {
            return Ok(());
        }
        for plugin in &self.network.plugins {
            self.run(Verb::Status, plugin, None, None).await?;
        }
        Ok(())
    }

    /// Runs every plugin, even if one fails.
    pub(crate) async fn gc(&self, keep: &[Attachment]) -> Result<(), Error> {
        if self.network.version < Version::V1_1_0 || self.network.disable_gc {
            return Ok(());
        }
        let valid = keep
            .iter()
            .map(|one| serde_json::json!({"containerID": one.container, "ifname": one.interface}))
            .collect();
        let valid = Value::Array(valid);
        let mut errors = Vec::new();
        for plugin in &self.network.plugins {
            errors.extend(self.run(Verb::Gc, plugin, None, Some(&valid)).await.err());
        }
        Error::combine(errors)
    }

    async fn run(
        &self,
        verb: Verb,
        plugin: &Plugin,
        result: Option<&CniResult>,
        valid: Option<&Value>,
    ) -> Result<Vec<u8>, Error> {
        let work = async {
            let run = Run {
                plugin: &plugin.kind,
                verb,
                bin_dirs: &self.settings.bin_dirs,
                env: self.env(verb, self.settings.observer.environment()),
                stdin: self.config(plugin, result, valid),
                deadline: self.deadline,
            };
            run.output().await
        };
        self.observed(verb, plugin, Box::pin(work)).await
    }

    async fn observed(
        &self,
        verb: Verb,
        plugin: &Plugin,
        run: PluginRun<'_>,
    ) -> Result<Vec<u8>, Error> {
        let invocation = Invocation {
            plugin: &plugin.kind,
            verb,
        };
        self.settings.observer.wrap(invocation, run).await
    }

    fn env(&self, verb: Verb, more: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
        let args: Vec<_> = self
            .args
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let path: Vec<_> = self
            .settings
            .bin_dirs
            .iter()
            .map(|dir| dir.to_string_lossy())
            .collect();
        let mut env = vec![
            ("CNI_COMMAND", verb.name().to_owned()),
            ("CNI_CONTAINERID", self.container.to_owned()),
            ("CNI_NETNS", self.netns.to_owned()),
            ("CNI_IFNAME", self.interface.to_owned()),
            ("CNI_ARGS", args.join(";")),
            ("CNI_PATH", path.join(":")),
        ];
        env.extend(more);
        env
    }

    /// The plugin's own keys, plus those added by the runtime (specification, section 4, "Deriving request configuration").
    fn config(
        &self,
        plugin: &Plugin,
        result: Option<&CniResult>,
        valid: Option<&Value>,
    ) -> Vec<u8> {
        let mut conf = plugin.conf.clone();
        conf.insert("name".to_owned(), self.network.name.clone().into());
        conf.insert(
            "cniVersion".to_owned(),
            self.network.version.to_string().into(),
        );
        conf.extend(
            runtime_config(plugin, self.capabilities)
                .map(|told| ("runtimeConfig".to_owned(), told)),
        );
        if let Some(result) = result {
            let result = result.clone().in_version(self.network.version);
            conf.insert("prevResult".to_owned(), result.to_value());
        }
        if let Some(valid) = valid {
            conf.insert("cni.dev/valid-attachments".to_owned(), valid.clone());
            // The former name of the key; like libcni, this sends both.
            conf.insert("cni.dev/attachments".to_owned(), valid.clone());
        }
        Value::Object(conf).to_string().into_bytes()
    }
}
