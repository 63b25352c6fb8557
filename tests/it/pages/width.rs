//! Tables fit into their cards, whose widths depend on that of the window.

use super::{page_of, show_in};
use crate::prelude::*;

/// Tells in the DOM how wide the window is, and how far the widest table sticks out of its card, in pixels.
const MEASURED: &str = "<script>addEventListener('load', () => {
    const out = [...document.querySelectorAll('.wide')].map((it) => it.scrollWidth - it.clientWidth);
    document.body.dataset.measured = `${out.length} in ${innerWidth}: ${Math.max(...out)}`;
})</script>";

#[tokio::test]
async fn the_tables_of_the_live_page_fit() {
    let fake = Fake::new();
    fake.always(script::error(13, "internal"));
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    let methods = ["UpdatePodSandboxResources", "UpdateContainerResources"];
    for method in methods {
        client.call(Call::runtime(method, message(b""))).await;
    }
    proxy.wait_balanced(methods.len()).await;
    // From a file, to which the policy of the response does not apply.
    let answer = page_of(proxy.admin_port()).await;
    let (_, page) = answer.split_once("\r\n\r\n").expect("http");
    assert!(page.contains(methods[0]), "{page}");
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("live.html");
    fs::write(
        &file,
        page.replace("</main>", &format!("</main>{MEASURED}")),
    )
    .expect("written");
    let url = format!("file://{}", file.display());
    for width in [1000, 1200, 1400, 1600] {
        let shown = show_in(&url, &dir.path().join("profile"), width).await;
        let fits = format!("data-measured=\"1 in {width}: 0\"");
        assert!(shown.dom.contains(&fits), "{fits}: {}", shown.dom);
    }
}
