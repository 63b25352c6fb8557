//! Any bytes as a caller's half of a connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::server::Connection;
use super::{BoxError, Incoming, frame};

/// The answers are read as far as there is room; this is for those of the smallest connections.
const PIPE: usize = 4096;

/// Serves a connection whose caller says these bytes behind the preface and closes. Calls are answered with their own
/// data.
///
/// # Panics
///
/// If the connection does not end.
pub fn fuzz(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (near, far) = tokio::io::duplex(PIPE);
        let (mut read, mut write) = tokio::io::split(near);
        let mut connection = Connection::new(far, tower::service_fn(echo), 100);
        let serving = async {
            // How it ends is the caller's affair.
            let _ = poll_fn(|cx| connection.poll(cx)).await;
            drop(connection);
        };
        let calling = async {
            let _ = write.write_all(frame::PREFACE).await;
            let _ = write.write_all(bytes).await;
            let _ = write.shutdown().await;
        };
        let reading = async {
            let _ = read.read_to_end(&mut Vec::new()).await;
        };
        let all = async { tokio::join!(serving, calling, reading) };
        let ended = timeout(Duration::from_secs(20), all).await;
        assert!(ended.is_ok(), "the connection does not end");
    });
}

async fn echo(
    request: Request<Incoming>,
) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
    let (head, body) = request.into_parts();
    let body = match head.uri.path() {
        "/e" => http_body_util::Empty::new()
            .map_err(|never: Infallible| match never {})
            .boxed_unsync(),
        _ => body.map_err(BoxError::from).boxed_unsync(),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = head.headers;
    Ok(response)
}

#[cfg(test)]
mod tests {
    #[test]
    fn connections_of_the_corpus_end() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/http2");
        let mut files = 0;
        for entry in std::fs::read_dir(folder).expect(folder) {
            let bytes = std::fs::read(entry.expect("an entry").path()).expect("a seed");
            super::fuzz(&bytes);
            // And cut off.
            super::fuzz(&bytes[..bytes.len() / 2]);
            files += 1;
        }
        assert!(files >= 3, "{files} files");
    }
}
