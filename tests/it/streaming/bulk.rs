//! A hundred megabytes, byte for byte.

use tokio::io::{AsyncRead, AsyncWrite};

use super::client::open;
use super::client::{Client, Wire};
use super::forward::{direct, echo, tunnelled};
use super::server::Fixture;
use super::spdy::Spdy;

const TOTAL: usize = 100_000_000;
const PART: usize = 32_000;

/// Data that does not repeat within the total.
fn part(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut bytes = Vec::with_capacity(PART);
    while bytes.len() < PART {
        // One step of xorshift64*.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(PART);
    bytes
}

fn check(got: &[u8]) {
    assert_eq!(got.len(), TOTAL);
    for (i, chunk) in got.chunks(PART).enumerate() {
        assert!(chunk == part(i), "part {i} differs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_command_over_spdy() {
    through_a_command(("spdy", "v4.channel.k8s.io")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_command_over_websocket() {
    through_a_command(("websocket", "v5.channel.k8s.io")).await;
}

async fn through_a_command(way: (&str, &str)) {
    let fixture = Fixture::start().await;
    let url = fixture.exec(&["cat"], "io");
    let mut client = Client::connect(&url, way, "io").await;
    for i in 0..TOTAL / PART {
        client.send(0, &part(i)).await;
    }
    client.end_input().await;
    check(&client.finish().await.out);
    let end = fixture.end().await;
    assert_eq!(end.bytes, (TOTAL as u64, TOTAL as u64));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_port_over_spdy() {
    let fixture = Fixture::start().await;
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    through_a_port(&mut spdy).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_port_over_websocket() {
    let fixture = Fixture::start().await;
    let mut spdy = tunnelled(&fixture.forward("pod", &[])).await;
    through_a_port(&mut spdy).await;
    fixture.stop().await;
}

async fn through_a_port<T>(spdy: &mut Spdy<T>)
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let port = echo("127.0.0.1:0").await;
    let (_, data) = open(spdy, 0, port).await;
    for i in 0..TOTAL / PART {
        spdy.send(data, &part(i), false).await;
    }
    spdy.send(data, b"", true).await;
    let mut got = spdy.end(data).await.data;
    assert!(got.ends_with(b"bye"));
    got.truncate(got.len() - 3);
    check(&got);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_late_still_gets_everything() {
    let fixture = Fixture::start().await;
    for way in [
        ("spdy", "v4.channel.k8s.io"),
        ("websocket", "v5.channel.k8s.io"),
    ] {
        let url = fixture.exec(&["flood", "9000000"], "o");
        let client = super::client::lazy(&url, way).await;
        super::limits::stalled(&fixture).await;
        let mut client = client;
        match &mut client.wire {
            Wire::Spdy(spdy, _) => spdy.begin_to_read(),
            Wire::WebSocket(socket, _) => socket.begin_to_read(),
        }
        assert_eq!(client.finish().await.out.len(), 9_000_000, "{way:?}");
    }
    fixture.stop().await;
}
