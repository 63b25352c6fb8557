//! Sessions of an upstream, proxied by criscope: every byte is compared on both sides.

use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::client::QUIET;
use super::http::{closed_port, connect, parts};
use super::upstream::{CONTAINER, SECRET, SWITCHING, Upstream, answer, before, exec, head, url_of};
use crate::prelude::*;

/// Sends this and closes its half; returns the response.
async fn talk(url: &str, bytes: &str) -> String {
    let mut tcp = connect(url).await;
    tcp.write_all(bytes.as_bytes()).await.expect("sent");
    tcp.shutdown().await.expect("ended");
    let mut all = Vec::new();
    // A server that refuses a large head may reset the connection.
    let _ = soon("all of the answer", tcp.read_to_end(&mut all)).await;
    String::from_utf8(all).expect("text")
}

async fn wait_counter(proxy: &Proxy, name: &str, label: (&str, &str), n: f64) {
    proxy
        .wait_scrape(&format!("{name} {label:?}"), |s| {
            s.metric(name).with(label.0, label.1).sum() == n
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_seen_and_no_byte_of_it_is_touched() {
    let upstream = Upstream::that_says(SWITCHING).await;
    let (_fake, proxy) = before("", &upstream.url()).await;
    let client = proxy.client().await;
    let got = client.call(Call::runtime("Exec", exec())).await;
    let ours = v1::ExecResponse::decode(&got.data[5..])
        .expect("a message")
        .url;
    assert_ne!(ours, upstream.url());
    assert!(ours.starts_with("http://127.0.0.1:"), "{ours}");
    assert_eq!(got.data[5..], answer(&ours), "everything else is unchanged");

    let (_, path) = parts(&ours);
    let sent = "\u{0}bytes, and more".repeat(10_000);
    let came = talk(&ours, &(head(path) + &sent)).await;
    assert!(came == format!("{SWITCHING}{sent}"), "the response differs");
    assert_eq!(*lock(&upstream.heads), [head("/exec/T0ken?x=%20y")]);

    let line = proxy.wait_event("stream.session").await;
    let (total, len) = (sent.len(), Value::from(sent.len()));
    for (field, value) in [
        ("stream.kind", Value::from("exec")),
        ("container.id", CONTAINER.into()),
        ("stream.transport", "spdy".into()),
        ("stream.protocol", "v4.channel.k8s.io".into()),
        ("process.executable.name", "sh".into()),
        ("arguments", 1.into()),
        ("k8s.pod.name", "web".into()),
        ("stream.bytes.in", len.clone()),
        ("stream.bytes.out", len),
        ("first_to_close", "client".into()),
    ] {
        assert_eq!(line[field], value, "{field}: {line}");
    }
    wait_counter(
        &proxy,
        "criscope_stream_urls_total",
        ("result", "proxied"),
        1.0,
    )
    .await;
    let ended = "criscope_stream_sessions_ended_total";
    wait_counter(&proxy, ended, ("kind", "exec"), 1.0).await;
    let scrape = proxy.scrape().await;
    let bytes = scrape.metric("criscope_stream_bytes_total").sum();
    assert_eq!(bytes, 2.0 * total as f64);
    let answers = scrape.metric("criscope_stream_upstream_answers_total");
    assert_eq!(answers.with("status", "101").sum(), 1.0);
    assert_eq!(scrape.metric("criscope_stream_sessions").sum(), 0.0);

    // The pod existed before criscope started: only its sessions are known.
    let story = until("the story", || async {
        let (status, text) = proxy.get("/debug/pods/shop/web?format=json").await;
        (status == 200).then_some(text)
    })
    .await;
    let story: Value = serde_json::from_str(&story).expect("json");
    assert_eq!(story["sessions"][0]["program"], "sh", "{story}");
    assert_eq!(story["sessions"][0]["container"], "app");
    let (status, page) = proxy.get("/debug/pods/shop/web").await;
    assert!(status == 200 && page.contains("exec sh"), "{page}");
    assert!(!page.contains(SECRET) && !story.to_string().contains(SECRET));

    // A token is for one use only.
    assert!(talk(&ours, &head(path)).await.starts_with("HTTP/1.1 404"));
    let log = proxy.stop().await.join("\n");
    let token = path.rsplit('/').next().expect("a token");
    for secret in [SECRET, "T0ken", token] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_passed_on_as_it_is() {
    let (fake, proxy) = before("", "").await;
    let good = answer("http://127.0.0.1:1/exec/T0ken");
    let long = answer(&format!("http://127.0.0.1:1/{}", "x".repeat(20_000)));
    let two = [&good[..], &good].concat();
    let url = |url: &str| message(&answer(url));
    let cases = [
        (vec![url("https://192.0.2.1:1/exec/T")], "not_loopback"),
        (vec![url("https://localhost:1/exec/T")], "unparsable"),
        (vec![url("http://192.0.2.1:1/exec/T")], "not_loopback"),
        (vec![url("http://localhost:1/exec/T")], "unparsable"),
        (vec![url("/exec/T")], "unparsable"),
        (vec![url("http://127.0.0.1:1/exec/T\r\nX: y")], "unparsable"),
        (vec![message(&good[..9])], "unread"),
        (vec![message(&two)], "unread"),
        (vec![message(&long)], "unread"),
        (vec![message_with(1, &good)], "unread"),
        (vec![message(&good), message(&good)], "unread"),
        (vec![message(b"")], "unread"),
    ];
    let client = proxy.client().await;
    let mut counts = std::collections::BTreeMap::<_, f64>::new();
    for (messages, why) in cases {
        fake.always(script::ok(&messages));
        let got = client.call(Call::runtime("Exec", exec())).await;
        assert!(got.data == messages.concat(), "{why}: the answer differs");
        assert_eq!(got.code(), 0);
        *counts.entry(why).or_default() += 1.0;
    }
    // Neither an undecodable request nor an error creates a session.
    fake.always(script::ok(&[message(&good)]));
    let got = client.call(Call::runtime("Exec", message(&[0xff]))).await;
    assert_eq!(got.data, message(&good));
    *counts.entry("unread").or_default() += 1.0;
    fake.always(script::error(5, "no such container"));
    let got = client.call(Call::runtime("Exec", exec())).await;
    assert_eq!((got.code(), got.head_only), (5, true));
    for (why, n) in counts {
        wait_counter(&proxy, "criscope_stream_urls_total", ("result", why), n).await;
    }
    wait_counter(
        &proxy,
        "criscope_stream_urls_total",
        ("result", "proxied"),
        0.0,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_disabled_nothing_is_changed() {
    let (_fake, proxy) = before(
        "[streaming]\nobserve = false\n",
        "http://127.0.0.1:1/exec/T",
    )
    .await;
    assert_eq!(url_of(&proxy).await, "http://127.0.0.1:1/exec/T");
    let scrape = proxy.scrape().await;
    assert!(scrape.metric("criscope_stream_urls_total").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_passed_on_and_is_not_a_session() {
    // The connection stays open, like that of a server with keep-alive.
    const NO: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 7\r\nX-odd:  kept\r\n\r\nbut why";
    let upstream = Upstream::that_says(NO).await;
    let (fake, proxy) = before("", &upstream.url()).await;
    let url = url_of(&proxy).await;
    let mut tcp = connect(&url).await;
    let head = head(parts(&url).1);
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut all = String::new();
    soon("the refusal", tcp.read_to_string(&mut all))
        .await
        .expect("whole");
    assert_eq!(all, NO);
    let refused = proxy.wait_event("stream.refused").await;
    assert_eq!(refused["http.response.status_code"], 403, "{refused}");

    // The upstream is gone.
    drop(upstream);
    let (_held, address) = closed_port();
    let gone = format!("http://{address}/exec/T0ken");
    fake.always(script::ok(&[message(&answer(&gone))]));
    let url = url_of(&proxy).await;
    let mut tcp = connect(&url).await;
    let head = self::head(parts(&url).1);
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut all = String::new();
    soon("a refusal", tcp.read_to_string(&mut all))
        .await
        .expect("whole");
    assert!(all.starts_with("HTTP/1.1 502"), "{all}");
    let scrape = proxy.scrape().await;
    let answers = |status| {
        let answers = scrape.metric("criscope_stream_upstream_answers_total");
        answers.with("status", status).sum()
    };
    assert_eq!((answers("4xx"), answers("none")), (1.0, 1.0));
    let ended = scrape.metric("criscope_stream_sessions_ended_total").sum();
    assert_eq!(ended, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_reach_no_upstream() {
    let upstream = Upstream::that_says(SWITCHING).await;
    let (_fake, proxy) = before("", &upstream.url()).await;
    let url = url_of(&proxy).await;
    let path = parts(&url).1;
    let large = format!("X: {}\r\n", "y".repeat(70_000));
    let large = head(path).replacen("Host", &format!("{large}Host"), 1);
    for (request, status) in [
        (head("/exec/unknown"), "404"),
        (head("/"), "404"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
        (head(path).replacen("HTTP/1.1", "HTTP/1.0", 1), "400"),
    ] {
        let came = talk(&url, &request).await;
        assert!(came.starts_with(&format!("HTTP/1.1 {status}")), "{came}");
    }
    // The response may be lost if the request was not read completely.
    let came = talk(&url, &large).await;
    assert!(
        came.is_empty() || came.starts_with("HTTP/1.1 431"),
        "{came}"
    );
    assert!(lock(&upstream.heads).is_empty());
    // A token used for another kind of session is consumed.
    let other = path.replacen("/exec/", "/attach/", 1);
    assert!(talk(&url, &head(&other)).await.starts_with("HTTP/1.1 404"));
    assert!(talk(&url, &head(path)).await.starts_with("HTTP/1.1 404"));
    assert!(lock(&upstream.heads).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_by_the_client_is_detected_while_the_upstream_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("address");
    let (_fake, proxy) = before("", &format!("http://{address}/exec/T0ken")).await;
    let url = url_of(&proxy).await;
    let mut tcp = connect(&url).await;
    tcp.write_all(head(parts(&url).1).as_bytes())
        .await
        .expect("sent");
    let (mut upstream, _) = listener.accept().await.expect("accepted");
    upstream
        .write_all(SWITCHING.as_bytes())
        .await
        .expect("answered");
    let mut came = vec![0; SWITCHING.len()];
    soon("the answer", tcp.read_exact(&mut came))
        .await
        .expect("whole");
    let piece = [b'x'; 30_000];
    while timeout(QUIET, tcp.write_all(&piece)).await.is_ok() {}
    tcp.set_zero_linger().expect("a socket");
    drop(tcp);
    let line = proxy.wait_event("stream.session").await;
    assert_eq!(line["stream.outcome"], "client_gone", "{line}");
    // The other half is closed too.
    let mut rest = Vec::new();
    let _ = soon("the end", upstream.read_to_end(&mut rest)).await;
    assert_eq!(
        proxy
            .scrape()
            .await
            .metric("criscope_stream_sessions")
            .sum(),
        0.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_with_the_program() {
    let upstream = Upstream::that_says(SWITCHING).await;
    let (_fake, proxy) = before("", &upstream.url()).await;
    let url = url_of(&proxy).await;
    let mut tcp = connect(&url).await;
    let head = head(parts(&url).1);
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut came = vec![0; SWITCHING.len()];
    soon("the answer", tcp.read_exact(&mut came))
        .await
        .expect("whole");
    assert_eq!(came, SWITCHING.as_bytes());
    proxy.signal(Signal::SIGTERM);
    // The session ends, cleanly or not.
    let _ = soon("the end", tcp.read_u8())
        .await
        .expect_err("nothing more");
    let (_, log) = proxy.ended().await;
    let ends = log
        .iter()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let ends: Vec<_> = ends.filter(|l| l["event"] == "stream.session").collect();
    assert_eq!(ends.len(), 1, "{log:?}");
    assert_eq!(ends[0]["stream.outcome"], "shutdown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_written_down_whatever_the_log_level_is_changed_to() {
    let upstream = Upstream::that_says(SWITCHING).await;
    let (_fake, proxy) = before("", &upstream.url()).await;
    proxy.set_log_level("off").await;
    let ours = url_of(&proxy).await;
    // More than arrives with the head: a client that has closed by then counts as gone.
    let sent = "x".repeat(200_000);
    talk(&ours, &(head(parts(&ours).1) + &sent)).await;
    let line = proxy.wait_event("stream.session").await;
    assert_eq!(line["k8s.pod.name"], "web", "{line}");
}
