//! Each page opens with its verdict, and nothing sticks out of a telephone's window: with pods in trouble and without, in light and dark,
//! with the page's own script and without it.
//!
//! All pages are shown at once, in frames of a page that collects what each of them measures.

use std::fmt::Write as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{pull, show_with};
use crate::prelude::*;

/// Width of the frames in pixels.
const FRAME_WIDTH: u32 = 400;

/// Number of pods in trouble.
const PODS_IN_TROUBLE: usize = 20;

const PAGES: [&str; 17] = [
    "/",
    "/debug",
    "/debug/pods",
    "/debug/pods?state=cannot_start&cause=image_pull",
    "/debug/pods/shop/web-1",
    "/debug/pods/shop/no-such-pod",
    "/debug/calls",
    "/debug/images/pulls",
    "/debug/rpcz",
    "/debug/flight",
    "/debug/backends",
    "/debug/config",
    "/debug/faults",
    "/debug/log-level",
    "/readyz?verbose",
    "/metrics",
    "/no-such-page",
];

/// Tells the page around the frame what a page opens with, and which elements stick out. Tables that scroll may be wider.
const MEASURE: &str = r##"<script>addEventListener("load", () => {
    const inside = (node, places) => { const place = node.closest(places); return place && place !== node; };
    const sticksOut = (node) => !inside(node, "svg, .wide, main > table, .defs") && !node.matches(".defs, .vh, .skip")
        && node.getBoundingClientRect().right > innerWidth + 1;
    const verdict = document.querySelector("main > h1 + .verdict");
    parent.postMessage({
        page: location.pathname.split("/").pop(),
        verdict: verdict && verdict.offsetHeight > 0 ? verdict.innerText.trim() : "",
        out: [...document.body.querySelectorAll("*")].filter(sticksOut).map((node) => `${node.tagName}.${node.className}`),
        wide: document.documentElement.scrollWidth > innerWidth,
        dark: matchMedia("(prefers-color-scheme: dark)").matches,
        buttons: document.querySelectorAll("#refresh button").length,
    }, "*");
})</script>"##;

/// Collects the messages of the frames in the DOM.
const COLLECT: &str = r#"<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><body><script>
    addEventListener("message", (event) => {
        const found = document.createElement("pre");
        found.textContent = JSON.stringify(event.data);
        document.body.append(found);
    });
</script>"#;

/// A page as a browser gets it.
async fn page_for_browser(proxy: &Proxy, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.admin_port()))
        .await
        .expect("connected");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/html,*/*;q=0.8\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("http");
    assert!(
        head.to_ascii_lowercase().contains("text/html"),
        "{path}: {head}"
    );
    body.to_owned()
}

/// The page without its own script.
fn without_script(page: &str) -> String {
    let (before, rest) = page.split_once("<script>").expect("a script");
    let (_, after) = rest.split_once("</script>").expect("its end");
    format!("{before}{after}")
}

/// Stores each page twice, with its script and without, and the page that frames them; returns the path of the latter.
async fn framed(proxy: &Proxy, dir: &Path) -> PathBuf {
    let mut frames = COLLECT.to_owned();
    for (n, path) in PAGES.iter().enumerate() {
        let page = page_for_browser(proxy, path).await;
        for (kind, page) in [("script", page.clone()), ("plain", without_script(&page))] {
            let name = format!("{kind}-{n}.html");
            let page = page.replace("</main>", &format!("</main>{MEASURE}"));
            fs::write(dir.join(&name), page).expect("written");
            let _ = write!(
                frames,
                "<iframe width=\"{FRAME_WIDTH}\" height=\"900\" src=\"{name}\"></iframe>"
            );
        }
    }
    let all = dir.join("all.html");
    fs::write(&all, frames).expect("written");
    all
}

/// What the frames measured.
async fn measured(all: &Path, dark: bool) -> Vec<Value> {
    let profile = tempfile::tempdir().expect("dir");
    // Blink counts dark first.
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let url = format!("file://{}", all.display());
    let shown = show_with(&url, profile.path(), 1400, &[&scheme]).await;
    let found = shown.dom.split("<pre>").skip(1);
    let found = found.filter_map(|rest| rest.split_once("</pre>"));
    let unescaped = found.map(|(json, _)| {
        let json = json.replace("&lt;", "<").replace("&gt;", ">");
        json.replace("&amp;", "&")
    });
    unescaped
        .map(|json| serde_json::from_str(&json).expect("json"))
        .collect()
}

/// Checks all pages of a node; returns what the live page opens with.
async fn check(proxy: &Proxy) -> String {
    let dir = tempfile::tempdir().expect("dir");
    let all = framed(proxy, dir.path()).await;
    let mut live = String::new();
    for dark in [false, true] {
        let found = measured(&all, dark).await;
        assert_eq!(found.len(), 2 * PAGES.len(), "{found:#?}");
        for page in found {
            let name = page["page"].as_str().expect("a name");
            let number = name.trim_matches(|c: char| !c.is_ascii_digit());
            let path = PAGES[number.parse::<usize>().expect("a number")];
            let has_script = name.starts_with("script");
            assert_eq!(page["dark"], dark, "{path}");
            assert_eq!(page["buttons"], u8::from(has_script), "{path}: {page}");
            assert_ne!(page["verdict"], "", "{path} opens with its verdict: {page}");
            assert_eq!(page["wide"], false, "{path}: {page}");
            assert_eq!(
                page["out"],
                json!([]),
                "{path}: sticks out at {FRAME_WIDTH} pixels"
            );
            if path == "/" {
                live = page["verdict"].as_str().expect("words").to_owned();
            }
        }
    }
    live
}

#[tokio::test]
async fn pages_of_a_quiet_node_open_with_their_verdict() {
    let (_fake, proxy) = proxied().await;
    let live = check(&proxy).await;
    assert!(!live.contains("cannot start"), "{live}");
}

#[tokio::test]
async fn pages_of_a_node_with_twenty_pods_in_trouble_open_with_their_verdict() {
    let fake = Fake::new();
    fake.on(|_| script::error(5, "no such image"));
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    for n in 0..PODS_IN_TROUBLE {
        assert_eq!(client.call(pull(&format!("web-{n}"))).await.code(), 5);
    }
    proxy.wait_balanced(PODS_IN_TROUBLE).await;
    let all = format!("All {PODS_IN_TROUBLE} pods cannot start: {PODS_IN_TROUBLE} image pulls");
    let told = soon("the verdict", async {
        loop {
            let told = proxy.json("/debug/pods?by=pod").await;
            if told["verdict"]["headline"].to_string().contains(&all) {
                break told;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(told["verdict"]["troubles"]["cannot_start"], PODS_IN_TROUBLE);
    let live = check(&proxy).await;
    assert!(live.contains(&all), "{live}");
}

#[tokio::test]
async fn what_is_text_to_programs_is_a_page_to_browsers_only() {
    let (_fake, proxy) = proxied().await;
    for path in [
        "/metrics",
        "/readyz",
        "/livez",
        "/debug/log-level",
        "/no-such-page",
    ] {
        let (_, text) = proxy.get(path).await;
        assert!(!text.contains("<html"), "{path}: {text}");
        assert!(
            page_for_browser(&proxy, path)
                .await
                .contains("aria-label=\"Pages\"")
        );
    }
    let (_, metrics) = proxy.get("/metrics").await;
    assert!(metrics.starts_with("# HELP"), "{metrics}");
    let raw = proxy.head("/metrics?format=text").await;
    assert!(
        raw.contains("content-type: text/plain; version=0.0.4"),
        "{raw}"
    );
    assert_eq!(proxy.get("/debug/faults").await.1, "[]");
}
