//! The plugins of a runtime: plugins that connect, and installed plugins.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use criscope_wire::ttrpc::CODE_UNIMPLEMENTED;
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{
    Mutex, OwnedRwLockReadGuard, OwnedSemaphorePermit, RwLock, RwLockWriteGuard, Semaphore, mpsc,
};
use tokio::task::{AbortHandle, JoinSet};

use crate::api::{
    Event, RUNTIME_SERVICE, RegisterPluginRequest, UpdateContainersRequest,
    UpdateContainersResponse,
};
use crate::connection::{IncomingRequest, PluginConnection};
use crate::error::ListenError;
use crate::launch::{PluginProcess, discover, launch};
use crate::listen::bind;
use crate::observer::{CloseReason, PluginInfo, PluginObserver};
use crate::plugin::{RegisteredPlugin, registered_name};
use crate::runtime::{EvictionRequest, Runtime};
use crate::settings::NriSettings;
use crate::updates::UpdateQueue;

/// How long the creation of objects waits for the synchronization of a plugin, which waits for earlier creations.
const SYNC_GATE_TIMEOUT: Duration = Duration::from_secs(1);

/// gRPC codes of answers to plugins.
const INVALID_ARGUMENT: i32 = 3;
const FAILED_PRECONDITION: i32 = 9;

/// The plugins of a runtime. One event at a time is sent to them, in the order of their index.
pub struct Adaptation {
    pub(crate) settings: NriSettings,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) observer: Arc<dyn PluginObserver>,
    /// The plugins, in order. Held during an event.
    pub(crate) plugins: Mutex<Vec<Arc<RegisteredPlugin>>>,
    pub(crate) queue: UpdateQueue,
    /// The events that any plugin has subscribed to.
    wanted: AtomicU32,
    gate: Arc<RwLock<()>>,
    slots: Arc<Semaphore>,
    listening: OnceLock<AbortHandle>,
}

impl fmt::Debug for Adaptation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptation")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Blocks the synchronization of plugins while it exists; see [`Adaptation::block_sync`].
#[derive(Debug)]
pub struct SyncBlock {
    _gate: OwnedRwLockReadGuard<()>,
}

/// A plugin that has connected but not registered.
struct ArrivingPlugin {
    socket: UnixStream,
    process: Option<PluginProcess>,
    /// Name and configuration of an installed plugin.
    installed: Option<(String, String)>,
    slot: OwnedSemaphorePermit,
}

impl Adaptation {
    /// Creates an adaptation without any plugin. Must be called within a tokio runtime.
    pub fn new(
        settings: NriSettings,
        runtime: Arc<dyn Runtime>,
        observer: Arc<dyn PluginObserver>,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue: UpdateQueue::start(Arc::clone(&runtime), Arc::clone(&observer)),
            runtime,
            observer,
            plugins: Mutex::default(),
            wanted: AtomicU32::new(0),
            gate: Arc::default(),
            slots: Arc::new(Semaphore::new(settings.max_plugins)),
            listening: OnceLock::new(),
            settings,
        })
    }

    /// Starts the installed plugins, waits until each of them is synchronized or has failed, and then accepts connections.
    ///
    /// # Errors
    /// If the socket cannot be made. Installed plugins that fail are reported to the observer.
    pub async fn start(self: &Arc<Self>) -> Result<(), ListenError> {
        let mut starting = JoinSet::new();
        for arrival in self.launch_installed().await {
            starting.spawn(Arc::clone(self).admit(arrival));
        }
        while starting.join_next().await.is_some() {}
        if let Some(path) = &self.settings.socket {
            let listener = bind(path)?;
            let accepting = tokio::spawn(Arc::clone(self).accept(listener));
            let _once = self.listening.set(accepting.abort_handle());
        }
        Ok(())
    }

    /// Tells the plugins that the runtime shuts down, closes their connections and ends installed plugins.
    pub async fn stop(&self) {
        if let Some(listening) = self.listening.get() {
            listening.abort();
        }
        let plugins = std::mem::take(&mut *self.plugins.lock().await);
        let mut ends = JoinSet::new();
        for plugin in plugins {
            ends.spawn(async move {
                plugin.shutdown().await;
                plugin.connection.close(CloseReason::Shutdown);
            });
        }
        while ends.join_next().await.is_some() {}
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Returns whether any plugin has subscribed to an event. The caller need not gather the content of other events.
    pub fn wants(&self, event: Event) -> bool {
        let validated = match event {
            // Validation belongs to the creation.
            Event::CreateContainer => Event::ValidateContainerAdjustment.bit(),
            _ => 0,
        };
        self.wanted.load(Ordering::Relaxed) & (event.bit() | validated) != 0
    }

    /// Holds back the synchronization of plugins: between the event of an object and the moment from which
    /// [`Runtime::list`] shows it. Waits for a plugin that is being synchronized.
    pub async fn block_sync(&self) -> SyncBlock {
        SyncBlock {
            _gate: Arc::clone(&self.gate).read_owned().await,
        }
    }

    /// Blocks synchronization without waiting; `None` if a plugin is being synchronized or waits for it.
    pub fn try_block_sync(&self) -> Option<SyncBlock> {
        let gate = Arc::clone(&self.gate).try_read_owned().ok()?;
        Some(SyncBlock { _gate: gate })
    }

    async fn accept(self: Arc<Self>, listener: UnixListener) {
        loop {
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    self.observer.problem(&format!("accept: {error}"));
                    tokio::time::sleep(self.settings.request_timeout).await;
                    continue;
                }
            };
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
                let pid = pid_of(&socket);
                self.observer
                    .closed(&unregistered(pid, false), &CloseReason::TooMany);
                continue;
            };
            tokio::spawn(Arc::clone(&self).admit(ArrivingPlugin {
                socket,
                process: None,
                installed: None,
                slot,
            }));
        }
    }

    async fn launch_installed(&self) -> Vec<ArrivingPlugin> {
        let Some(dir) = self.settings.plugin_dir.clone() else {
            return Vec::new();
        };
        let configs = self.settings.config_dir.clone();
        let found = tokio::task::spawn_blocking(move || discover(&dir, &configs)).await;
        let (found, problems) = found.unwrap_or_default();
        for (path, problem) in problems {
            self.observer.unusable(&path, &problem);
        }
        let mut arrivals = Vec::new();
        for plugin in found {
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
                let problem = CloseReason::TooMany.to_string();
                self.observer.unusable(&plugin.path, &problem);
                continue;
            };
            match launch(&plugin) {
                Ok((socket, process)) => arrivals.push(ArrivingPlugin {
                    socket,
                    process: Some(process),
                    installed: Some((plugin.name, plugin.config)),
                    slot,
                }),
                Err(error) => {
                    let problem = format!("it cannot be started: {error}");
                    self.observer.unusable(&plugin.path, &problem);
                }
            }
        }
        arrivals
    }

    /// Registers, configures and synchronizes a plugin. Its tasks run until its connection is closed.
    async fn admit(self: Arc<Self>, arrival: ArrivingPlugin) {
        let pid = arrival
            .process
            .as_ref()
            .map_or_else(|| pid_of(&arrival.socket), PluginProcess::pid);
        let mut info = unregistered(pid, arrival.installed.is_some());
        let (connection, mut requests) = PluginConnection::open(arrival.socket);
        let (name, config) = arrival.installed.unwrap_or_default();
        let registering = register(&connection, &mut requests, &mut info, name);
        let registered =
            tokio::time::timeout(self.settings.registration_timeout, registering).await;
        let failed = match registered {
            Ok(Ok(())) => None,
            Ok(Err(reason)) => Some(reason),
            Err(_) => Some(CloseReason::Registration(
                "it did not register in time".to_owned(),
            )),
        };
        if let Some(reason) = failed {
            connection.close(reason);
            return self.observer.closed(&info, &connection.closed().await);
        }
        let plugin = Arc::new(RegisteredPlugin::new(
            info,
            connection,
            arrival.process,
            &self.settings,
            Arc::clone(&self.observer),
        ));
        let served = Arc::clone(&self).serve(Arc::clone(&plugin), requests);
        tokio::spawn(served);
        let admitted = match plugin.configure(&self.settings, config).await {
            Ok(()) => self.synchronize(&plugin).await,
            Err(error) => Err(error),
        };
        match admitted {
            Ok(()) => self.observer.connected(&plugin.info),
            Err(error) => plugin.connection.close(CloseReason::Registration(error)),
        }
        let slot = arrival.slot;
        tokio::spawn(async move {
            let reason = plugin.connection.closed().await;
            self.forget_closed().await;
            drop(slot);
            self.observer.closed(&plugin.info, &reason);
        });
    }

    async fn synchronize(&self, plugin: &Arc<RegisteredPlugin>) -> Result<(), String> {
        let _gate = self.closed_gate().await;
        let mut plugins = self.plugins.lock().await;
        // Events wait for the listing.
        let listing = tokio::time::timeout(self.settings.request_timeout, self.runtime.list());
        let (pods, containers) = listing
            .await
            .map_err(|_| "what exists could not be listed in time".to_owned())?;
        let updates = plugin.synchronize(pods, containers).await?;
        plugins.push(Arc::clone(plugin));
        // The sort is stable: plugins with the same index are called in the order in which they connected.
        plugins.sort_by(|a, b| a.parts().0.cmp(b.parts().0));
        self.plugins_changed(&plugins);
        // This does not wait for the updates: a CRI call may hold a lock that they need while it waits for this.
        drop(self.queue.add(updates));
        Ok(())
    }

    /// Waits until no object is between its event and the store. New objects wait for at most a second at a time, even if another
    /// object never gets there.
    async fn closed_gate(&self) -> RwLockWriteGuard<'_, ()> {
        loop {
            if let Ok(gate) = tokio::time::timeout(SYNC_GATE_TIMEOUT, self.gate.write()).await {
                return gate;
            }
            tokio::time::sleep(SYNC_GATE_TIMEOUT / 10).await;
        }
    }

    async fn forget_closed(&self) {
        let mut plugins = self.plugins.lock().await;
        plugins.retain(|plugin| !plugin.connection.is_closed());
        self.plugins_changed(&plugins);
    }

    fn plugins_changed(&self, plugins: &[Arc<RegisteredPlugin>]) {
        let wanted = plugins
            .iter()
            .fold(0, |mask, plugin| mask | plugin.events());
        self.wanted.store(wanted, Ordering::Relaxed);
        self.observer.count(plugins.len());
    }

    /// Serves the requests of a plugin, one after the other.
    async fn serve(
        self: Arc<Self>,
        plugin: Arc<RegisteredPlugin>,
        mut requests: mpsc::Receiver<IncomingRequest>,
    ) {
        let connection = &plugin.connection;
        while let Some(IncomingRequest { stream, request }) = requests.recv().await {
            let known = request.service == RUNTIME_SERVICE && request.method == "UpdateContainers";
            let answer = match UpdateContainersRequest::decode(&*request.payload) {
                _ if !known => Err((CODE_UNIMPLEMENTED, format!("no method {}", request.method))),
                Err(error) => Err((INVALID_ARGUMENT, error.to_string())),
                Ok(request) => Ok(self.update_containers(plugin.name(), request).await),
            };
            let answer = answer.map(|answer| answer.encode_to_vec());
            connection.answer(stream, answer).await;
            if connection.is_closed() {
                return;
            }
        }
    }

    async fn update_containers(
        &self,
        plugin: &str,
        request: UpdateContainersRequest,
    ) -> UpdateContainersResponse {
        let applied = {
            // The updates of the event in progress come first.
            let _turn = self.plugins.lock().await;
            self.queue.add(request.update)
        };
        let failed = applied.failed().await;
        let evictions = request.evict.into_iter();
        let evictions = evictions.map(|eviction| EvictionRequest::new(plugin, eviction));
        self.evict(evictions.collect()).await;
        UpdateContainersResponse { failed }
    }
}

/// Waits for the registration of a plugin.
async fn register(
    connection: &PluginConnection,
    requests: &mut mpsc::Receiver<IncomingRequest>,
    info: &mut PluginInfo,
    installed: String,
) -> Result<(), CloseReason> {
    while let Some(IncomingRequest { stream, request }) = requests.recv().await {
        if request.service != RUNTIME_SERVICE || request.method != "RegisterPlugin" {
            let text = format!("{} before RegisterPlugin", request.method);
            connection
                .answer(stream, Err((FAILED_PRECONDITION, text)))
                .await;
            continue;
        }
        let registration = match RegisterPluginRequest::decode(&*request.payload) {
            Ok(registration) => registration,
            Err(error) => {
                return Err(CloseReason::Registration(format!(
                    "RegisterPlugin: {error}"
                )));
            }
        };
        let version = registration.nri_version.chars();
        let version = version.filter(|c| c.is_ascii_alphanumeric() || ".-+".contains(*c));
        info.nri_version = version.take(32).collect();
        // An installed plugin is named like its file.
        let name = if installed.is_empty() {
            registered_name(&registration)
        } else {
            Ok(installed)
        };
        match name {
            Ok(name) => info.name = name,
            Err(error) => {
                let answer = Err((INVALID_ARGUMENT, error.clone()));
                connection.answer(stream, answer).await;
                return Err(CloseReason::Registration(error));
            }
        }
        connection.answer(stream, Ok(Vec::new())).await;
        return Ok(());
    }
    Err(connection.closed().await)
}

fn unregistered(pid: Option<u32>, pre_installed: bool) -> PluginInfo {
    PluginInfo {
        name: String::new(),
        nri_version: String::new(),
        pid,
        pre_installed,
    }
}

fn pid_of(socket: &UnixStream) -> Option<u32> {
    let pid = socket.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok()
}
