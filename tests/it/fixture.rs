//! The parts with which most tests of the built-in runtime begin.

use crate::prelude::*;

/// A started daemon, and a kubelet that is connected to it.
pub(crate) async fn node() -> (Daemon, Kubelet) {
    Daemon::with_kubelet(crate::CRISCOPE).await
}

/// A node with a pod.
pub(crate) async fn node_with_pod(name: &str) -> (Daemon, Kubelet, Pod) {
    let (daemon, kubelet) = node().await;
    let pod = kubelet.plain_pod(name).await;
    (daemon, kubelet, pod)
}

/// A fake runtime, and criscope in front of it.
pub(crate) async fn proxied() -> (Fake, Proxy) {
    let fake = Fake::new();
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    (fake, proxy)
}

/// The same with a caller.
pub(crate) async fn proxied_client() -> (Fake, Proxy, Client) {
    let (fake, proxy) = proxied().await;
    let client = proxy.client().await;
    (fake, proxy, client)
}

/// A criscope with this configuration in front of a fake runtime.
pub(crate) async fn configured(fake: &Fake, config: &str) -> Proxy {
    let start = Start::before(crate::CRISCOPE, fake);
    start.config(config).ready().await
}

/// Asserts that a call failed with this code and these words; returns its error.
#[track_caller]
pub(crate) fn assert_refused<T>(answer: Result<T, Status>, code: Code, words: &str) -> Status {
    let Err(error) = answer else {
        panic!("not refused: {words}");
    };
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(words), "{words:?}: {error}");
    error
}
