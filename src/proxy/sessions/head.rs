//! The head of an HTTP/1.1 message, parsed without changing a byte.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest head, in bytes.
pub(super) const MAX_HEAD_BYTES: usize = 64 << 10;

/// Bytes per read.
const READ_BYTES: usize = 4 << 10;

const HEAD_END: &[u8] = b"\r\n\r\n";

/// Why a head could not be read.
#[derive(Debug)]
pub(super) enum HttpHeadError {
    /// The head is too large; the bytes read so far.
    TooLarge(Vec<u8>),
    /// The connection ended before it was complete; the bytes read so far.
    Ended(Vec<u8>),
    /// Reading failed.
    Broken,
}

/// A head, and the bytes received after it.
#[derive(Debug)]
pub(super) struct HttpHead {
    bytes: Vec<u8>,
    /// Where the head ends.
    end: usize,
}

impl HttpHead {
    /// Reads a head.
    pub(super) async fn read(io: &mut (impl AsyncRead + Unpin)) -> Result<Self, HttpHeadError> {
        let mut bytes = Vec::with_capacity(READ_BYTES);
        loop {
            let before = bytes.len();
            let mut piece = io.take(READ_BYTES as u64);
            match piece.read_buf(&mut bytes).await {
                Ok(0) => return Err(HttpHeadError::Ended(bytes)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(HttpHeadError::Broken),
            }
            // The terminator may be split between two reads.
            let from = before.saturating_sub(HEAD_END.len() - 1);
            let found = bytes[from..]
                .windows(HEAD_END.len())
                .position(|w| w == HEAD_END);
            if let Some(at) = found {
                let end = from + at + HEAD_END.len();
                return if end <= MAX_HEAD_BYTES {
                    Ok(Self { bytes, end })
                } else {
                    Err(HttpHeadError::TooLarge(bytes))
                };
            }
            if bytes.len() >= MAX_HEAD_BYTES {
                return Err(HttpHeadError::TooLarge(bytes));
            }
        }
    }

    /// The head and the bytes after it, as received.
    pub(super) fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes after the head.
    pub(super) fn behind(&self) -> &[u8] {
        &self.bytes[self.end..]
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let head = &self.bytes[..self.end - HEAD_END.len()];
        head.split(|b| *b == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn first(&self) -> &[u8] {
        self.lines().next().unwrap_or_default()
    }

    /// The values of a header that are valid text.
    pub(super) fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines().skip(1).filter_map(move |line| {
            let (found, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The request target, path and query; `None` if it is not an HTTP/1.1 request.
    pub(super) fn target(&self) -> Option<&str> {
        let mut words = self.first().split(|b| *b == b' ');
        let (_method, target, version) = (words.next()?, words.next()?, words.next()?);
        (version == b"HTTP/1.1" && words.next().is_none())
            .then(|| std::str::from_utf8(target).ok())?
    }

    /// The request and the bytes after it, with another target. No other byte is changed.
    pub(super) fn aimed_at(&self, target: &str) -> Vec<u8> {
        let mut words = self.first().splitn(3, |b| *b == b' ');
        let method = words.next().unwrap_or_default().len();
        let old = words.next().unwrap_or_default().len();
        let mut out = Vec::with_capacity(self.bytes.len() + target.len());
        out.extend_from_slice(&self.bytes[..=method]);
        out.extend_from_slice(target.as_bytes());
        out.extend_from_slice(&self.bytes[method + 1 + old..]);
        out
    }

    /// The status of a response.
    pub(super) fn status(&self) -> Option<u16> {
        let mut words = self.first().split(|b| *b == b' ');
        let version = words.next()?;
        let status = std::str::from_utf8(words.next()?).ok()?;
        (version.starts_with(b"HTTP/1.") && status.len() == 3).then(|| status.parse().ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "POST /exec/abc HTTP/1.1\r\nHost: node:10250\r\nX-Stream-Protocol-Version: v4\r\n\
         x-stream-protocol-version:  v3 \r\nUpgrade: SPDY/3.1\r\n\r\nrest";

    async fn read(bytes: &[u8], size: usize) -> Result<HttpHead, HttpHeadError> {
        let (mut far, mut near) = tokio::io::duplex(size);
        let writing = async move {
            use tokio::io::AsyncWriteExt as _;
            // The reader closes when it has read enough.
            let _ = far.write_all(bytes).await;
        };
        let (head, ()) = tokio::join!(
            async {
                let head = HttpHead::read(&mut near).await;
                drop(near);
                head
            },
            writing
        );
        head
    }

    #[tokio::test]
    async fn a_head_may_come_in_any_pieces_and_is_changed_in_one_place() {
        for size in [1, 2, 3, 7, 1000] {
            let head = read(REQUEST.as_bytes(), size).await.expect("a head");
            assert_eq!(head.target(), Some("/exec/abc"));
            let protocols: Vec<_> = head.header("X-Stream-Protocol-Version").collect();
            assert_eq!(protocols, ["v4", "v3"]);
            let aimed = head.aimed_at("/x/y?z");
            let wanted = REQUEST.replacen("/exec/abc", "/x/y?z", 1);
            // Bytes after the head may not have been read.
            assert!(wanted.as_bytes().starts_with(&aimed), "pieces of {size}");
            assert!(aimed.len() >= wanted.len() - "rest".len());
            assert!("rest".as_bytes().starts_with(head.behind()));
        }
    }

    #[tokio::test]
    async fn invalid_heads_are_rejected() {
        let large = vec![b'a'; MAX_HEAD_BYTES + 1];
        assert!(matches!(
            read(&large, 1000).await,
            Err(HttpHeadError::TooLarge(_))
        ));
        let cut = read(b"GET / HTTP/1.1\r\n", 1000).await;
        assert!(matches!(cut, Err(HttpHeadError::Ended(_))));
        for line in [
            "GET /",
            "GET / HTTP/1.0",
            "GET  / HTTP/1.1",
            "",
            "GET / HTTP/1.1 ",
        ] {
            let head = read(format!("{line}\r\n\r\n").as_bytes(), 1000).await;
            assert_eq!(head.expect("a head").target(), None, "{line:?}");
        }
    }

    #[tokio::test]
    async fn the_status_of_a_response() {
        for (line, status) in [
            ("HTTP/1.1 101 Switching Protocols", Some(101)),
            ("HTTP/1.0 404", Some(404)),
            ("HTTP/2 200 OK", None),
            ("HTTP/1.1 1010 x", None),
            ("SSH-2.0 101", None),
        ] {
            let head = read(format!("{line}\r\n\r\n").as_bytes(), 1000).await;
            assert_eq!(head.expect("a head").status(), status, "{line:?}");
        }
    }
}
