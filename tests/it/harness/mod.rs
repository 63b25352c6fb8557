//! What the tests are made with: a caller, the program, and a runtime that does as it is told.
//!
//! Nothing here waits for a time to pass; it waits for a condition, for [`PATIENCE`] at most.

pub(crate) mod alone;
pub(crate) mod client;
pub(crate) mod collector;
pub(crate) mod daemon;
pub(crate) mod executable;
pub(crate) mod fake;
pub(crate) mod filler;
pub(crate) mod image;
pub(crate) mod kubelet;
pub(crate) mod leaks;
pub(crate) mod packages;
pub(crate) mod pods;
pub(crate) mod prometheus;
pub(crate) mod proxy;
pub(crate) mod scrape;
pub(crate) mod script;
pub(crate) mod store;
pub(crate) mod yaml;

use std::future::Future;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

/// How long a condition may take to come true. Long, because nothing is learnt from a slow machine, and an emulated one is
/// slower by far (`tests/v2/run.sh`).
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Asks again and again until there is an answer.
pub(crate) async fn until<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a future, for [`PATIENCE`] at most.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited in vain: {what}"),
    }
}

/// A gRPC message: flags, length, bytes.
pub(crate) fn message(bytes: &[u8]) -> Bytes {
    message_with(0, bytes)
}

/// A gRPC message with these flags.
pub(crate) fn message_with(flags: u8, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(5 + bytes.len());
    out.put_u8(flags);
    out.put_u32(bytes.len().try_into().expect("below 4 GiB"));
    out.put_slice(bytes);
    out.freeze()
}

/// A message of the protocol as a gRPC message.
pub(crate) fn encode(m: &impl prost::Message) -> Bytes {
    message(&m.encode_to_vec())
}

/// Headers from names and values.
pub(crate) fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).expect("name"),
            HeaderValue::from_bytes(value.as_bytes()).expect("value"),
        );
    }
    map
}

/// Headers in an order that does not depend on how different names were mixed; values of one name stay in order.
pub(crate) fn sorted(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut list: Vec<_> = map
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

/// Lets this process, and what it starts, open as many files as the kernel allows it.
pub(crate) fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raise");
}
