//! Fuzzes the parsers of client and upstream bytes: heads, frames with results, and messages with a URL.

use futures_util::FutureExt as _;
use tokio::io::AsyncReadExt as _;

use super::exit_sniffer::ExitSniffer;
use super::head::{HttpHead, HttpHeadError};
use super::url::{self, UrlMessage};
use cri_streaming::{SessionKind, Transport};

/// The first byte selects the parser, the second the size of the pieces.
///
/// # Panics
///
/// If pieces parse differently from the whole, or if the forwarded bytes differ from the input.
pub fn fuzz(input: &[u8]) {
    let &[what, piece, ref bytes @ ..] = input else {
        return;
    };
    let piece = usize::from(piece) + 1;
    match what % 4 {
        0 => head(bytes, piece),
        1 => watch(Transport::Spdy, bytes, piece),
        2 => watch(Transport::WebSocket, bytes, piece),
        _ => message(bytes),
    }
}

fn head(bytes: &[u8], piece: usize) {
    let (first, rest) = bytes.split_at(piece.min(bytes.len()));
    let mut pieces = first.chain(rest);
    let in_pieces = HttpHead::read(&mut pieces).now_or_never();
    let (whole, in_pieces) = (read_head(bytes), in_pieces.expect("ready"));
    assert_eq!(
        whole.as_ref().ok().map(only_head),
        in_pieces.as_ref().ok().map(only_head)
    );
    let Ok(head) = whole else { return };
    assert!(bytes.starts_with(head.all()));
    let _ = (head.status(), head.header("upgrade").count());
    if let Some(target) = head.target() {
        assert_eq!(head.aimed_at(target), head.all());
        let _ = read_head(&head.aimed_at("/other")).map(|other| {
            assert_eq!(
                (other.target(), other.behind()),
                (Some("/other"), head.behind())
            );
        });
    }
}

fn read_head(mut bytes: &[u8]) -> Result<HttpHead, HttpHeadError> {
    HttpHead::read(&mut bytes).now_or_never().expect("ready")
}

/// The bytes of a head without the bytes behind it.
fn only_head(head: &HttpHead) -> &[u8] {
    &head.all()[..head.all().len() - head.behind().len()]
}

fn watch(transport: Transport, bytes: &[u8], piece: usize) {
    for kind in SessionKind::ALL {
        let (mut whole, mut in_pieces) = (
            ExitSniffer::new(*kind, transport),
            ExitSniffer::new(*kind, transport),
        );
        whole.see(bytes);
        for piece in bytes.chunks(piece) {
            in_pieces.see(piece);
            assert!(
                in_pieces.holds() < 5000,
                "{} bytes are held",
                in_pieces.holds()
            );
        }
        assert_eq!(whole.report(*kind), in_pieces.report(*kind));
    }
}

fn message(bytes: &[u8]) {
    let Some(message) = UrlMessage::split(bytes) else {
        return;
    };
    let _ = url::parse(message.url);
    let other = message.with("http://127.0.0.1:1/exec/x");
    let again = UrlMessage::split(&other).expect("still a message");
    assert_eq!(again.url, "http://127.0.0.1:1/exec/x");
    // The bytes before and after it are preserved.
    assert_eq!(again.with(message.url), message.with(message.url));
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    #[test]
    fn damaged_input_parses_the_same_in_pieces() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/relay");
        let mut paths: Vec<_> = std::fs::read_dir(folder)
            .expect(folder)
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        assert!(paths.len() >= 5, "{paths:?}");
        let mut rng = StdRng::seed_from_u64(5);
        for path in paths {
            let seed = std::fs::read(path).expect("a seed");
            for _ in 0..200 {
                let mut bytes = seed.clone();
                bytes[1] = rng.random();
                super::fuzz(&bytes);
                for _ in 0..rng.random_range(1..8) {
                    let at = rng.random_range(2..bytes.len());
                    bytes[at] = rng.random();
                    super::fuzz(&bytes);
                }
                bytes.truncate(rng.random_range(0..bytes.len()));
                super::fuzz(&bytes);
            }
        }
    }
}
