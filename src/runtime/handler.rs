//! Runtime handlers: which OCI runtime and which networks serve a pod.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use super::cni::{self, Cni};
use super::error::{Error, Result};
use super::oci::spec::HandlerOptions;
use super::oci::{Filters, OciRuntime};
use super::process;
use super::settings::HandlerSettings;

/// A runtime handler.
#[derive(Debug)]
pub struct Handler {
    /// Its name.
    pub name: String,
    /// Its OCI runtime.
    pub oci: OciRuntime,
    /// What changes in specifications.
    pub options: HandlerOptions,
    /// Its networks.
    pub cni: Cni,
    /// It can mount recursively read-only.
    pub recursive_read_only: bool,
    /// It can do user namespaces.
    pub user_namespaces: bool,
    /// What its runtime compiled already, if it takes that.
    pub filters: Option<Filters>,
    create: Vec<String>,
}

/// All handlers.
#[derive(Debug)]
pub struct Handlers {
    default: String,
    by_name: BTreeMap<String, Arc<Handler>>,
}

impl Handlers {
    /// The handlers of the settings, each with the network it wants.
    pub fn new(default: &str, handlers: Vec<HandlerSettings>, cni: cni::Settings) -> Self {
        let shared = Cni::new(cni);
        let by_name = handlers.into_iter().map(|handler| {
            let networks = match handler.cni {
                Some((dir, max)) => shared.with_conf_dir(dir, max),
                None => shared.clone(),
            };
            let mut create = Vec::new();
            for (flag, on) in [
                ("--no-pivot", handler.no_pivot),
                ("--no-new-keyring", handler.no_new_keyring),
            ] {
                create.extend(on.then(|| flag.to_owned()));
            }
            let made = Handler {
                name: handler.name.clone(),
                oci: handler.oci,
                options: handler.options,
                cni: networks,
                recursive_read_only: handler.recursive_read_only,
                user_namespaces: handler.user_namespaces,
                filters: handler.takes_filters.then(Filters::default),
                create,
            };
            (handler.name, Arc::new(made))
        });
        Self {
            default: default.to_owned(),
            by_name: by_name.collect(),
        }
    }

    /// The handler of this name; the empty name is the default one.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the names there are.
    pub fn get(&self, name: &str) -> Result<&Arc<Handler>> {
        let wanted = if name.is_empty() { &self.default } else { name };
        self.by_name.get(wanted).ok_or_else(|| {
            let names: Vec<_> = self.by_name.keys().map(String::as_str).collect();
            Error::invalid(format!(
                "there is no runtime handler {wanted:?}; there are: {}",
                names.join(", ")
            ))
        })
    }

    /// All of them, by name; the default one first, under the empty name.
    pub fn list(&self) -> Vec<(&str, &Arc<Handler>)> {
        let default = self.by_name.get(&self.default);
        let named = self
            .by_name
            .iter()
            .map(|(name, handler)| (name.as_str(), handler));
        default
            .map(|handler| ("", handler))
            .into_iter()
            .chain(named)
            .collect()
    }
}

impl Handler {
    /// Name of the OCI runtime's program.
    pub fn program(&self) -> &str {
        let name = self.oci.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or("runtime")
    }

    /// How the shim calls the OCI runtime for a verb, with the trace of the present step.
    pub fn call(&self) -> process::Runtime {
        let oci = &self.oci;
        let mut argv: Vec<OsString> = vec![oci.path.clone().into(), "--root".into()];
        argv.push(oci.root.clone().into());
        if oci.systemd_cgroup {
            argv.push("--systemd-cgroup".into());
        }
        argv.extend(oci.options.iter().map(OsString::from));
        let trace = super::observe::traceparent();
        process::Runtime {
            argv: argv
                .into_iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            env: trace
                .into_iter()
                .map(|trace| format!("TRACEPARENT={trace}"))
                .collect(),
            args: Vec::new(),
            timeout_ms: oci.limit.as_millis().try_into().unwrap_or(u32::MAX),
        }
    }

    /// The same for `create`, which has options of its own.
    pub fn call_create(&self) -> process::Runtime {
        process::Runtime {
            args: self.create.clone(),
            ..self.call()
        }
    }
}
