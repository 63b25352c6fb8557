//! What is not there: the runtime, or criscope.

use super::{Fired, Node, Ordinary, pace, stays};
use crate::prelude::*;

/// The runtime crashes again and again, and then for good.
pub(super) async fn runtime(node: Node<'_>, it: &Ordinary) -> Fired {
    let kubelet = it.kubelet().await;
    node.is_well_while(async || {
        kubelet.plain("Status").await;
        pace(300).await;
    })
    .await;
    let ready = |is_ready: bool| {
        for condition in &mut it.fake.node().conditions {
            condition.status = is_ready;
        }
    };
    ready(false);
    let not_ready = node.fires("CriscopeRuntimeNotReady", stays).await;
    ready(true);
    let flapping = node.fires("CriscopeBackendFlapping", async || {
        it.fake.stop();
        pace(100).await;
        it.fake.start();
        it.proxy.wait_ready().await;
        pace(700).await;
    });
    let flapping = flapping.await;
    it.fake.stop();
    let down = node.fires("CriscopeBackendDown", stays).await;
    vec![not_ready, flapping, down]
}

/// A criscope that can be killed and comes back at the same port.
pub(super) struct Mortal {
    fake: Fake,
    port: u16,
    proxy: Proxy,
}

impl Mortal {
    pub(super) async fn new(port: u16) -> Self {
        let fake = Fake::new();
        let proxy = begin(&fake, port).await;
        Self { fake, port, proxy }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

async fn begin(fake: &Fake, port: u16) -> Proxy {
    Start::new(crate::CRISCOPE)
        .admin(port)
        .upstream(fake.path())
        .ready()
        .await
}

/// criscope crashes again and again, and then for good.
pub(super) async fn proxy(node: Node<'_>, mortal: Mortal) -> Fired {
    node.is_well().await;
    let Mortal { fake, port, proxy } = mortal;
    let proxy = tokio::sync::Mutex::new(Some(proxy));
    let restarting = node.fires("CriscopeProxyRestarting", async || {
        let mut proxy = proxy.lock().await;
        if let Some(old) = proxy.take() {
            old.signal(Signal::SIGKILL);
            old.ended().await;
        }
        let new = begin(&fake, port).await;
        let scrape = new.scrape().await;
        let since = scrape.metric("criscope_start_time_seconds").sum();
        *proxy = Some(new);
        // It is read once at least.
        let query = format!("criscope_start_time_seconds{{instance=\"{}\"}}", node.name);
        until("the new start", || async {
            let seen = node.prometheus.query(&query).await.ok()?;
            seen.iter().any(|(value, _)| *value == since).then_some(())
        })
        .await;
    });
    let restarting = restarting.await;
    drop(proxy.lock().await.take());
    let down = node.fires("CriscopeProxyDown", stays).await;
    vec![restarting, down]
}
