//! Integration with systemd: socket activation, notifications, the watchdog, and reload.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::prelude::*;

/// Passes a descriptor as systemd does: as number 3, with the pid of the program.
pub(crate) fn activated(start: Start, fd: impl Into<OwnedFd>) -> Start {
    let mut shell = Command::new("sh");
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\" 3<&0 0</dev/null";
    shell.args(["-c", script, "sh"]);
    start.wrapped(shell).stdin(fd.into())
}

#[tokio::test]
async fn a_socket_of_the_service_manager_is_used_and_kept() {
    let fake = Fake::new();
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("activated.sock");
    let listener = UnixListener::bind(&path).expect("bind");
    for _ in 0..2 {
        // Before criscope starts: the kernel queues the connection.
        let early = Client::connect(&path).await;
        let passed = listener.try_clone().expect("clone");
        let proxy = activated(Start::before(crate::CRISCOPE, &fake), passed)
            .ready()
            .await;
        let started = proxy.wait_event("started").await;
        assert_eq!(started["socket_activation"], true);
        assert_eq!(early.call(Call::plain("Status")).await.code(), 0);
        let late = Client::connect(&path).await;
        assert_eq!(late.call(Call::plain("Status")).await.code(), 0);
        assert!(!proxy.socket().exists(), "it binds nothing of its own");
        proxy.wait_balanced(2).await;
        proxy.stop().await;
        assert!(path.exists());
    }
}

#[tokio::test]
async fn a_descriptor_that_is_not_a_socket_is_refused() {
    let fake = Fake::new();
    let nothing = File::open("/dev/null").expect("open");
    let start = activated(Start::before(crate::CRISCOPE, &fake), nothing);
    let (status, log) = start.spawn().ended().await;
    assert_eq!(status.code(), Some(1), "{log:?}");
    let text = log.join("\n");
    assert!(
        text.contains("passed by the service manager cannot be used"),
        "{text}"
    );
}

/// The service manager as it is notified.
pub(crate) struct Manager(pub(crate) UnixDatagram);

impl Manager {
    async fn next(&self) -> String {
        let mut buffer = [0; 1024];
        let n = soon("a notification", self.0.recv(&mut buffer))
            .await
            .expect("recv");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    }

    /// The next notification other than the watchdog's.
    pub(crate) async fn next_state(&self) -> String {
        loop {
            let state = self.next().await;
            if state.trim() != "WATCHDOG=1" {
                return state;
            }
        }
    }
}

#[tokio::test]
async fn the_service_manager_is_notified_of_every_state() {
    let fake = Fake::new();
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("notify.sock");
    let manager = Manager(UnixDatagram::bind(&path).expect("bind"));
    let proxy = Start::before(crate::CRISCOPE, &fake)
        .config("")
        .env("NOTIFY_SOCKET", &path.display().to_string())
        .env("WATCHDOG_USEC", "100000")
        .spawn();
    assert!(manager.next_state().await.contains("READY=1"));
    // Ready means that calls are served.
    assert_eq!(
        proxy
            .client()
            .await
            .call(Call::plain("Status"))
            .await
            .code(),
        0
    );
    for _ in 0..3 {
        while manager.next().await.trim() != "WATCHDOG=1" {}
    }
    proxy.reload("");
    let state = manager.next_state().await;
    assert!(
        state.contains("RELOADING=1") && state.contains("MONOTONIC_USEC="),
        "{state}"
    );
    assert!(manager.next_state().await.contains("READY=1"));
    proxy.signal(Signal::SIGTERM);
    assert!(manager.next_state().await.contains("STOPPING=1"));
    let (status, _) = proxy.ended().await;
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn one_late_keep_alive_does_not_end_the_daemon() {
    let fake = Fake::new();
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("notify.sock");
    let manager = Manager(UnixDatagram::bind(&path).expect("bind"));
    let limit = Duration::from_secs(3);
    let proxy = Start::before(crate::CRISCOPE, &fake)
        .config("")
        .env("NOTIFY_SOCKET", &path.display().to_string())
        .env("WATCHDOG_USEC", &limit.as_micros().to_string())
        .spawn();
    while manager.next().await.trim() != "WATCHDOG=1" {}
    let mut sent = 0;
    let count = async {
        loop {
            sent += u32::from(manager.next().await.trim() == "WATCHDOG=1");
        }
    };
    assert!(timeout(limit, count).await.is_err());
    assert!(sent > 3, "{sent} keep-alives within the limit");
    proxy.stop().await;
}

#[tokio::test]
async fn reload_applies_live_settings_and_names_the_others() {
    let fake = Fake::new();
    let config = "[telemetry.log]\nlevel = \"warn,criscope=info\"\n";
    let proxy = configured(&fake, config).await;
    let level = || async { proxy.get("/debug/log-level").await.1 };
    assert_eq!(level().await, "warn,criscope=info");

    proxy.reload("[telemetry.log]\nlevel = \"debug\"\n");
    let line = proxy.wait_event("config.reloaded").await;
    assert_eq!(line["changed"], "telemetry.log.level");
    assert_eq!(level().await, "debug");

    // Polls are logged at debug.
    let client = proxy.client().await;
    assert_eq!(client.call(Call::plain("ContainerStatus")).await.code(), 0);
    proxy
        .wait_line("a poll", |l| is_call(l, "ContainerStatus"))
        .await;

    proxy.reload("[telemetry.log]\nlevle = \"off\"\n[server]\nmode = \"rwx\"\n");
    let rejected = |word: &'static str| {
        move |l: &Value| {
            l["event"] == "config.rejected" && l["error.message"].to_string().contains(word)
        }
    };
    proxy
        .wait_line("unknown key", rejected("did you mean `level`"))
        .await;
    proxy.wait_line("bad value", rejected("server.mode")).await;
    assert_eq!(level().await, "debug");

    let text = "[telemetry.log]\nlevel = \"info\"\nformat = \"text\"\n[server]\nmode = \"0600\"\n";
    proxy.reload(text);
    let line = proxy.wait_event("config.restart_needed").await;
    let keys = line["keys"].as_str().expect("text");
    assert!(
        keys.contains("server.mode") && keys.contains("telemetry.log.format"),
        "{keys}"
    );
    assert_eq!(level().await, "info");
    assert_eq!(
        client.call(Call::plain("Status")).await.code(),
        0,
        "no call is affected"
    );
    proxy.stop().await;
}

/// A listener is shared with the other services of its socket, and systemd sets its flags anew when one of them starts
/// (systemd.service(5), `NonBlocking=`).
#[tokio::test]
async fn a_listener_that_another_service_makes_blocking_stops_no_call() {
    let fake = Fake::new();
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("activated.sock");
    let listener = UnixListener::bind(&path).expect("bind");
    let passed = listener.try_clone().expect("clone");
    let proxy = activated(Start::before(crate::CRISCOPE, &fake), passed)
        .ready()
        .await;
    let kubelet = Client::connect(&path).await;
    assert_eq!(kubelet.call(Call::plain("Status")).await.code(), 0);
    for _ in 0..3 {
        listener.set_nonblocking(false).expect("set");
        let other = soon("a connection", Client::connect(&path)).await;
        let answer = soon("an answer", other.call(Call::plain("Status"))).await;
        assert_eq!(answer.code(), 0);
        let answer = soon("an answer", kubelet.call(Call::plain("Status"))).await;
        assert_eq!(answer.code(), 0);
    }
    proxy.stop().await;
}
