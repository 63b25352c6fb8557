//! The verbs for a pod: all its networks, the cache, and what is undone when something fails.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use criscope_linux::namespace;
use serde_json::{Map, Value};

use super::cache::{Cache, Entry, KIND};
use super::chain::Chain;
use super::conf::Network;
use super::discover::{ConfDir, Loaded};
use super::error::Error;
use super::pod::{Attached, Attachment, Interface, Pod, args, netns, valid};
use super::result::{Address, CniResult};
use super::settings::{Loopback, Settings};

/// The networks of one directory.
#[derive(Debug, Clone)]
pub struct Cni {
    settings: Arc<Settings>,
    confs: Arc<ConfDir>,
    cache: Cache,
}

impl Cni {
    /// Reads nothing yet.
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

    /// The same with the networks of another directory: what a runtime handler of its own network has.
    #[must_use]
    pub fn with_conf_dir(&self, conf_dir: PathBuf, max_conf_num: usize) -> Self {
        Self::new(Settings {
            conf_dir,
            max_conf_num,
            ..(*self.settings).clone()
        })
    }

    /// What is configured now, and which files are passed over.
    pub async fn networks(&self) -> Arc<Loaded> {
        let confs = Arc::clone(&self.confs);
        tokio::task::spawn_blocking(move || confs.load())
            .await
            .unwrap_or_default()
    }

    /// Whether pods can be attached: networks are configured, and where the version has STATUS, their plugins say yes.
    ///
    /// # Errors
    /// [`Error::NotReady`] with what is missing.
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

    /// Attaches a pod to all networks. On failure all is detached again, within a deadline of its own. When the caller
    /// goes away the running plugin is killed, and a later [`del`](Self::del) takes away what there is.
    ///
    /// # Errors
    /// What failed first; [`Error::NotUndone`] if something may be left.
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
        let (mut entries, mut interfaces) = (Vec::new(), Vec::new());
        for (interface, network) in wanted {
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
            interfaces,
            ip,
            additional_ips,
        })
    }

    /// Detaches a pod from all it is attached to, with what each ADD was told; if nothing is known, from the networks of
    /// today. An id that is not attached is fine, so is a namespace that is gone.
    ///
    /// # Errors
    /// The first that failed; the others are detached all the same. What failed is tried again by the next call.
    pub async fn del(&self, pod: &Pod) -> Result<(), Error> {
        valid(pod)?;
        let (mut entries, damaged) = self.look(Some(&pod.id)).await?;
        // Without a namespace the machine may have lost its power, and any of the entries with it.
        if entries.is_empty() || damaged || pod.netns.is_none() {
            let mut assumed = self.assumed(pod).await;
            assumed.retain(|one| !entries.iter().any(|entry| entry.if_name == one.if_name));
            entries.extend(assumed);
        }
        entries.sort_by(|a, b| b.if_name.cmp(&a.if_name));
        let netns = netns(pod);
        let errors = self.detach(&entries, |_| netns.clone()).await;
        Error::of(errors)
    }

    /// Whether a pod is attached as it was left.
    ///
    /// # Errors
    /// What a plugin says; [`Error::NotReady`] if the pod is not attached at all.
    pub async fn check(&self, pod: &Pod) -> Result<(), Error> {
        valid(pod)?;
        let entries = self.find(Some(&pod.id)).await?;
        if entries.is_empty() {
            let why = format!("{} is attached to no network", pod.id);
            return Err(Error::NotReady { why });
        }
        let deadline = Instant::now() + self.settings.query_timeout;
        let netns = netns(pod);
        for entry in &entries {
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

    /// Detaches what is in the cache and not in `keep`, and has plugins free what they hold for others (GC, 1.1).
    /// `keep` must name the attachments of all pods, of every handler: see [`Self::attachments`].
    ///
    /// # Errors
    /// The first that failed; the rest is done all the same.
    pub async fn gc(&self, keep: &[Attachment]) -> Result<(), Error> {
        let networks = self.configured().await?;
        let ours = |entry: &Entry| {
            networks
                .iter()
                .any(|network| network.name == entry.network_name)
        };
        let mut stale = self.find(None).await?;
        stale.retain(|entry| ours(entry) && !keep.contains(&attachment(entry)));
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
        Error::of(errors)
    }

    /// What is attached, or was begun to be, by the cache.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub async fn attachments(&self) -> Result<Vec<Attachment>, Error> {
        Ok(self.find(None).await?.iter().map(attachment).collect())
    }

    /// The containers that are attached, or were begun to be, with a namespace below this directory. Others that keep
    /// what they attach in the same place have theirs elsewhere.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub async fn attached_below(&self, namespaces: &Path) -> Result<Vec<String>, Error> {
        let mut entries = self.find(None).await?;
        entries.retain(|entry| Path::new(&entry.netns).starts_with(namespaces));
        Ok(entries
            .into_iter()
            .map(|entry| entry.container_id)
            .collect())
    }

    async fn configured(&self) -> Result<Vec<Arc<Network>>, Error> {
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
        let errors = self.detach(&entries, |entry| entry.netns.clone()).await;
        match Error::of(errors) {
            Ok(()) => add,
            Err(undo) => Error::NotUndone {
                add: Box::new(add),
                undo: Box::new(undo),
            },
        }
    }

    /// Each attachment has the whole deadline for itself: one that hangs leaves time for the others.
    async fn detach(&self, entries: &[Entry], netns: impl Fn(&Entry) -> String) -> Vec<Error> {
        let mut errors = Vec::new();
        for entry in entries {
            errors.extend(self.detach_one(entry, &netns(entry)).await.err());
        }
        errors
    }

    async fn detach_one(&self, entry: &Entry, netns: &str) -> Result<(), Error> {
        let Known {
            network,
            result,
            args,
            capabilities,
        } = known(entry)?;
        // Plugins fail on a file that is gone, or is no namespace since a reboot; the empty path means: gone.
        let path = PathBuf::from(netns);
        let open = blocking(move || Ok(namespace::open(&path)));
        let gone = matches!(open.await?, Err(namespace::Error::NotPinned { .. }));
        let netns = if gone { "" } else { netns };
        let chain = Chain {
            container: &entry.container_id,
            netns,
            interface: &entry.if_name,
            args: &args,
            capabilities: &capabilities,
            ..self.chain(&network, Instant::now() + self.settings.del_timeout)
        };
        chain.del(result.as_ref()).await?;
        let (cache, entry) = (self.cache.clone(), entry.clone());
        blocking(move || cache.remove(&entry)).await
    }

    /// What an ADD of today would be told: an ADD that got no further than its first plugin has an entry, so this is for
    /// caches that were lost.
    async fn assumed(&self, pod: &Pod) -> Vec<Entry> {
        let networks = self.networks().await;
        let numbered = networks.networks.iter().enumerate();
        numbered
            .map(|(number, network)| Entry {
                kind: KIND.to_owned(),
                container_id: pod.id.clone(),
                config: network.list.clone(),
                if_name: format!("{}{number}", self.settings.interface_prefix),
                network_name: network.name.clone(),
                netns: netns(pod),
                cni_args: Some(args(pod)),
                capability_args: Some(pod.capabilities.arguments()),
                result: None,
            })
            .collect()
    }

    fn chain<'a>(&'a self, network: &'a Network, deadline: Instant) -> Chain<'a> {
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

    async fn find(&self, container: Option<&str>) -> Result<Vec<Entry>, Error> {
        Ok(self.look(container).await?.0)
    }

    async fn look(&self, container: Option<&str>) -> Result<(Vec<Entry>, bool), Error> {
        let (cache, container) = (self.cache.clone(), container.map(str::to_owned));
        blocking(move || cache.find(container.as_deref())).await
    }

    async fn write(&self, entry: Entry) -> Result<(), Error> {
        let cache = self.cache.clone();
        blocking(move || cache.write(&entry)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let stopped =
        |error: tokio::task::JoinError| Error::cache("use", Path::new("the cache"), error.into());
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

/// What an entry says of its attachment.
struct Known {
    network: Network,
    result: Option<CniResult>,
    args: Vec<(String, String)>,
    capabilities: Map<String, Value>,
}

fn known(entry: &Entry) -> Result<Known, Error> {
    let network =
        Network::from_list(Path::new("the cache"), entry.config.clone()).map_err(|why| {
            Error::NotReady {
                why: format!("the cached configuration of {}: {why}", entry.network_name),
            }
        })?;
    // A result that cannot be read is one the plugins do without.
    let result = entry.result.clone().filter(|result| !result.is_null());
    let result = result.and_then(|result| CniResult::from_value(result, network.version).ok());
    Ok(Known {
        network,
        result,
        args: entry.cni_args.clone().unwrap_or_default(),
        capabilities: entry.capability_args.clone().unwrap_or_default(),
    })
}

fn attachment(entry: &Entry) -> Attachment {
    Attachment {
        network: entry.network_name.clone(),
        container: entry.container_id.clone(),
        interface: entry.if_name.clone(),
    }
}

/// The addresses of the pod's first interface. Plugins that do not say which interface one is on have but one.
fn own(one: &Interface) -> Vec<Address> {
    let mut addresses = one.result.addresses();
    let ours = |name: &Option<String>| {
        name.as_ref()
            .is_none_or(|name| *name == one.attachment.interface)
    };
    addresses.retain(|address| ours(&address.interface));
    addresses
}
