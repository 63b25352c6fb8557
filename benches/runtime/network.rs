//! The network of each side: the same two plugins with the same settings, each on its own bridge and subnet; and direct
//! calls of the plugins.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use criscope_testkit::daemon::PLUGINS;
use serde_json::{Value, json};

use crate::error::{Error, IoContext, Result};

/// A network: the directory with its configuration.
pub(crate) struct Network {
    /// The directory.
    pub(crate) dir: PathBuf,
    list: Value,
}

impl Network {
    /// Writes the configuration of network `name`, which is its bridge's name as well, into `folder`.
    ///
    /// # Errors
    /// If the plugins are not installed, or the file cannot be written.
    pub(crate) fn make(folder: &Path, name: &str, subnet: &str) -> Result<Self> {
        if !Path::new(PLUGINS).join("bridge").is_file() {
            return Err(Error::Missing {
                program: "bridge".to_owned(),
                package: "containernetworking-plugins".to_owned(),
            });
        }
        let dir = folder.join(format!("net.{name}"));
        let list = json!({
            "cniVersion": "1.0.0",
            "name": name,
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": name,
                    "isGateway": true,
                    "ipMasq": true,
                    "hairpinMode": true,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": folder.join("addresses"),
                        "ranges": [[{"subnet": subnet}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
            ],
        });
        let file = dir.join("10-bench.conflist");
        fs::create_dir_all(&dir)
            .and_then(|()| fs::write(&file, list.to_string()))
            .during(|| format!("writing {}", file.display()))?;
        Ok(Self { dir, list })
    }

    /// Runs ADD of each plugin. Returns the result of the last.
    ///
    /// # Errors
    /// If one fails.
    pub(crate) fn add(&self, id: &str, netns: &Path) -> Result<Value> {
        let mut result = None;
        for plugin in self.plugins() {
            let said = self.run("ADD", plugin, id, netns, result.as_ref())?;
            let parsed = serde_json::from_slice(&said);
            result = Some(parsed.map_err(|error| Error::Setup(format!("result: {error}")))?);
        }
        result.ok_or_else(|| Error::Setup("a network without plugins".to_owned()))
    }

    /// Runs DEL of each plugin, in reverse order, with the result of the ADD.
    ///
    /// # Errors
    /// If one fails.
    pub(crate) fn del(&self, id: &str, netns: &Path, result: &Value) -> Result<()> {
        for plugin in self.plugins().rev() {
            self.run("DEL", plugin, id, netns, Some(result))?;
        }
        Ok(())
    }

    fn plugins(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.list["plugins"].as_array().into_iter().flatten()
    }

    fn run(
        &self,
        verb: &str,
        plugin: &Value,
        id: &str,
        netns: &Path,
        result: Option<&Value>,
    ) -> Result<Vec<u8>> {
        let kind = plugin["type"].as_str().unwrap_or_default();
        let what = || format!("running {verb} of the plugin {kind}");
        let mut config = plugin.clone();
        config["name"] = self.list["name"].clone();
        config["cniVersion"] = self.list["cniVersion"].clone();
        if let Some(result) = result {
            config["prevResult"] = result.clone();
        }
        let mut child = Command::new(Path::new(PLUGINS).join(kind))
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", id)
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", PLUGINS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .during(what)?;
        if let Some(mut input) = child.stdin.take() {
            input
                .write_all(config.to_string().as_bytes())
                .during(what)?;
        }
        let output = child.wait_with_output().during(what)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Err(Error::Setup(format!("{}: {said}", what())))
    }
}
