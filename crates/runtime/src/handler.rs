//! Runtime handlers: which OCI runtime and which networks serve a pod.
//!
//! A pod keeps the OCI runtime that it was created with, which is part of its record. A pod whose handler was removed from the
//! configuration can be inspected, stopped and removed; [`Handlers::get`] refuses new pods and containers for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use criscope_cni::Cni;

use super::Runtime;
use super::error::{Error, Result};
use super::oci::containerd_shim::NAMESPACE;
use super::oci::spec::CgroupDriver;
use super::oci::{Filters, OciRuntime};
use super::paths::Paths;
use super::sections::Handler as HandlerSettings;
use super::settings::{HandlerFeatures, UsableHandler};
use super::shim_client::{self, TaskShim};
use super::store::{Container, SandboxRecord};

/// A runtime handler.
#[derive(Debug)]
pub(crate) struct Handler {
    /// Its settings.
    pub settings: HandlerSettings,
    /// The OCI runtime.
    pub oci: OciRuntime,
    /// The abilities of its OCI runtime and of the node.
    pub features: HandlerFeatures,
    /// The cache of compiled seccomp filters, if its runtime accepts them.
    pub filters: Option<Arc<Filters>>,
    /// The networks.
    pub cni: Cni,
}

/// All handlers.
#[derive(Debug)]
pub(crate) struct Handlers {
    default: String,
    by_name: BTreeMap<String, Arc<Handler>>,
    /// The default networks.
    cni: Cni,
    fallback: FallbackOci,
}

/// How the OCI runtime of a handler is called if only its name is known: records of old versions have no more.
#[derive(Debug)]
pub(crate) struct FallbackOci {
    /// The directories of the runtime.
    pub paths: Paths,
    /// The cgroup driver of the node.
    pub driver: CgroupDriver,
}

impl Handlers {
    /// Builds the handlers of the settings with their networks; `shared` are those of handlers without networks of their own.
    pub(crate) fn new(
        default: &str,
        handlers: &[UsableHandler],
        shared: Cni,
        fallback: FallbackOci,
    ) -> Self {
        let by_name = handlers.iter().cloned().map(|usable| {
            let handler = Handler {
                cni: networks(&usable.settings, &shared),
                settings: usable.settings,
                oci: usable.oci,
                features: usable.features,
                filters: usable.filters,
            };
            (handler.settings.name.clone(), Arc::new(handler))
        });
        Self {
            default: default.to_owned(),
            by_name: by_name.collect(),
            cni: shared,
            fallback,
        }
    }

    /// The handler of an existing pod, with the OCI runtime that the pod was created with.
    pub(crate) fn for_pod(&self, record: &SandboxRecord) -> Arc<Handler> {
        self.find(&record.handler, record.oci.as_ref())
    }

    /// The handler of an existing pod. It uses the OCI runtime that the pod was created with, `then`, even if the configuration
    /// has changed or the handler was removed.
    fn find(&self, name: &str, then: Option<&OciRuntime>) -> Arc<Handler> {
        let now = self.by_name.get(name);
        let oci = match (then, now) {
            (None, Some(now)) => return Arc::clone(now),
            (Some(then), Some(now)) if *then == now.oci => return Arc::clone(now),
            // The program may have been moved: the configured path is used, unless it is one of the other kind.
            (Some(then), Some(now))
                if !then.path.exists() && then.shim.is_some() == now.oci.shim.is_some() =>
            {
                OciRuntime {
                    path: now.oci.path.clone(),
                    ..then.clone()
                }
            }
            (Some(then), _) => then.clone(),
            (None, None) => self.fallback.oci_runtime(name),
        };
        // The features of another program say nothing about this one, and filters that it compiled are not valid.
        let same = now.filter(|now| oci.path == now.oci.path && oci.shim == now.oci.shim);
        let handler = match now {
            Some(now) => Handler {
                settings: now.settings.clone(),
                oci,
                features: HandlerFeatures {
                    support: same.map(|now| now.features.support).unwrap_or_default(),
                    ..now.features
                },
                filters: same.and_then(|now| now.filters.clone()),
                cni: now.cni.clone(),
            },
            // New containers are no longer created with it.
            None => Handler {
                settings: HandlerSettings::defaults(name),
                oci,
                features: HandlerFeatures::default(),
                filters: None,
                cni: self.cni.clone(),
            },
        };
        Arc::new(handler)
    }

    /// Returns the handler of this name; the empty name means the default.
    ///
    /// # Errors
    /// [`Error::Invalid`], with the existing names.
    pub(crate) fn get(&self, name: &str) -> Result<&Arc<Handler>> {
        let wanted = if name.is_empty() { &self.default } else { name };
        self.by_name.get(wanted).ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            Error::invalid(format!(
                "there is no runtime handler {wanted:?}; there are: {}",
                names.join(", ")
            ))
        })
    }

    /// The names of all handlers, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// All handlers by name; the default first, under the empty name.
    pub(crate) fn list(&self) -> Vec<(&str, &Arc<Handler>)> {
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

/// The networks of a handler: its own, or those of handlers without.
fn networks(handler: &HandlerSettings, shared: &Cni) -> Cni {
    match (&handler.cni_conf_dir, handler.cni_max_conf_num) {
        (None, None) => shared.clone(),
        (dir, max) => shared.with_networks(dir.clone(), max),
    }
}

impl FallbackOci {
    fn oci_runtime(&self, name: &str) -> OciRuntime {
        OciRuntime {
            systemd_cgroup: self.driver == CgroupDriver::Systemd,
            ..OciRuntime::new(Path::new(name), self.paths.oci(name))
        }
    }
}

impl Runtime {
    /// The handler of an existing pod, with the OCI runtime that the pod was created with.
    pub(crate) fn handler_of_pod(&self, record: &SandboxRecord) -> Arc<Handler> {
        self.live().handlers.for_pod(record)
    }

    /// The handler of an existing container.
    pub(crate) fn handler_of(&self, container: &Container) -> Arc<Handler> {
        let record = container.record();
        match self.store.sandboxes.get(&record.sandbox) {
            Ok(sandbox) => self.handler_of_pod(&sandbox.record()),
            Err(_) => self.live().handlers.find(&record.handler, None),
        }
    }
}

impl Handler {
    /// Name of the OCI runtime's program.
    pub(crate) fn program(&self) -> &str {
        let name = self.oci.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or("runtime")
    }

    /// True if a shim of containerd runs its pods.
    pub(crate) fn has_containerd_shim(&self) -> bool {
        self.oci.shim.is_some()
    }

    /// The parameters with which the shim calls the OCI runtime, including the trace context of the current step.
    pub(crate) fn call(&self) -> shim_client::Runtime {
        let oci = &self.oci;
        let mut argv: Vec<OsString> = vec![oci.path.clone().into(), "--root".into()];
        argv.push(oci.root.clone().into());
        if oci.systemd_cgroup {
            argv.push("--systemd-cgroup".into());
        }
        argv.extend(oci.options.iter().map(OsString::from));
        let trace = super::steps::traceparent();
        shim_client::Runtime {
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
            task: None,
        }
    }

    /// The parameters for `create` of a container of this sandbox, which has additional options.
    pub(crate) fn call_create(&self, sandbox: &str) -> shim_client::Runtime {
        let task = self.oci.shim.as_ref().map(|_| TaskShim {
            program: self.oci.path.display().to_string(),
            namespace: NAMESPACE.to_owned(),
            sandbox: sandbox.to_owned(),
            options: self.oci.shim_options(),
        });
        let settings = &self.settings;
        let args = [
            ("--no-pivot", settings.no_pivot),
            ("--no-new-keyring", settings.no_new_keyring),
        ];
        let args = args.into_iter().filter(|(_, is_set)| *is_set);
        shim_client::Runtime {
            args: args.map(|(flag, _)| flag.to_owned()).collect(),
            task,
            ..self.call()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::oci::ShimOptions;

    fn handlers(path: &str) -> Handlers {
        let mut settings = HandlerSettings::defaults("one");
        settings.no_pivot = true;
        let usable = UsableHandler {
            settings,
            oci: OciRuntime::new(path, "/run/now"),
            features: HandlerFeatures::default(),
            filters: Some(Arc::default()),
        };
        let fallback = FallbackOci {
            paths: Paths::new("/root", "/run/state"),
            driver: CgroupDriver::Cgroupfs,
        };
        let cni = Cni::new(criscope_cni::Settings::default());
        Handlers::new("one", &[usable], cni, fallback)
    }

    #[test]
    fn a_pod_keeps_the_oci_runtime_that_it_was_created_with() {
        let handlers = handlers("/bin/sh");
        let of = |name: &str, then: Option<&OciRuntime>| {
            let handler = handlers.find(name, then);
            (handler.oci.path.clone(), handler.oci.root.clone())
        };
        let is = |path: &str, root: &str| (path.into(), root.into());
        let then = OciRuntime::new("/bin/true", "/run/then");
        let moved = OciRuntime::new("/no/such/program", "/run/then");
        // Records of older versions have no OCI runtime.
        assert_eq!(of("one", None), is("/bin/sh", "/run/now"));
        assert_eq!(of("one", Some(&then)), is("/bin/true", "/run/then"));
        assert_eq!(of("one", Some(&moved)), is("/bin/sh", "/run/then"));
        assert_eq!(of("gone", Some(&then)), is("/bin/true", "/run/then"));
        assert_eq!(of("gone", None), is("gone", "/run/state/oci/gone"));
        // New containers are created with the current configuration.
        let made = handlers.find("one", Some(&then));
        assert!(made.filters.is_none(), "those of another program");
        let made = made.call_create("pod");
        assert_eq!(made.args, ["--no-pivot"]);
        assert!(handlers.get("gone").is_err());
        // Only the timeout changed, not the program.
        let then = OciRuntime {
            limit: Duration::from_secs(7),
            ..OciRuntime::new("/bin/sh", "/run/now")
        };
        let handler = handlers.find("one", Some(&then));
        assert_eq!(handler.oci, then);
        assert!(handler.filters.is_some());
        // A shim of containerd is no OCI runtime that was moved.
        let gone = OciRuntime {
            shim: Some(ShimOptions::Other {
                config_path: None,
                type_url: None,
            }),
            ..moved
        };
        assert_eq!(handlers.find("one", Some(&gone)).oci, gone);
    }
}
