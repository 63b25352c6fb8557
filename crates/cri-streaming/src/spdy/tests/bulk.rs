//! 100 MB in both directions concurrently, compared byte by byte.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::super::{SpdyConnection, SpdyLimits};
use super::peer::{Frame, Peer, data};
use super::{HOUR, pattern, soon};

/// Data in each direction, in bytes.
const ALL: usize = 100_000_000;

/// The period of the data is coprime to the sizes of frames and buffers.
const CYCLE: usize = 1_000_003;

#[tokio::test]
async fn over_an_in_memory_pipe() {
    let (near, far) = tokio::io::duplex(256 * 1024);
    both_ways(near, far).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_socket_with_two_threads() {
    let (near, far) = UnixStream::pair().expect("a pair of sockets");
    both_ways(near, far).await;
}

async fn both_ways<T>(near: T, far: T)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut streams, driver) = SpdyConnection::server(far, SpdyLimits::session(HOUR));
    let driver = tokio::spawn(driver);
    let mut peer = Peer::new(near);
    let id = peer.open("data").await;
    let (mut reader, mut writer) = streams.next().await.expect("a stream").split();
    let text = std::sync::Arc::new(pattern(CYCLE).repeat(2));

    let sent = text.clone();
    let downloading = tokio::spawn(async move {
        let mut at = 0;
        while at < ALL {
            let from = at % CYCLE;
            // Sizes other than that of a frame are used as well.
            let len = (1 + at % 100_000).min(ALL - at);
            let piece = &sent[from..from + len];
            writer.write_all(piece).await.expect("written");
            at += len;
        }
        writer.shutdown().await.expect("shut");
    });
    let wanted = text.clone();
    let uploaded = tokio::spawn(async move {
        let mut check = Check::new(&wanted);
        let mut buf = vec![0; 50_000];
        loop {
            match reader.read(&mut buf).await.expect("input") {
                0 => return check.at,
                n => check.next(&buf[..n]),
            }
        }
    });

    let (from, mut to) = tokio::io::split(peer.io);
    let sent = text.clone();
    let uploading = tokio::spawn(async move {
        let mut at = 0;
        while at < ALL {
            let len = (32 * 1024).min(ALL - at);
            let bytes = data(id, 0, &sent[at % CYCLE..][..len]);
            to.write_all(&bytes).await.expect("sent");
            at += len;
        }
        to.write_all(&data(id, 1, b"")).await.expect("sent");
        to
    });
    let mut peer = Peer::new(tokio::io::join(from, tokio::io::sink()));
    let mut check = Check::new(&text);
    loop {
        match peer.frame().await {
            Frame::Data(_, bytes, is_last) => {
                check.next(&bytes);
                if is_last {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(check.at, ALL);
    assert_eq!(soon("upload", uploaded).await.expect("no panic"), ALL);
    downloading.await.expect("no panic");
    let to = uploading.await.expect("no panic");
    drop((peer, to));
    let counters = super::end(driver).await.counters;
    assert_eq!(counters.data_in, ALL as u64);
    assert_eq!(counters.data_out, ALL as u64);
    assert!(counters.unread_peak <= (1 << 20) + super::super::input::READ_LEN);
}

/// Compares the received data with the expected data.
struct Check<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Check<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn next(&mut self, bytes: &[u8]) {
        let wanted = &self.text[self.at % CYCLE..][..bytes.len()];
        assert!(bytes == wanted, "wrong bytes after {}", self.at);
        self.at += bytes.len();
    }
}
