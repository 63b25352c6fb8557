//! Misbehaving callers affect no other caller, and leave nothing behind.

mod bytes;
mod calls;
mod listeners;

use std::future::Future;

use tokio::task::JoinHandle;

use crate::harness::raise_descriptor_limit;
use crate::prelude::*;

/// A proxy, and a well-behaved caller that calls continuously and requires every call to succeed.
struct Siege {
    fake: Fake,
    proxy: Proxy,
    stop: CancellationToken,
    good: Arc<AtomicUsize>,
    caller: JoinHandle<()>,
}

impl Siege {
    async fn new() -> Self {
        raise_descriptor_limit();
        let (fake, proxy, client) = proxied_client().await;
        let (stop, good) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let caller = {
            let (stop, good) = (stop.clone(), Arc::clone(&good));
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    let got = client.call(Call::plain("ContainerStats")).await;
                    assert_eq!((got.code(), &got.broken), (0, &None), "{got:?}");
                    good.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        Self {
            fake,
            proxy,
            stop,
            good,
            caller,
        }
    }

    /// With a runtime that never responds to this method.
    async fn hanging(method: &'static str) -> Self {
        let siege = Self::new().await;
        siege.fake.on(move |head| match head.uri.path() {
            path if path.ends_with(method) => vec![Step::Read, Step::Hang],
            _ => script::empty(),
        });
        siege
    }

    /// Waits for further successful calls of the well-behaved caller.
    async fn others_are_served(&self) {
        let want = self.good.load(Ordering::SeqCst) + 50;
        until_true("other callers are served", async || {
            assert!(
                !self.caller.is_finished(),
                "a call of the well-behaved caller failed"
            );
            self.good.load(Ordering::SeqCst) >= want
        })
        .await;
    }

    /// Runs an attack. Others are served during it, while its resources are still open, and afterwards.
    async fn during<T>(&self, attack: impl Future<Output = T>) {
        let held = attack.await;
        self.others_are_served().await;
        drop(held);
        self.others_are_served().await;
    }

    /// Asserts that no call or connection is left, and that each call that entered has ended once.
    async fn over(self) {
        self.stop.cancel();
        self.caller.await.expect("every call succeeded");
        let counts = |scrape: &Scrape| {
            let metrics = ["criscope_rpc_total", "criscope_rpc_duration_seconds_count"];
            metrics.map(|name| scrape.metric(name).sum())
        };
        let scrape = self
            .proxy
            .wait_scrape("nothing is left", |scrape| {
                let [total, timed] = counts(scrape);
                scrape.metric("criscope_rpc_in_flight").sum() == 0.0
                    && scrape.metric("criscope_connections_open").sum() == 0.0
                    && total == timed
            })
            .await;
        let [total, timed] = counts(&scrape);
        assert_eq!(total, timed);
        assert!(total >= self.good.load(Ordering::SeqCst) as f64);
        until_true(
            "its connections to the runtime are closed",
            async || // The probe's connection remains.
            self.fake.connections() <= 1,
        )
        .await;
        self.proxy.stop().await;
    }
}
