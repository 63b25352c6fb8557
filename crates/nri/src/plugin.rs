//! A plugin: its registration, its events, the requests to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use criscope_wire::ttrpc::{CODE_UNIMPLEMENTED, MAX_MESSAGE_LEN};
use prost::Message;

use crate::api::{
    ALL_EVENTS, ConfigureRequest, ConfigureResponse, Container, ContainerUpdate, Empty, Event,
    EventRequest, PLUGIN_SERVICE, PodSandbox, RegisterPluginRequest, StateChangeEvent,
    SynchronizeRequest, SynchronizeResponse, VERSION,
};
use crate::connection::PluginConnection;
use crate::error::CallError;
use crate::launch::PluginProcess;
use crate::observer::{CloseReason, PluginInfo, PluginObserver};
use crate::settings::NriSettings;

/// Bytes of a message that are reserved for its envelope: names, timeout, metadata.
const ENVELOPE_RESERVE: usize = 64 << 10;

/// The longest name of a plugin.
const MAX_NAME: usize = 128;

/// A plugin that has registered.
#[derive(Debug)]
pub(crate) struct RegisteredPlugin {
    pub(crate) info: PluginInfo,
    pub(crate) connection: Arc<PluginConnection>,
    events: OnceLock<u32>,
    /// Set if the plugin gets events without an answer by StateChange.
    old: AtomicBool,
    timeout: Duration,
    observer: Arc<dyn PluginObserver>,
    _process: Option<PluginProcess>,
}

impl RegisteredPlugin {
    pub(crate) fn new(
        info: PluginInfo,
        connection: Arc<PluginConnection>,
        process: Option<PluginProcess>,
        settings: &NriSettings,
        observer: Arc<dyn PluginObserver>,
    ) -> Self {
        Self {
            info,
            connection,
            events: OnceLock::new(),
            old: AtomicBool::new(false),
            timeout: settings.request_timeout,
            observer,
            _process: process,
        }
    }

    /// Index and name of the plugin.
    pub(crate) fn name(&self) -> &str {
        &self.info.name
    }

    /// Index and name of the plugin, separately.
    pub(crate) fn parts(&self) -> (&str, &str) {
        self.info
            .name
            .split_once('-')
            .unwrap_or(("", &self.info.name))
    }

    /// The mask of the events that the plugin has subscribed to.
    pub(crate) fn events(&self) -> u32 {
        self.events.get().copied().unwrap_or(0)
    }

    pub(crate) fn wants(&self, event: Event) -> bool {
        self.events() & event.bit() != 0
    }

    /// Configures the plugin.
    pub(crate) async fn configure(
        &self,
        settings: &NriSettings,
        config: String,
    ) -> Result<(), String> {
        let request = ConfigureRequest {
            config,
            runtime_name: settings.runtime_name.clone(),
            runtime_version: settings.runtime_version.clone(),
            registration_timeout: millis(settings.registration_timeout),
            request_timeout: millis(settings.request_timeout),
            nri_version: VERSION.to_owned(),
        };
        let answer: ConfigureResponse = self
            .call("Configure", &request)
            .await
            .map_err(|error| format!("it cannot be configured: {error}"))?;
        let events = match answer.events as u32 {
            0 => ALL_EVENTS,
            events if events & !ALL_EVENTS == 0 => events,
            events => return Err(format!("it asked for unknown events ({events:#x})")),
        };
        let _set_once = self.events.set(events);
        Ok(())
    }

    /// Sends all pods and containers to the plugin, in as many messages as needed. Returns the updates that the plugin wants.
    pub(crate) async fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<Vec<ContainerUpdate>, String> {
        let mut messages = sync_messages(pods, containers).into_iter().peekable();
        while let Some(message) = messages.next() {
            let more = messages.peek().is_some();
            let request = SynchronizeRequest { more, ..message };
            let answer: SynchronizeResponse = self
                .call("Synchronize", &request)
                .await
                .map_err(|error| format!("it cannot be synchronized: {error}"))?;
            if !more {
                return Ok(answer.update);
            }
            if !answer.more || !answer.update.is_empty() {
                return Err("it does not take what exists in several messages".to_owned());
            }
        }
        Ok(Vec::new())
    }

    /// Tells the plugin that the runtime shuts down.
    pub(crate) async fn shutdown(&self) {
        let _ends_anyway = self.call::<Empty>("Shutdown", &Empty {}).await;
    }

    /// Sends an event, if the plugin has subscribed to it. `Ok(None)` if the plugin closed its connection or did not answer in
    /// time: the event goes on without it.
    pub(crate) async fn event<A: Message + Default>(
        &self,
        event: Event,
        request: &impl EventRequest,
    ) -> Result<Option<A>, CallError> {
        if !self.wants(event) || self.connection.is_closed() {
            return Ok(None);
        }
        match self.call_event(event, request).await {
            Ok(answer) => Ok(Some(answer)),
            Err(CallError::Closed) => Ok(None),
            Err(CallError::Timeout(_)) => {
                self.connection.close(CloseReason::Timeout(event.method()));
                Ok(None)
            }
            Err(error) => {
                if let CallError::Malformed(what) = &error {
                    let what = format!("answer to {}: {what}", event.method());
                    self.connection.close(CloseReason::Protocol(what));
                }
                Err(error)
            }
        }
    }

    async fn call_event<A: Message + Default>(
        &self,
        event: Event,
        request: &impl EventRequest,
    ) -> Result<A, CallError> {
        if !event.by_state_change() {
            return self.call(event.method(), request).await;
        }
        if !self.old.load(Ordering::Relaxed) {
            match self.call(event.method(), request).await {
                Err(CallError::Status { code, .. }) if code == CODE_UNIMPLEMENTED => {
                    self.old.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        let change = StateChangeEvent {
            event: event as i32,
            pod: request.pod().cloned(),
            container: request.container().cloned(),
        };
        self.call("StateChange", &change).await
    }

    /// Calls a method.
    async fn call<A: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, CallError> {
        let payload = request.encode_to_vec();
        let run = Box::pin(async move {
            let metadata = self.observer.metadata();
            let connection = &self.connection;
            connection
                .call(PLUGIN_SERVICE, method, payload, metadata, self.timeout)
                .await
        });
        let answer = self.observer.request(&self.info.name, method, run).await?;
        A::decode(&*answer).map_err(|error| CallError::Malformed(error.to_string()))
    }
}

fn millis(time: Duration) -> i64 {
    time.as_millis().try_into().unwrap_or(i64::MAX)
}

/// Divides pods and containers into messages that fit. There is always one.
fn sync_messages(pods: Vec<PodSandbox>, containers: Vec<Container>) -> Vec<SynchronizeRequest> {
    // Tag and length of an element.
    const ELEMENT: usize = 8;
    let mut all = Vec::new();
    let (mut last, mut size) = (SynchronizeRequest::default(), 0);
    let mut pods = pods.into_iter().peekable();
    let mut containers = containers.into_iter().peekable();
    loop {
        let next = match (pods.peek(), containers.peek()) {
            (Some(pod), _) => pod.encoded_len() + ELEMENT,
            (None, Some(container)) => container.encoded_len() + ELEMENT,
            (None, None) => break,
        };
        if size > 0 && size + next > MAX_MESSAGE_LEN - ENVELOPE_RESERVE {
            all.push(std::mem::take(&mut last));
            size = 0;
        }
        size += next;
        match pods.next() {
            Some(pod) => last.pods.push(pod),
            None => last.containers.extend(containers.next()),
        }
    }
    all.push(last);
    all
}

/// The name of a plugin that registers, `NN-name`.
///
/// # Errors
/// The problem of an invalid name.
pub(crate) fn registered_name(request: &RegisterPluginRequest) -> Result<String, String> {
    let (index, name) = (&request.plugin_idx, &request.plugin_name);
    check_index(index)?;
    let has_name_bytes = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+'));
    if name.is_empty() || name.len() > MAX_NAME || !has_name_bytes {
        return Err(format!("invalid plugin name {:?}", shortened(name)));
    }
    Ok(format!("{index}-{name}"))
}

/// Checks an index: two digits.
pub(crate) fn check_index(index: &str) -> Result<(), String> {
    match index.as_bytes() {
        [a, b] if a.is_ascii_digit() && b.is_ascii_digit() => Ok(()),
        _ => Err(format!("invalid plugin index {:?}", shortened(index))),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_indices_are_checked() {
        let name = |idx: &str, name: &str| {
            registered_name(&RegisterPluginRequest {
                plugin_name: name.to_owned(),
                plugin_idx: idx.to_owned(),
                ..Default::default()
            })
        };
        assert_eq!(name("05", "a.b_c+d-e"), Ok("05-a.b_c+d-e".to_owned()));
        for (idx, bad) in [
            ("5", "a"),
            ("005", "a"),
            ("0x", "a"),
            ("05", ""),
            ("05", "a/b"),
        ] {
            assert!(name(idx, bad).is_err(), "{idx} {bad}");
        }
        assert!(name("05", &"x".repeat(129)).is_err());
    }

    #[test]
    fn a_large_state_is_divided_into_messages_that_fit() {
        let pod = |id: usize| PodSandbox {
            id: id.to_string(),
            name: "x".repeat(100_000),
            ..Default::default()
        };
        let container = |id: usize| Container {
            id: id.to_string(),
            name: "x".repeat(50_000),
            ..Default::default()
        };
        let all = sync_messages(
            (0..60).map(pod).collect(),
            (0..100).map(container).collect(),
        );
        assert!(all.len() >= 3);
        assert!(
            all.iter()
                .all(|piece| piece.encoded_len() < MAX_MESSAGE_LEN - ENVELOPE_RESERVE)
        );
        let pods: Vec<_> = all.iter().flat_map(|piece| &piece.pods).collect();
        assert!(
            pods.iter()
                .enumerate()
                .all(|(n, pod)| pod.id == n.to_string())
        );
        assert_eq!(pods.len(), 60);
        assert_eq!(
            all.iter()
                .map(|piece| piece.containers.len())
                .sum::<usize>(),
            100
        );
        assert_eq!(sync_messages(Vec::new(), Vec::new()).len(), 1);
    }
}
