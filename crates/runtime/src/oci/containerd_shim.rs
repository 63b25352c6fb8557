//! A shim of containerd (runtime v2) in place of an OCI runtime. criscope-shim starts it and calls its Task service; here are its
//! options, and the cleanup when both shims are gone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use criscope_shim::close_log;
use criscope_wire::Any;
use criscope_wire::task::{RuncOptions, RuntimeOptions};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::error::OciError;
use super::exec::Call;
use super::reason::reason;
use super::runtime::OciRuntime;

/// The namespace of its containers: that of containerd's CRI plugin, which shims and their tools may expect.
pub const NAMESPACE: &str = "k8s.io";

/// The options of a shim of containerd. The state directory and the cgroup driver are those of the [`OciRuntime`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimOptions {
    /// runc's shim.
    Runc {
        /// The OCI runtime; `None` for `runc` on `PATH`.
        binary: Option<PathBuf>,
        /// True if it is called with `--no-pivot`.
        no_pivot: bool,
        /// True if it is called with `--no-new-keyring`.
        no_new_keyring: bool,
    },
    /// Any other shim.
    Other {
        /// The configuration file.
        config_path: Option<PathBuf>,
        /// The type of that file.
        type_url: Option<String>,
    },
}

fn text(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

impl OciRuntime {
    /// The directory in which it keeps the state of containers, each under its id. Shims other than runc's have theirs elsewhere.
    pub fn state_dir(&self) -> PathBuf {
        match self.shim {
            Some(_) => self.root.join(NAMESPACE),
            None => self.root.clone(),
        }
    }

    /// The options of the shim, an encoded `google.protobuf.Any`; empty for none, or without a shim.
    pub fn shim_options(&self) -> Vec<u8> {
        let any = match &self.shim {
            Some(ShimOptions::Runc {
                binary,
                no_pivot,
                no_new_keyring,
            }) => {
                let options = RuncOptions {
                    no_pivot_root: *no_pivot,
                    no_new_keyring: *no_new_keyring,
                    binary_name: text(binary.as_ref()),
                    root: self.root.display().to_string(),
                    systemd_cgroup: self.systemd_cgroup,
                };
                Any {
                    type_url: "containerd.runc.v1.Options".to_owned(),
                    value: options.encode_to_vec(),
                }
            }
            Some(ShimOptions::Other {
                config_path,
                type_url,
            }) if config_path.is_some() || type_url.is_some() => {
                let options = RuntimeOptions {
                    type_url: type_url.clone().unwrap_or_default(),
                    config_path: text(config_path.as_ref()),
                };
                Any {
                    type_url: "runtimeoptions.v1.Options".to_owned(),
                    value: options.encode_to_vec(),
                }
            }
            Some(ShimOptions::Other { .. }) | None => return Vec::new(),
        };
        any.encode_to_vec()
    }

    /// Kills and deletes a container whose shim of containerd is gone, with the shim's `delete`, which succeeds if there is none.
    pub async fn delete_abandoned(&self, id: &str, bundle: &Path) -> Result<(), OciError> {
        let mut argv: Vec<OsString> = vec!["-namespace".into(), NAMESPACE.into()];
        // The events have no consumer: `true` accepts and drops them.
        argv.extend(
            [
                "-address",
                "/dev/null",
                "-publish-binary",
                "true",
                "-id",
                id,
            ]
            .map(Into::into),
        );
        argv.extend(["-bundle".into(), bundle.into(), "delete".into()]);
        let log = bundle.to_owned();
        let _unchanged = spawn_blocking(move || close_log(&log)).await;
        // Without these, shims in Rust (runwasi's) fail before they delete anything.
        let env = [("TTRPC_ADDRESS", "/dev/null"), ("NAMESPACE", NAMESPACE)];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let call = Call {
            dir: Some(bundle),
            env: &env,
            ..self.call(&argv)
        };
        let done = self.finished("delete", call).await?;
        if done.status.success() {
            Ok(())
        } else {
            Err(OciError::classify(
                "delete",
                id,
                done.status.to_string(),
                reason(&done.stderr),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(shim: Option<ShimOptions>) -> (String, Vec<u8>) {
        let runtime = OciRuntime {
            systemd_cgroup: true,
            shim,
            ..OciRuntime::new("/usr/bin/containerd-shim-x-v1", "/run/x")
        };
        let any = Any::decode(&*runtime.shim_options()).expect("an Any");
        (any.type_url, any.value)
    }

    #[test]
    fn options_are_those_of_containerd() {
        let (url, value) = options(Some(ShimOptions::Runc {
            binary: Some("/b".into()),
            no_pivot: true,
            no_new_keyring: false,
        }));
        assert_eq!(url, "containerd.runc.v1.Options");
        // no_pivot_root = 1, binary_name = 6, root = 7, systemd_cgroup = 9.
        assert_eq!(value, b"\x08\x01\x32\x02/b\x3a\x06/run/x\x48\x01");
        let (url, value) = options(Some(ShimOptions::Other {
            config_path: Some("/c".into()),
            type_url: Some("t".to_owned()),
        }));
        assert_eq!(url, "runtimeoptions.v1.Options");
        assert_eq!(value, b"\x0a\x01t\x12\x02/c");
        let none = ShimOptions::Other {
            config_path: None,
            type_url: None,
        };
        assert_eq!(options(Some(none)), Default::default());
        assert_eq!(options(None), Default::default());
    }
}
