//! Open sessions are visible in the story of their pod, on the pages, and in the commands.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::http::{connect, parts};
use super::upstream::{CONTAINER, SECRET, SWITCHING, Upstream, before, head, url_in};
use crate::commands::printed;
use crate::prelude::*;

const STORY: &str = "/debug/pods/shop/web?format=json";

/// An unknown container.
const STRANGER: &str = "dec0de0011223344";

/// A session in this container that has echoed five bytes.
async fn open(proxy: &Proxy, container: &str) -> TcpStream {
    let url = url_in(proxy, container).await;
    let mut tcp = connect(&url).await;
    let head = head(parts(&url).1);
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = vec![0; SWITCHING.len()];
    let came = soon("the answer", tcp.read_exact(&mut answer)).await;
    came.expect("whole");
    tcp.write_all(b"12345").await.expect("sent");
    let came = soon("the echo", tcp.read_exact(&mut answer[..5])).await;
    came.expect("whole");
    tcp
}

async fn close(mut tcp: TcpStream) {
    tcp.shutdown().await.expect("ended");
    let mut rest = Vec::new();
    let came = soon("the end", tcp.read_to_end(&mut rest)).await;
    came.expect("whole");
}

/// Waits until the sessions at this path satisfy `good`.
async fn sessions(proxy: &Proxy, path: &str, good: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    until(path, || async {
        let (status, text) = proxy.get(path).await;
        let mut told: Value = serde_json::from_str(&text).expect("json");
        let told = match told["sessions"].take() {
            Value::Array(told) => told,
            _ => Vec::new(),
        };
        (status == 200 && good(&told)).then_some(told)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_session_is_shown_until_it_ends() {
    let upstream = Upstream::that_says(SWITCHING).await;
    let (_fake, proxy) = before("", &upstream.url()).await;
    let known = open(&proxy, CONTAINER).await;
    let stranger = open(&proxy, STRANGER).await;

    // The pod existed before criscope started: only its sessions are known.
    let carried = |of: &Value| of["bytes_in"] == 5 && of["bytes_out"] == 5;
    let story = sessions(&proxy, STORY, |all| all.len() == 1 && carried(&all[0])).await;
    for (field, value) in [
        ("outcome", "open"),
        ("kind", "exec"),
        ("program", "sh"),
        ("container", "app"),
        ("transport", "spdy"),
        ("protocol", "v4.channel.k8s.io"),
    ] {
        assert_eq!(story[0][field], value, "{field}: {story:?}");
    }
    let live = sessions(&proxy, "/?format=json", |all| all.len() == 2).await;
    assert_eq!(
        (&live[0]["pod"], &live[0]["id"]),
        (&"web".into(), &CONTAINER.into())
    );
    assert_eq!(
        (&live[1]["pod"], &live[1]["id"]),
        (&Value::Null, &STRANGER.into())
    );
    assert_eq!(
        (&live[0]["program"], &live[0]["outcome"]),
        (&"sh".into(), &"open".into())
    );

    let (_, page) = proxy.get("/debug/pods/shop/web").await;
    let (_, front) = proxy.get("/").await;
    let said = printed(&proxy, &["explain", "shop/web"]).await;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("exec sh") && page.contains(">open, "),
        "{page}"
    );
    assert!(front.contains("/debug/pods/shop/web\"") && front.contains("exec sh"));
    assert!(front.contains("<code>dec0de0011223</code>"), "{front}");
    assert!(said.contains("exec sh in container app"), "{said}");
    assert!(
        said.contains(", open, ") && said.contains(" so far, 5 bytes in, 5 out"),
        "{said}"
    );
    let screen = printed(&proxy, &["calls"]).await;
    assert!(screen.contains(", 2 sessions,"), "{screen}");
    let told = |wanted: &[&str]| {
        let has = |line: &str| wanted.iter().all(|word| line.contains(word));
        screen.lines().any(has)
    };
    assert!(
        told(&["exec sh", "5 B, 5 B", "shop/web app"]) && told(&["exec sh", "dec0de0011223"]),
        "{screen}"
    );
    for text in [format!("{story:?}{live:?}"), page, front, said, screen] {
        assert!(!text.contains(SECRET), "{text}");
    }

    close(known).await;
    let story = sessions(&proxy, STORY, |all| {
        all.iter().any(|it| it["outcome"] != "open")
    })
    .await;
    assert_eq!(story.len(), 1, "listed once: {story:?}");
    assert_eq!(story[0]["program"], "sh");
    let (_, page) = proxy.get("/debug/pods/shop/web").await;
    assert!(
        page.contains("exec sh") && !page.contains(">open, "),
        "{page}"
    );
    let live = sessions(&proxy, "/?format=json", |all| all.len() == 1).await;
    assert_eq!(live[0]["id"], STRANGER);

    close(stranger).await;
    sessions(&proxy, "/?format=json", <[Value]>::is_empty).await;
    let screen = printed(&proxy, &["calls"]).await;
    assert!(!screen.contains("SESSION"), "{screen}");
    sessions(&proxy, STORY, |all| all.len() == 1).await;
}
