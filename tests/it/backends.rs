//! Two runtimes behind one socket: calls go to the runtime of their pod, and lists are complete or fail.

mod joined;
mod routed;

use crate::prelude::*;

/// `one` is the default; pods with the handler `kata` go to `two`.
struct Pair {
    one: Fake,
    two: Fake,
    proxy: Proxy,
}

fn config(one: &Fake, two: &Fake) -> String {
    let (one, two) = (one.path().display(), two.path().display());
    format!(
        "[backends.one]\nkind = \"upstream\"\nendpoint = \"unix://{one}\"\n\
         [backends.two]\nkind = \"upstream\"\nendpoint = \"unix://{two}\"\n\
         [routing]\ndefault = \"one\"\n\
         [[routing.rules]]\nruntime_handler = \"kata\"\nbackend = \"two\"\n"
    )
}

impl Pair {
    /// Each runtime has a pod: `web` in `one`, `vm` in `two`.
    async fn new() -> Self {
        let (one, two) = (Fake::new(), Fake::new());
        one.node().add_pod("web", "sandbox-1", "container-1");
        two.node().add_pod("vm", "sandbox-2", "container-2");
        let proxy = Start::new(crate::CRISCOPE)
            .config(&config(&one, &two))
            .ready()
            .await;
        proxy
            .wait_scrape("the identity index is filled", |scrape| {
                scrape.metric("criscope_identity_entries").sum() == 4.0
            })
            .await;
        Self { one, two, proxy }
    }
}
