//! The verbs for a pod: all its networks, the cache, and the rollback of a failure.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde_json::{Map, Value};

use super::cache::{Cache, Entry, KIND};
use super::chain::Chain;
use super::conf::Network;
use super::detach::{Known, known};
use super::discover::{ConfDir, Loaded};
use super::error::Error;
use super::lookup::{Found, Stored};
use super::pod::{Attached, AttachedNetwork, Attachment, Interface, Pod, args, netns, valid};
use super::result::Address;
use super::settings::{Loopback, Settings};

/// The networks of one directory.
#[derive(Debug, Clone)]
pub struct Cni {
    pub(super) settings: Arc<Settings>,
    confs: Arc<ConfDir>,
    pub(crate) cache: Cache,
}

impl Cni {
    /// Creates an instance without reading any file.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            confs: Arc::new(ConfDir::new(
                settings.conf_dir.clone(),
                settings.max_conf_num,
            )),
            cache: Cache::new(&settings.cache_dir),
            settings: Arc::new(settings),
        }
    }

    /// Returns the same settings with another configuration directory, another number of networks, or both, for a runtime handler
    /// with its own networks.
    #[must_use]
    pub fn with_networks(&self, conf_dir: Option<PathBuf>, max_conf_num: Option<usize>) -> Self {
        let mut settings = (*self.settings).clone();
        settings.conf_dir = conf_dir.unwrap_or(settings.conf_dir);
        settings.max_conf_num = max_conf_num.unwrap_or(settings.max_conf_num);
        Self::new(settings)
    }

    /// Returns the configured networks, and the files that were skipped.
    pub async fn networks(&self) -> Arc<Loaded> {
        let confs = Arc::clone(&self.confs);
        tokio::task::spawn_blocking(move || confs.load())
            .await
            .unwrap_or_default()
    }

    /// The directory of the configurations.
    #[must_use]
    pub fn conf_dir(&self) -> &Path {
        self.confs.path()
    }

    /// Checks whether pods can be attached: networks are configured, their plugins are installed, and the STATUS of these succeeds
    /// if their version has it.
    ///
    /// # Errors
    /// [`Error::NotReady`] with the reason.
    pub async fn ready(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.settings.query_timeout;
        for network in self.configured().await? {
            let chain = self.chain(&network, deadline);
            chain.status().await.map_err(|error| Error::NotReady {
                why: error.to_string(),
            })?;
        }
        Ok(())
    }

    /// Attaches a pod to all networks, if all of their plugins are installed. A failure is rolled back, with its own timeout.
    /// If the future is dropped, the running plugin is killed, and a later [`del`](Self::del) removes the attachment.
    ///
    /// # Errors
    /// The first failure; [`Error::NotUndone`] if something may remain.
    pub async fn add(&self, pod: &Pod) -> Result<Attached, Error> {
        valid(pod)?;
        let networks = self.configured().await?;
        let deadline = Instant::now() + self.settings.add_timeout;
        let netns = netns(pod);
        let (args, capabilities) = (args(pod), pod.capabilities.arguments());
        let mut wanted = Vec::new();
        if self.settings.loopback == Loopback::Plugin {
            wanted.push(("lo".to_owned(), Arc::new(Network::loopback())));
        }
        for (number, network) in networks.into_iter().enumerate() {
            wanted.push((
                format!("{}{number}", self.settings.interface_prefix),
                network,
            ));
        }
        for (_, network) in &wanted {
            self.chain(network, deadline).check_installed().await?;
        }
        let (mut entries, mut interfaces) = (Vec::new(), Vec::new());
        let mut attached = Vec::new();
        for (interface, network) in wanted {
            attached.push(AttachedNetwork {
                interface: interface.clone(),
                config: network.list.clone(),
            });
            entries.push(Entry {
                kind: KIND.to_owned(),
                container_id: pod.id.clone(),
                config: network.list.clone(),
                if_name: interface,
                network_name: network.name.clone(),
                netns: netns.clone(),
                cni_args: Some(args.clone()),
                capability_args: Some(capabilities.clone()),
                result: None,
                criscope_lacks_plugins: false,
            });
            let Some(entry) = entries.last_mut() else {
                continue;
            };
            match self.attach(&network, entry, deadline).await {
                Ok(one) => interfaces.push(one),
                Err(add) => return Err(self.undo(entries, add).await),
            }
        }
        let first = interfaces
            .iter()
            .find(|one| one.attachment.interface != "lo");
        let addresses = first.map(own).unwrap_or_default();
        let (ip, additional_ips) = self.settings.preference.choose(&addresses);
        Ok(Attached {
            networks: attached,
            interfaces,
            ip,
            additional_ips,
        })
    }

    /// Verifies the attachments of a pod (CHECK).
    ///
    /// # Errors
    /// The error of a plugin; [`Error::NotReady`] if the pod has no attachment.
    pub async fn check(&self, pod: &Pod) -> Result<(), Error> {
        valid(pod)?;
        let found = self.look(Some(&pod.id)).await?;
        if let Some(error) = found.unreadable {
            return Err(error);
        }
        if found.entries.is_empty() {
            let why = format!("{} is attached to no network", pod.id);
            return Err(Error::NotReady { why });
        }
        let deadline = Instant::now() + self.settings.query_timeout;
        let netns = netns(pod);
        for Stored { entry, .. } in &found.entries {
            let Known {
                network,
                result,
                args,
                capabilities,
            } = known(entry)?;
            let Some(result) = result else {
                let why = format!(
                    "{} is attached to {} only in part",
                    pod.id, entry.network_name
                );
                return Err(Error::NotReady { why });
            };
            let chain = Chain {
                container: &pod.id,
                netns: &netns,
                interface: &entry.if_name,
                args: &args,
                capabilities: &capabilities,
                ..self.chain(&network, deadline)
            };
            chain.check(&result).await?;
        }
        Ok(())
    }

    /// Detaches cached attachments that are not in `keep`, and lets plugins release stale resources (GC, 1.1). `keep` must
    /// contain the attachments of all pods, of every handler: see [`Self::attachments`].
    ///
    /// # Errors
    /// The first failure; the remaining work is still done.
    pub async fn gc(&self, keep: &[Attachment]) -> Result<(), Error> {
        let networks = self.configured().await?;
        let mut stale = self.look(None).await?.entries;
        stale.retain(|one| {
            let is_configured = networks
                .iter()
                .any(|network| network.name == one.entry.network_name);
            is_configured && !keep.contains(&attachment(&one.entry))
        });
        let mut errors = self.detach(&stale, |entry| entry.netns.clone()).await;
        let deadline = Instant::now() + self.settings.del_timeout;
        for network in &networks {
            let kept: Vec<_> = keep
                .iter()
                .filter(|one| one.network == network.name)
                .cloned()
                .collect();
            errors.extend(self.chain(network, deadline).gc(&kept).await.err());
        }
        Error::combine(errors)
    }

    /// All attachments in the cache, including those of unfinished ADDs.
    ///
    /// # Errors
    /// If the cache cannot be read, or an entry of it is damaged: [`Self::gc`] would release the address in it.
    pub async fn attachments(&self) -> Result<Vec<Attachment>, Error> {
        let found = self.look(None).await?;
        if let Some(error) = found.unreadable {
            return Err(error);
        }
        match found.damaged.first() {
            None => {
                let entries = found.entries.iter();
                Ok(entries.map(|one| attachment(&one.entry)).collect())
            }
            Some(file) => Err(Error::NotReady {
                why: format!("a cached attachment is damaged: {}", file.path.display()),
            }),
        }
    }

    /// Returns the containers with attachments in the cache, including those of unfinished ADDs, whose namespace is below
    /// this directory: other runtimes may share the cache. Omits containers that only wait for plugins that are not installed.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub async fn attached_below(&self, namespaces: &Path) -> Result<Vec<String>, Error> {
        let found = self.look(None).await?;
        if let Some(error) = found.unreadable {
            return Err(error);
        }
        let mut containers = Vec::new();
        for Stored { entry, .. } in &found.entries {
            if Path::new(&entry.netns).starts_with(namespaces)
                && !self.waits_for_plugins(entry).await
            {
                containers.push(entry.container_id.clone());
            }
        }
        let namespaces = namespaces.to_owned();
        let damaged = blocking(move || {
            let files = found.damaged.into_iter().filter(|file| !file.is_aside);
            Ok(files
                .filter_map(|file| file.container_below(&namespaces))
                .collect::<Vec<_>>())
        });
        containers.extend(damaged.await?);
        Ok(containers)
    }

    /// Moves damaged files of the cache aside that belong to containers of ours, and reports them, each once. What is in them is lost,
    /// so a DEL needs the configuration from elsewhere: see [`Self::del_recorded`].
    ///
    /// To be called before other verbs.
    pub async fn tidy_cache(&self, is_ours: impl Fn(&str) -> bool + Send + 'static) {
        let cache = self.cache.clone();
        let tidied = blocking(move || {
            cache.tidy(is_ours);
            Ok(())
        });
        let _interrupted = tidied.await;
    }

    async fn waits_for_plugins(&self, entry: &Entry) -> bool {
        let Some(known) = known(entry).ok().filter(|_| entry.criscope_lacks_plugins) else {
            return false;
        };
        let chain = self.chain(&known.network, Instant::now());
        chain.lacks_plugins().await
    }

    pub(super) async fn configured(&self) -> Result<Vec<Arc<Network>>, Error> {
        let loaded = self.networks().await;
        if !loaded.networks.is_empty() {
            return Ok(loaded.networks.clone());
        }
        let dir = self.confs.path().display();
        let why = match loaded.problems.first() {
            Some(problem) => format!(
                "no valid configuration in {dir}: {}: {}",
                problem.path.display(),
                problem.why
            ),
            None => format!("no configuration in {dir}"),
        };
        Err(Error::NotReady { why })
    }

    async fn attach(
        &self,
        network: &Network,
        entry: &mut Entry,
        deadline: Instant,
    ) -> Result<Interface, Error> {
        self.write(entry.clone()).await?;
        let empty = Vec::new();
        let none = Map::new();
        let chain = Chain {
            container: &entry.container_id,
            netns: &entry.netns,
            interface: &entry.if_name,
            args: entry.cni_args.as_ref().unwrap_or(&empty),
            capabilities: entry.capability_args.as_ref().unwrap_or(&none),
            ..self.chain(network, deadline)
        };
        let result = chain.add().await?;
        entry.result = Some(result.to_value());
        self.write(entry.clone()).await?;
        let attachment = attachment(entry);
        Ok(Interface { attachment, result })
    }

    async fn undo(&self, mut entries: Vec<Entry>, add: Error) -> Error {
        entries.reverse();
        let stored = entries.into_iter().map(|entry| Stored {
            files: vec![
                self.cache
                    .path(&entry.network_name, &entry.container_id, &entry.if_name),
            ],
            entry,
        });
        let stored: Vec<_> = stored.collect();
        let errors = self.detach(&stored, |entry| entry.netns.clone()).await;
        match Error::combine(errors) {
            Ok(()) => add,
            Err(undo) => Error::NotUndone {
                add: Box::new(add),
                undo: Box::new(undo),
            },
        }
    }

    pub(super) fn chain<'a>(&'a self, network: &'a Network, deadline: Instant) -> Chain<'a> {
        static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        Chain {
            settings: &self.settings,
            network,
            container: "",
            netns: "",
            interface: "",
            args: &[],
            capabilities: &NONE,
            deadline,
        }
    }

    pub(super) async fn look(&self, container: Option<&str>) -> Result<Found, Error> {
        let (cache, container) = (self.cache.clone(), container.map(str::to_owned));
        blocking(move || Ok(cache.find(container.as_deref()))).await
    }

    pub(super) async fn write(&self, entry: Entry) -> Result<(), Error> {
        let cache = self.cache.clone();
        blocking(move || cache.write(&entry)).await
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::cache("use", Path::new("the cache"), error.into()))?
}

pub(crate) fn attachment(entry: &Entry) -> Attachment {
    Attachment {
        network: entry.network_name.clone(),
        container: entry.container_id.clone(),
        interface: entry.if_name.clone(),
    }
}

/// The addresses of the pod's first interface, including addresses without an interface.
fn own(one: &Interface) -> Vec<Address> {
    let mut addresses = one.result.addresses();
    addresses.retain(|address| {
        let name = address.interface.as_ref();
        name.is_none_or(|name| *name == one.attachment.interface)
    });
    addresses
}
