//! The listening socket, from bind to shutdown.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream as StdUnixStream;

use crate::prelude::*;

/// A runtime that responds when the gate opens.
fn gated(fake: &Fake) -> CancellationToken {
    let gate = CancellationToken::new();
    let mut steps = script::empty();
    steps.insert(1, Step::Wait(gate.clone()));
    fake.always(steps);
    gate
}

async fn refused(start: Start) -> String {
    let (status, log) = start.spawn().ended().await;
    assert_eq!(status.code(), Some(1), "{log:?}");
    log.join("\n")
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("a file").ino()
}

#[tokio::test]
async fn a_second_instance_is_refused_without_side_effects() {
    let fake = Fake::new();
    let gate = gated(&fake);
    let first = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = first.client().await;
    let call = client.start(Call::plain("StopContainer")).await;
    fake.wait_count(1).await;
    let before = inode(&first.socket());

    let second = Start::before(crate::CRISCOPE, &fake).listen(&first.socket());
    let text = refused(second).await;
    assert!(
        text.contains("another process is listening on this socket"),
        "{text}"
    );
    assert!(
        text.contains(&first.socket().display().to_string()),
        "{text}"
    );

    assert_eq!(inode(&first.socket()), before);
    gate.cancel();
    assert_eq!(soon("answer", call.finish()).await.code(), 0);
    assert_eq!(
        first
            .client()
            .await
            .call(Call::plain("Status"))
            .await
            .code(),
        0
    );
    first.wait_balanced(2).await;
    first.stop().await;
}

#[tokio::test]
async fn the_socket_of_a_killed_instance_is_replaced() {
    let fake = Fake::new();
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("deep").join("cri.sock");
    let first = Start::before(crate::CRISCOPE, &fake)
        .listen(&path)
        .ready()
        .await;
    let client = first.client().await;
    assert_eq!(client.call(Call::plain("Status")).await.code(), 0);
    first.signal(Signal::SIGKILL);
    let _ = first.ended().await;
    assert!(path.exists(), "as after any kill -9");

    let second = Start::before(crate::CRISCOPE, &fake)
        .listen(&path)
        .ready()
        .await;
    let client = second.client().await;
    assert_eq!(client.call(Call::plain("Status")).await.code(), 0);
    second.stop().await;
    let left = fs::read_dir(path.parent().expect("parent")).expect("dir");
    let left: Vec<_> = left.map(|it| it.expect("entry").file_name()).collect();
    assert_eq!(left, ["cri.state"], "only the state for the next process");
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_left_alone() {
    let fake = Fake::new();
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("cri.sock");
    fs::write(&path, "precious").expect("write");
    let text = refused(Start::before(crate::CRISCOPE, &fake).listen(&path)).await;
    assert!(text.contains("not a socket"), "{text}");
    assert_eq!(fs::read(&path).expect("read"), b"precious");
}

#[tokio::test]
async fn the_socket_has_its_mode_and_owner() {
    let (fake, proxy) = proxied().await;
    let mode = |proxy: &Proxy| fs::metadata(proxy.socket()).expect("socket").mode() & 0o7777;
    assert_eq!(mode(&proxy), 0o660);

    let (uid, gid) = match nix::unistd::geteuid() {
        root if root.is_root() => (1234, 2345),
        user => (user.as_raw(), nix::unistd::getegid().as_raw()),
    };
    let config = format!("[server]\nmode = \"0606\"\nowner = \"{uid}:{gid}\"\n");
    let proxy = configured(&fake, &config).await;
    assert_eq!(mode(&proxy), 0o606);
    let metadata = fs::metadata(proxy.socket()).expect("socket");
    assert_eq!((metadata.uid(), metadata.gid()), (uid, gid));
}

#[tokio::test]
async fn sigterm_drains_calls() {
    let fake = Fake::new();
    let gate = gated(&fake);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
        let seen = fake.count();
        let client = proxy.client().await;
        let idle = proxy.client().await;
        // Connected, but silent.
        let silent = StdUnixStream::connect(proxy.socket()).expect("connect");
        let call = client.start(Call::plain("StopContainer")).await;
        fake.wait_count(seen + 1).await;
        proxy.signal(signal);
        proxy.wait_event("stopping").await;
        let socket = proxy.socket();
        until("new callers are refused at once", || async {
            StdUnixStream::connect(&socket).err().map(drop)
        })
        .await;
        gate.cancel();
        assert_eq!(soon("answer", call.finish()).await.code(), 0);
        drop(client);
        let (status, log) = proxy.ended().await;
        assert_eq!(status.code(), Some(0));
        assert!(!socket.exists());
        let log = log.join("\n");
        assert!(!log.contains("drain.cut"), "{log}");
        assert!(log.contains("\"rpc.end\""), "{log}");
        drop((idle, silent));
    }
}

#[tokio::test]
async fn a_drain_has_a_timeout() {
    let fake = Fake::new();
    fake.always(vec![Step::Read, Step::Hang]);
    let config = "[server]\ndrain_timeout = \"200ms\"\n";
    let proxy = configured(&fake, config).await;
    let client = proxy.client().await;
    let call = client.start(Call::plain("StopContainer")).await;
    fake.wait_count(1).await;
    proxy.signal(Signal::SIGTERM);
    let got = soon("end of the call", call.finish()).await;
    assert!(got.broken.is_some(), "{got:?}");
    fake.wait("the end at the runtime", |seen| seen.done).await;
    let (status, log) = proxy.ended().await;
    assert_eq!(status.code(), Some(0));
    let log = log.join("\n");
    assert!(
        log.contains("drain.cut") && log.contains("\"connections\":1"),
        "{log}"
    );
    assert!(
        log.contains("rpc.cancelled"),
        "the call has an outcome: {log}"
    );
}

#[tokio::test]
async fn a_kill_leaves_no_connection_at_the_runtime() {
    let fake = Fake::new();
    fake.always(vec![Step::Read, Step::Hang]);
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = Client::connect(&proxy.socket()).await;
    let calls = [
        client.start(Call::plain("PullImage")).await,
        client.start(Call::plain("GetContainerEvents")).await,
    ];
    fake.wait_count(2).await;
    proxy.signal(Signal::SIGKILL);
    let _ = proxy.ended().await;
    until_true("the connections to be closed", async || {
        fake.connections() == 0
    })
    .await;
    assert!(fake.seen().iter().all(|seen| seen.done));
    for call in calls {
        assert!(soon("end", call.finish()).await.broken.is_some());
    }
}
