//! The pages in a browser: a headless Chromium, in front of a proxy with calls in flight.

mod verdicts;
mod width;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::harness::client::Open;
use crate::harness::packages;
use crate::prelude::*;

/// A name that would be executed if it were not escaped.
const MARKUP: &str = "<script>document.title='owned'</script>";

fn run_pod(name: &str) -> Call {
    pods::run(name).with("grpc-timeout", "10M")
}

fn pull(name: &str) -> Call {
    let request = v1::PullImageRequest {
        image: Some(requests::image_spec("registry.example/<b>shop</b>:1")),
        auth: None,
        sandbox_config: Some(pods::config(name)),
    };
    Call::image("PullImage", encode(&request)).with("grpc-timeout", "10M")
}

/// The DOM of a page in the browser, and the messages of its console.
#[derive(Debug)]
struct Shown {
    dom: String,
    console: Vec<String>,
}

/// Loads a page, runs its scripts for some seconds of the browser's virtual time, and returns the DOM at that point.
async fn show(url: &str, profile: &Path) -> Shown {
    show_in(url, profile, 800).await
}

/// The same in a window of this width in pixels.
async fn show_in(url: &str, profile: &Path, width: u32) -> Shown {
    show_with(url, profile, width, &[]).await
}

/// The same with more arguments for the browser.
async fn show_with(url: &str, profile: &Path, width: u32, arguments: &[&str]) -> Shown {
    let mut command = Command::new(packages::program("chromium", "chromium"));
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--virtual-time-budget=7000",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .args(arguments)
        .arg(format!("--window-size={width},900"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(url)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = soon("chromium", command.output()).await.expect("it runs");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "chromium: {log}");
    Shown {
        dom: String::from_utf8(output.stdout).expect("text"),
        console: log
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .map(str::to_owned)
            .collect(),
    }
}

/// A proxy with calls in flight that its runtime never answers.
struct Busy {
    _fake: Fake,
    proxy: Proxy,
    _client: Client,
    _calls: Vec<Open>,
    profile: TempDir,
}

impl Busy {
    async fn new(calls: Vec<Call>) -> Self {
        let fake = Fake::new();
        fake.always(vec![Step::Read, Step::Hang]);
        let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
        let client = proxy.client().await;
        let mut started = Vec::new();
        for call in calls {
            started.push(client.start(call).await);
        }
        fake.wait_count(started.len()).await;
        Self {
            _fake: fake,
            proxy,
            _client: client,
            _calls: started,
            profile: tempfile::tempdir().expect("dir"),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.proxy.admin_port())
    }

    async fn show(&self, path: &str) -> Shown {
        show(&self.url(path), self.profile.path()).await
    }
}

#[tokio::test]
async fn the_live_page_updates() {
    let busy = Busy::new(vec![run_pod(MARKUP), pull("web")]).await;
    let shown = busy.show("/").await;
    assert_eq!(shown.console, [""; 0], "nothing is blocked, nothing fails");
    for said in [
        // Added by the script after it has fetched the page again.
        "<button type=\"button\">Pause</button>",
        "role=\"status\" class=\"live\">Live</span>",
        // The calls in flight.
        "RunPodSandbox",
        "&lt;script&gt;document.title='owned'&lt;/script&gt;",
        "registry.example/&lt;b&gt;shop&lt;/b&gt;:1",
        "✓ up",
        "fake v9",
        // The pull belongs to a pod start, which has a page.
        "<ol class=\"starts\">",
        "<a href=\"/debug/pods/shop/web\">",
    ] {
        assert!(shown.dom.contains(said), "{said}: {}", shown.dom);
    }
    assert!(!shown.dom.contains("<title>owned"), "{}", shown.dom);
}

#[tokio::test]
async fn the_live_page_swaps_its_content() {
    let busy = Busy::new(vec![run_pod("web")]).await;
    // Later responses replace the content of the first one.
    let relay = Relay::new(busy.proxy.admin_port(), false).await;
    let live = show(&relay.url(), busy.profile.path()).await;
    assert!(relay.asked() >= 2, "the page has fetched itself again");
    assert!(live.dom.contains("RunPodSandbox"), "{}", live.dom);
    assert!(!live.dom.contains(FIRST), "{}", live.dom);
    assert_eq!(live.console, [""; 0]);
}

#[tokio::test]
async fn the_live_page_needs_no_script() {
    let busy = Busy::new(vec![run_pod("web")]).await;
    // Chromium cannot dump the DOM with scripts disabled, so only the page's own script is blocked.
    let relay = Relay::new(busy.proxy.admin_port(), true).await;
    let still = show(&relay.url(), busy.profile.path()).await;
    assert_eq!(relay.asked(), 1);
    assert!(still.dom.contains("RunPodSandbox") && still.dom.contains(FIRST));
    assert!(!still.dom.contains("<button"), "no buttons: {}", still.dom);
    assert_eq!(
        still.console.len(),
        1,
        "our script was blocked: {:?}",
        still.console
    );
}

/// Marks the first page that a relay passes on.
const FIRST: &str = "this is the first answer";

/// Relays requests to the admin endpoint and counts them; the first response is marked. With `no_scripts` its policy
/// blocks the scripts of the page.
struct Relay {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Relay {
    async fn new(admin: u16, no_scripts: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass_on(stream, admin, no_scripts, Arc::clone(&count)));
            }
        });
        Self { port, asked }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

async fn pass_on(mut stream: TcpStream, admin: u16, no_scripts: bool, count: Arc<AtomicUsize>) {
    let mut request = [0; 4096];
    // Browsers open connections that they may never use.
    if stream.read(&mut request).await.unwrap_or(0) == 0 {
        return;
    }
    let answer = page_of(admin).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("http");
    let mut body = body.to_owned();
    if count.fetch_add(1, Ordering::Relaxed) == 0 {
        body = body.replace("</main>", &format!("<p>{FIRST}</p></main>"));
    }
    let same = |line: &&str| !line.starts_with("content-length");
    let head: Vec<_> = head.split("\r\n").filter(same).collect();
    let mut head = head.join("\r\n");
    if no_scripts {
        head.push_str("\r\ncontent-security-policy: script-src 'none'");
    }
    // The browser may have disconnected.
    let answer = format!("{head}\r\n\r\n{body}");
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// The live page with its head.
async fn page_of(admin: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", admin))
        .await
        .expect("connected");
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    answer
}

#[tokio::test]
async fn a_pod_has_a_page() {
    let busy = Busy::new(vec![pull("web")]).await;
    let shown = busy.show("/debug/pods/shop/web").await;
    assert_eq!(shown.console, [""; 0]);
    for said in [
        "</span>web</h1>",
        "<strong>PullImage</strong> registry.example/&lt;b&gt;shop&lt;/b&gt;:1",
        "in flight</span> waiting",
        "… starting",
        "role=\"status\" class=\"live\">Live</span>",
    ] {
        assert!(shown.dom.contains(said), "{said}: {}", shown.dom);
    }
}

#[tokio::test]
async fn every_page_is_complete_in_a_browser() {
    let busy = Busy::new(vec![run_pod(MARKUP), pull("web")]).await;
    for path in [
        "/debug/pods",
        "/debug/pods?kind=start&state=failed&sort=slowest&namespace=%3Cb%3E",
        "/debug/pods?name=web&state=failing",
        "/debug",
        "/debug/calls",
        "/debug/images/pulls",
        "/debug/pods/shop/web",
        "/debug/pods/shop/no-such-pod",
        "/debug/rpcz",
        "/debug/tracez",
        "/debug/flight",
        "/debug/backends",
        "/debug/routes",
        "/debug/config",
    ] {
        let shown = busy.show(path).await;
        // The browser logs the 404 of a missing page.
        let console: Vec<_> = shown
            .console
            .iter()
            .filter(|line| !line.contains("status of 404"))
            .collect();
        assert!(console.is_empty(), "{path}: {console:?}");
        assert!(shown.dom.contains("<main") && shown.dom.contains("aria-label=\"Pages\""));
        assert!(!shown.dom.contains("<b>"), "{path}: {}", shown.dom);
    }
}

#[tokio::test]
async fn the_navigation_is_short_and_old_paths_still_work() {
    let (_fake, proxy) = proxied().await;
    let entries = |html: &str| {
        let nav = html
            .split("aria-label=\"Pages\"")
            .nth(1)
            .unwrap_or_default();
        let nav = nav.split("</nav>").next().unwrap_or_default();
        nav.matches("<li>").count()
    };
    for (path, heading, part) in [
        ("/", "", "No pod is known yet."),
        ("/debug", "Debug", "href=\"/debug/flight\""),
        ("/debug/flight", "Flight recorder", "On disk"),
        ("/debug/tracez", "Flight recorder", "On disk"),
        ("/debug/backends", "Backends", "Routing of calls"),
        ("/debug/routes", "Backends", "Routing of calls"),
    ] {
        let (status, html) = proxy.get(path).await;
        assert_eq!((status, entries(&html)), (200, 6), "{path}: {html}");
        assert!(
            html.contains(&format!("{heading}</h1>")) || path == "/",
            "{path}: {html}"
        );
        assert!(html.contains(part) || path == "/", "{path}: {html}");
    }
}

#[tokio::test]
async fn a_pod_is_found_and_links_to_its_trace() {
    let fake = Fake::new();
    fake.on(|_| script::error(5, "no such image"));
    let config = "[admin]\ntrace_url = \"https://tempo.example/trace/{trace_id}?a=1&b=2\"\n";
    let proxy = configured(&fake, config).await;
    let client = proxy.client().await;
    for name in ["web-1", "db-1"] {
        assert_eq!(client.call(pull(name)).await.code(), 5);
    }
    proxy.wait_balanced(2).await;
    let (_, html) = soon("its row", async {
        loop {
            let found = proxy.get("/debug/pods?name=web&state=failing").await;
            if found.1.contains("shop/web-1") {
                break found;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(
        html.contains("✗ failing") && !html.contains("shop/db-1"),
        "{html}"
    );
    assert!(html.contains("1 of 2"), "{html}");
    let (_, page) = proxy.get("/debug/pods/shop/web-1").await;
    assert!(
        page.contains("<a href=\"https://tempo.example/trace/") && page.contains("?a=1&amp;b=2\""),
        "{page}"
    );
}

#[tokio::test]
async fn the_content_security_policy_blocks_everything_else() {
    let (_fake, proxy) = proxied().await;
    for path in [
        "/",
        "/debug/pods",
        "/debug/calls?format=json",
        "/metrics",
        "/readyz",
    ] {
        let head = proxy.head(path).await;
        for wanted in [
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(head.contains(wanted), "{path}: {wanted} in {head}");
        }
        assert!(!head.contains("unsafe-inline"), "{head}");
    }
}

#[tokio::test]
async fn unknown_pods_are_reported() {
    let (_fake, proxy) = proxied().await;
    let (status, html) = proxy.get("/debug/pods/shop/web").await;
    assert_eq!(status, 404);
    assert!(html.contains("No record of pod shop/web"), "{html}");
    let (status, json) = proxy.get("/debug/pods/a%2Fb/%3Cb%3E?format=json").await;
    assert_eq!(status, 404);
    let json: Value = serde_json::from_str(&json).expect("json");
    assert_eq!(
        (&json["namespace"], &json["name"]),
        (&"a/b".into(), &"<b>".into())
    );
    assert_eq!(json["known"], 0);
}

#[tokio::test]
async fn without_debug_pages_no_pod_is_named() {
    let fake = Fake::new();
    fake.always(vec![Step::Read, Step::Hang]);
    let proxy = configured(&fake, "[admin]\ndebug = false\n").await;
    let client = proxy.client().await;
    let _call = client.start(run_pod("secret-pod")).await;
    fake.wait_count(1).await;
    let (status, html) = proxy.get("/").await;
    assert_eq!(status, 200);
    assert!(
        html.contains("✓ up") && !html.contains("secret-pod"),
        "{html}"
    );
    assert!(!html.contains("href=\"/debug"), "{html}");
    for path in [
        "/debug/pods",
        "/debug/pods/shop/secret-pod",
        "/debug/images/pulls",
    ] {
        assert_eq!(proxy.get(path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn completed_pulls_are_remembered() {
    let fake = Fake::new();
    fake.on(|_| script::error(5, "no such image"));
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    assert_eq!(client.call(pull("web")).await.code(), 5);
    proxy.wait_balanced(1).await;
    let json = proxy.json("/debug/images/pulls").await;
    let pull = &json["recent"][0];
    assert_eq!(pull["image"], "registry.example/<b>shop</b>:1");
    assert_eq!(
        (&pull["namespace"], &pull["pod"]),
        (&"shop".into(), &"web".into())
    );
    assert_eq!(
        (&pull["outcome"], &pull["code"]),
        (&"error".into(), &"NOT_FOUND".into())
    );
    assert_eq!(json["in_flight"].as_array().map(Vec::len), Some(0));
}
