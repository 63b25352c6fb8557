//! Exec and attach over every protocol.

use cri_streaming::{SessionKind, SessionOutcome, Transport};

use super::client::{Client, Said, WAYS, Wire};
use super::server::Fixture;
use crate::prelude::*;

fn exit_code(said: &Said) -> Option<String> {
    let status: Value = serde_json::from_str(&said.error).expect("JSON");
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["reason"], "ExitCode", "{}", said.error);
    assert_eq!(status["reason"], "NonZeroExitCode");
    cause["message"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_outputs_arrive_whole_over_every_protocol() {
    let fixture = Fixture::start().await;
    for (i, way) in WAYS.iter().enumerate() {
        let url = fixture.exec(&["/bin/say", "hello"], "oe");
        let client = Client::connect(&url, *way, "oe").await;
        let has_status = client.has_status();
        let said = client.finish().await;
        let error = if has_status {
            r#"{"status":"Success"}"#
        } else {
            ""
        };
        let expected = Said {
            out: b"out:hello".into(),
            err: b"err:hello".into(),
            error: error.into(),
        };
        assert_eq!(said, expected, "{way:?}");
        let end = fixture.ends(i + 1).await[i].clone();
        assert_eq!(
            (end.kind, end.outcome),
            (SessionKind::Exec, SessionOutcome::Done),
            "{way:?}"
        );
        assert_eq!((end.id.as_str(), end.exit_code), ("app", Some(0)));
        assert_eq!(end.bytes, (0, 18), "{way:?}");
        let (transport, protocol) = *way;
        assert_eq!(end.transport.name(), transport);
        assert_eq!(
            end.protocol,
            if protocol.is_empty() {
                "none"
            } else {
                protocol
            }
        );
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_arrive() {
    let fixture = Fixture::start().await;
    for code in ["1", "126", "127", "137", "255"] {
        for way in WAYS {
            let url = fixture.exec(&["exit", code], "o");
            let client = Client::connect(&url, *way, "o").await;
            let has_status = client.has_status();
            let said = client.finish().await;
            if has_status {
                assert_eq!(exit_code(&said).as_deref(), Some(code), "{way:?}");
            } else {
                assert!(said.error.contains(&format!("exit code {code}")), "{way:?}");
            }
        }
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_echoed_and_its_end_ends_the_command() {
    let fixture = Fixture::start().await;
    let mut ended = 0;
    for way in WAYS {
        let url = fixture.exec(&["cat"], "ioe");
        let mut client = Client::connect(&url, *way, "ioe").await;
        let data: Vec<u8> = (0..100_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        for part in data.chunks(30_000) {
            client.send(0, part).await;
        }
        assert_eq!(client.output(data.len()).await, data, "{way:?}");
        if client.can_end_input() {
            client.end_input().await;
            assert_eq!(client.finish().await.out, data, "{way:?}");
        } else {
            // Before version 5 the only way to close stdin is to disconnect.
            drop(client);
        }
        ended += 1;
        let end = fixture.ends(ended).await[ended - 1].clone();
        assert_eq!(end.bytes, (100_000, 100_000), "{way:?}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_sizes_and_no_stderr() {
    let fixture = Fixture::start().await;
    for way in WAYS {
        if ["channel.k8s.io", "v2.channel.k8s.io"].contains(&way.1) && way.0 == "spdy" {
            continue;
        }
        let url = fixture.exec(&["sizes"], "iot");
        let mut client = Client::connect(&url, *way, "iot").await;
        client.send(4, b"{\"Width\":80,\"Height\":24}\n").await;
        assert_eq!(client.output(6).await, b"80x24\n", "{way:?}");
        if !client.can_end_input() {
            continue;
        }
        // More than are consumed in time: the last one counts.
        for width in 1..=500 {
            let size = format!("{{\"Width\":{width},\"Height\":50}}\n");
            let (left, right) = size.split_at(9);
            client.send(4, left.as_bytes()).await;
            client.send(4, right.as_bytes()).await;
        }
        until_last(&client, b"500x50\n").await;
        client.end_input().await;
        let out = client.finish().await.out;
        assert!(out.ends_with(b"500x50\nlast 500x50\n"), "{way:?}");
    }
    fixture.stop().await;
}

async fn until_last(client: &Client, end: &[u8]) {
    let mut length = 0;
    loop {
        let out = client.output(length + 1).await;
        if out.ends_with(end) {
            return;
        }
        length = out.len();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_commands_are_reported() {
    let fixture = Fixture::start().await;
    for way in WAYS {
        for (command, why) in [("fail", "no such file"), ("panic", "internal error")] {
            let url = fixture.exec(&[command], "o");
            let client = Client::connect(&url, *way, "o").await;
            let has_status = client.has_status();
            let said = client.finish().await;
            assert!(said.error.contains(why), "{way:?}: {}", said.error);
            assert_eq!(said.error.contains("\"InternalError\""), has_status);
        }
    }
    let ends = fixture.ends(2 * WAYS.len()).await;
    assert!(ends.iter().all(|end| end.outcome == SessionOutcome::Failed));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_ends_with_success() {
    let fixture = Fixture::start().await;
    for way in [
        ("spdy", "v4.channel.k8s.io"),
        ("websocket", "v5.channel.k8s.io"),
    ] {
        let mut client = Client::connect(&fixture.attach("app"), way, "ioe").await;
        client.send(0, b"hello").await;
        assert_eq!(client.output(5).await, b"hello");
        client.end_input().await;
        assert_eq!(client.finish().await.error, r#"{"status":"Success"}"#);
        let client = Client::connect(&fixture.attach("gone"), way, "ioe").await;
        assert!(client.finish().await.error.contains("is not running"));
    }
    let ends = fixture.ends(4).await;
    assert_eq!(
        (ends[0].kind, ends[0].exit_code),
        (SessionKind::Attach, None)
    );
    assert_eq!(ends[3].transport, Transport::WebSocket);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_input_blocks_nothing() {
    let fixture = Fixture::start().await;
    for way in [
        ("spdy", "v4.channel.k8s.io"),
        ("websocket", "v5.channel.k8s.io"),
    ] {
        let url = fixture.exec(&["flood", "300000"], "io");
        let mut client = Client::connect(&url, way, "io").await;
        for _ in 0..100 {
            client.send(0, &[b'i'; 30_000]).await;
        }
        assert_eq!(client.finish().await.out.len(), 300_000, "{way:?}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_client_is_noticed_by_server_and_command() {
    let fixture = Fixture::start().await;
    for way in WAYS {
        let url = fixture.exec(&["wait"], "io");
        let client = Client::connect(&url, *way, "io").await;
        assert_eq!(client.output(5).await, b"begun");
        drop(client);
    }
    let gone = || fixture.seen.gone.load(Ordering::SeqCst);
    until_true("all commands to see the client gone", async || {
        gone() == WAYS.len()
    })
    .await;
    let ends = fixture.ends(WAYS.len()).await;
    assert!(
        ends.iter()
            .all(|end| end.outcome == SessionOutcome::ClientGone)
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_answered() {
    let fixture = Fixture::start().await;
    let url = fixture.exec(&["wait"], "o");
    let mut client = Client::connect(&url, ("spdy", "v4.channel.k8s.io"), "o").await;
    if let Wire::Spdy(spdy, _) = &mut client.wire {
        spdy.ping(1).await;
        spdy.pinged(1).await;
    }
    let url = fixture.exec(&["wait"], "o");
    let mut client = Client::connect(&url, ("websocket", "v5.channel.k8s.io"), "o").await;
    if let Wire::WebSocket(socket, _) = &mut client.wire {
        socket
            .raw(&super::websocket::frame(0x89, b"are you there"))
            .await;
        let look = |state: &super::websocket::State| state.pongs.first().cloned();
        assert_eq!(socket.wait("a pong", look).await, b"are you there");
        // The first message is empty: it only signals the start.
        let first = |state: &super::websocket::State| state.messages.first().copied();
        assert_eq!(socket.wait("a message", first).await, (2, 1, 0));
        // A close frame is answered with one.
        socket.close().await;
        assert_eq!(socket.closed().await, 1000);
    }
    fixture.stop().await;
}
