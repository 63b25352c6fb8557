//! DEL of a pod: with the parameters of each ADD if the cache still has them, otherwise with the configuration that the caller has
//! recorded, otherwise with the current one.

use std::path::{Path, PathBuf};
use std::time::Instant;

use criscope_linux::namespace;
use serde_json::{Map, Value};

use super::cache::{Entry, KIND};
use super::chain::Chain;
use super::conf::Network;
use super::error::Error;
use super::host_local;
use super::lookup::{DamagedFile, Stored};
use super::network::{Cni, blocking};
use super::pod::{AttachedNetwork, Pod, args, netns, valid};
use super::result::CniResult;

impl Cni {
    /// As [`Self::del_recorded`], without a record.
    ///
    /// # Errors
    /// As of that.
    pub async fn del(&self, pod: &Pod) -> Result<(), Error> {
        self.del_recorded(pod, &[]).await
    }

    /// Detaches a pod from all its networks, with the parameters of each ADD. If the cache has lost them, `recorded` replaces them, which
    /// is [`Attached::networks`](super::Attached::networks). Without a record, the currently configured networks are used, and the
    /// addresses of host-local are released by its files. Succeeds for an unknown id and for a namespace that no longer exists.
    ///
    /// A plugin that is not installed keeps no pod: the others are called and the address is released, unless a port is forwarded to
    /// it. The entry stays in the cache for a DEL when the plugin is there.
    ///
    /// Damaged files of the pod are removed, and reported.
    ///
    /// # Errors
    /// The first failure; the other networks are still detached. The next call retries what failed.
    pub async fn del_recorded(&self, pod: &Pod, recorded: &[AttachedNetwork]) -> Result<(), Error> {
        valid(pod)?;
        let found = self.look(Some(&pod.id)).await?;
        let mut damaged = found.damaged;
        let mut planned = Vec::new();
        for stored in found.entries {
            match known(&stored.entry) {
                Ok(_) => planned.push(stored),
                Err(why) => damaged.extend(unusable(&stored, &why)),
            }
        }
        // A missing namespace may mean a power failure, in which any of the entries may have been lost.
        let may_be_incomplete = planned.is_empty()
            || !damaged.is_empty()
            || found.unreadable.is_some()
            || pod.netns.is_none();
        let mut source = None;
        if may_be_incomplete {
            source = self.complete(&mut planned, pod, recorded, &damaged).await;
        }
        if let Some(why) = &found.unreadable {
            tracing::warn!(container.id = %pod.id, why = %why, source, "the CNI cache cannot be read, so that DEL has no parameters of ADD");
        }
        planned.sort_by(|a, b| b.entry.if_name.cmp(&a.entry.if_name));
        let netns = netns(pod);
        let mut errors = self.detach(&planned, |_| netns.clone()).await;
        if source == Some(CURRENT) {
            errors.extend(self.release_addresses(&pod.id).await.err());
        }
        Error::combine(errors)?;
        self.remove_damaged(damaged, source).await;
        Ok(())
    }

    /// Adds the attachments that the cache has lost; returns where the least certain one of them comes from.
    async fn complete(
        &self,
        planned: &mut Vec<Stored>,
        pod: &Pod,
        recorded: &[AttachedNetwork],
        damaged: &[DamagedFile],
    ) -> Option<&'static str> {
        let mut source = None;
        for one in recorded {
            let entry = entry_of(pod, &one.interface, &one.config);
            if known(&entry).is_ok() && add(planned, entry) {
                source = Some(RECORDED);
            }
        }
        let networks = self.networks().await;
        // The file name tells the network and its interface, even if the network has moved to another interface since.
        let named = damaged.iter().filter_map(|file| {
            let (network, interface) = file.attachment(&pod.id)?;
            let mut current = networks.networks.iter();
            let current = current.find(|one| one.name == network)?;
            Some(entry_of(pod, interface, &current.list))
        });
        let numbered = networks.networks.iter().enumerate();
        let numbered = numbered.map(|(number, network)| {
            let interface = format!("{}{number}", self.settings.interface_prefix);
            entry_of(pod, &interface, &network.list)
        });
        for entry in named.chain(numbered).collect::<Vec<_>>() {
            if add(planned, entry) {
                source = Some(CURRENT);
            }
        }
        // With no network configured there is no DEL, and an address may be held all the same.
        source.or((planned.is_empty() && !damaged.is_empty()).then_some(CURRENT))
    }

    /// Each attachment has the whole timeout, so that a hanging plugin leaves time for the others.
    pub(super) async fn detach(
        &self,
        stored: &[Stored],
        netns: impl Fn(&Entry) -> String,
    ) -> Vec<Error> {
        let mut errors = Vec::new();
        for one in stored {
            let netns = netns(&one.entry);
            errors.extend(self.detach_one(one, &netns).await.err());
        }
        errors
    }

    async fn detach_one(&self, stored: &Stored, netns: &str) -> Result<(), Error> {
        let entry = &stored.entry;
        let Known {
            network,
            result,
            args,
            capabilities,
        } = known(entry)?;
        // Plugins fail if the file is missing, or is no longer a namespace after a reboot; the empty path means that the
        // namespace does not exist.
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
        let missing = chain.del(result.as_ref()).await?;
        if missing.is_empty() {
            self.forget(stored).await;
            return Ok(());
        }
        self.keep_for_plugins(stored, &missing).await;
        Ok(())
    }

    /// Removes the files of an attachment that was detached. A failure is reported: the next start detaches it once more.
    async fn forget(&self, stored: &Stored) {
        let (cache, stored) = (self.cache.clone(), stored.clone());
        let entry = stored.entry;
        let mut files = stored.files;
        files.push(cache.path(&entry.network_name, &entry.container_id, &entry.if_name));
        let removed = blocking(move || {
            let all = files.iter().map(|file| cache.remove(file));
            all.fold(Ok(()), Result::and)
        });
        if let Err(error) = removed.await {
            tracing::warn!(error.message = %error, "a network is detached and its entry in the CNI cache cannot be removed");
        }
    }

    /// Keeps an attachment in the cache that was detached without some of its plugins.
    async fn keep_for_plugins(&self, stored: &Stored, missing: &[String]) {
        let entry = &stored.entry;
        if entry.criscope_lacks_plugins {
            return;
        }
        tracing::warn!(container.id = %entry.container_id, network = entry.network_name, plugins = ?missing, "a pod was detached from its network without plugins that are not installed; they are called at a later start of criscope if they are there");
        let kept = Entry {
            criscope_lacks_plugins: true,
            ..entry.clone()
        };
        // A guess is not worth keeping.
        if !stored.files.is_empty() {
            let _unwritten = self.write(kept).await;
        }
    }

    /// Releases the addresses that host-local holds for a container, in the directories of all configurations.
    async fn release_addresses(&self, container: &str) -> Result<(), Error> {
        let networks = self.networks().await;
        let container = container.to_owned();
        let released = blocking(move || {
            let plugins = networks
                .networks
                .iter()
                .flat_map(|network| &network.plugins);
            let mut dirs: Vec<_> = plugins.filter_map(host_local::data_dir).collect();
            dirs.push(host_local::default_data_dir());
            dirs.sort_unstable();
            dirs.dedup();
            let mut count = 0;
            for dir in dirs {
                let released = host_local::release(&dir, None, &container, None);
                count += released.map_err(|error| Error::cache("release", &dir, error))?;
            }
            Ok((container, count))
        });
        if let (container, count @ 1..) = released.await? {
            tracing::warn!(container.id = %container, count, "addresses of a pod were released by the files of host-local: the configuration with which it was attached is lost");
        }
        Ok(())
    }

    async fn remove_damaged(&self, damaged: Vec<DamagedFile>, source: Option<&'static str>) {
        let cache = self.cache.clone();
        let removing = blocking(move || {
            for file in damaged {
                let removed = cache.remove(&file.path);
                match removed {
                    Ok(()) if file.is_aside => {}
                    Ok(()) => {
                        tracing::warn!(file.path = %file.path.display(), why = file.why, source, "a damaged file of the CNI cache was removed, and its pod detached without it");
                    }
                    Err(error) => {
                        tracing::warn!(why = file.why, error.message = %error, "a damaged file of the CNI cache cannot be removed");
                    }
                }
            }
            Ok(())
        });
        let _interrupted = removing.await;
    }
}

/// Where the configuration of a DEL comes from if the cache has lost it.
const RECORDED: &str = "the record of the pod";
const CURRENT: &str = "the current configuration";

/// Adds an attachment unless there is one with its interface.
fn add(planned: &mut Vec<Stored>, entry: Entry) -> bool {
    let is_new = !planned.iter().any(|one| one.entry.if_name == entry.if_name);
    if is_new {
        planned.push(Stored {
            entry,
            files: Vec::new(),
        });
    }
    is_new
}

/// The parameters of an ADD as they would be now.
fn entry_of(pod: &Pod, interface: &str, list: &Value) -> Entry {
    let name = list.get("name").and_then(Value::as_str);
    Entry {
        kind: KIND.to_owned(),
        container_id: pod.id.clone(),
        config: list.clone(),
        if_name: interface.to_owned(),
        network_name: name.unwrap_or_default().to_owned(),
        netns: netns(pod),
        cni_args: Some(args(pod)),
        capability_args: Some(pod.capabilities.arguments()),
        result: None,
        criscope_lacks_plugins: false,
    }
}

/// The files of an entry whose configuration is none.
fn unusable(stored: &Stored, why: &Error) -> Vec<DamagedFile> {
    let files = stored.files.iter();
    let files = files.map(|path| DamagedFile {
        path: path.clone(),
        name: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        why: why.to_string(),
        is_aside: false,
    });
    files.collect()
}

/// The attachment of an entry.
pub(super) struct Known {
    pub(super) network: Network,
    pub(super) result: Option<CniResult>,
    pub(super) args: Vec<(String, String)>,
    pub(super) capabilities: Map<String, Value>,
}

pub(super) fn known(entry: &Entry) -> Result<Known, Error> {
    let network =
        Network::from_list(Path::new("the cache"), entry.config.clone()).map_err(|why| {
            Error::NotReady {
                why: format!("the cached configuration of {}: {why}", entry.network_name),
            }
        })?;
    // An invalid cached result is not passed to plugins.
    let result = entry.result.clone().filter(|result| !result.is_null());
    let result = result.and_then(|result| CniResult::from_value(result, network.version).ok());
    Ok(Known {
        network,
        result,
        args: entry.cni_args.clone().unwrap_or_default(),
        capabilities: entry.capability_args.clone().unwrap_or_default(),
    })
}
