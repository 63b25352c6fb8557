//! With two backends criscope words some errors itself, around what a backend said.

use super::filler::{Filler, echoes, leaks};
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_one_of_two_backends_quotes_is_hidden() {
    let (good, bad) = (Fake::new(), Fake::new());
    let text: String = echoes(&Filler::default().canary())
        .iter()
        .map(|echo| format!("not found: {} ", echo.escape_default()))
        .collect();
    bad.always(script::error(5, &text.replace('%', "%25")));
    let config = format!(
        "[backends.blue]\nkind = \"upstream\"\nendpoint = \"unix://{}\"\n\
         [backends.green]\nkind = \"upstream\"\nendpoint = \"unix://{}\"\n\
         [routing]\ndefault = \"blue\"\n[telemetry.log]\nlevel = \"debug\"\n",
        good.path().display(),
        bad.path().display()
    );
    let proxy = Start::new(crate::CRISCOPE).config(&config).ready().await;
    let client = proxy.client().await;
    for method in [
        "ListContainers",
        "ListPodSandbox",
        "Status",
        "StreamContainers",
    ] {
        let got = client.call(Call::plain(method)).await;
        assert_eq!(got.code(), 5, "{method}: {got:?}");
        assert!(
            !leaks(got.text().as_bytes()).is_empty(),
            "the caller sees it"
        );
        let line = proxy
            .wait_line(method, |l| is_call(l, method) && l["event"] == "rpc.end")
            .await;
        assert_eq!(line["cri.error.source"], "backend", "{line}");
        let told = line["error.message"].as_str().expect("a text");
        assert!(told.contains("not found: <redacted>"), "{told}");
    }
    let log = proxy.stop().await.join("\n");
    assert_eq!(leaks(log.as_bytes()), [""; 0]);
}
