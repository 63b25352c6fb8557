//! Pairs the streams of port-forward: each connection has a data stream and an error stream.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of streams that wait for their counterpart.
const MAX_WAITING: usize = 256;

/// The type of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamType {
    Error,
    Data,
}

impl StreamType {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "data" => Some(Self::Data),
            _ => None,
        }
    }
}

/// The key of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PairKey {
    /// The `requestid` of both.
    Request(String),
    /// The id of the error stream.
    Stream(u32),
}

impl PairKey {
    /// Returns the key. Very old clients send no id; they open the data stream right after the error stream.
    pub(super) fn of(request: Option<&str>, half: StreamType, stream: u32) -> Self {
        match (request, half) {
            (Some(request), _) => Self::Request(request.to_owned()),
            (None, StreamType::Error) => Self::Stream(stream),
            (None, StreamType::Data) => Self::Stream(stream.wrapping_sub(2)),
        }
    }
}

impl fmt::Display for PairKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(id) => f.write_str(id),
            Self::Stream(id) => id.fmt(f),
        }
    }
}

/// A stream that waits for its counterpart.
struct Waiting<S> {
    half: StreamType,
    stream: S,
    since: Instant,
}

/// The result of adding a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pairing<S> {
    /// The counterpart has not arrived yet.
    Waits,
    /// The pair is complete.
    Both { error: S, data: S },
    /// The stream is returned: one of the same type with this key is already waiting, and continues to wait.
    Double(S, PairKey),
    /// The stream is returned: too many are waiting.
    Refused(S),
}

/// The streams that wait for their counterpart.
pub(super) struct Pairs<S> {
    waiting: HashMap<PairKey, Waiting<S>>,
}

impl<S> Pairs<S> {
    pub(super) fn new() -> Self {
        Self {
            waiting: HashMap::new(),
        }
    }

    pub(super) fn put(&mut self, key: PairKey, half: StreamType, stream: S) -> Pairing<S> {
        match self.waiting.remove(&key) {
            Some(first) if first.half == half => {
                self.waiting.insert(key.clone(), first);
                Pairing::Double(stream, key)
            }
            Some(first) if half == StreamType::Data => Pairing::Both {
                error: first.stream,
                data: stream,
            },
            Some(first) => Pairing::Both {
                error: stream,
                data: first.stream,
            },
            None if self.waiting.len() >= MAX_WAITING => Pairing::Refused(stream),
            None => {
                let since = Instant::now();
                let waiting = Waiting {
                    half,
                    stream,
                    since,
                };
                self.waiting.insert(key, waiting);
                Pairing::Waits
            }
        }
    }

    /// Returns the error stream of a pair that waits for its data stream.
    pub(super) fn errors(&mut self, key: &PairKey) -> Option<&mut S> {
        let waiting = self.waiting.get_mut(key)?;
        (waiting.half == StreamType::Error).then_some(&mut waiting.stream)
    }

    /// Removes the streams that have waited for this long.
    pub(super) fn overdue(&mut self, limit: Duration) -> Vec<(StreamType, S)> {
        let now = Instant::now();
        self.waiting
            .extract_if(|_, waiting| now - waiting.since >= limit)
            .map(|(_, waiting)| (waiting.half, waiting.stream))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn streams_are_paired_in_any_order() {
        let mut pairs = Pairs::new();
        let key = |id| PairKey::of(Some(id), StreamType::Data, 0);
        assert_eq!(pairs.put(key("1"), StreamType::Error, 'e'), Pairing::Waits);
        assert_eq!(pairs.put(key("2"), StreamType::Data, 'D'), Pairing::Waits);
        let double = Pairing::Double('x', key("1"));
        assert_eq!(pairs.put(key("1"), StreamType::Error, 'x'), double);
        assert_eq!(pairs.errors(&key("1")), Some(&mut 'e'));
        assert_eq!(pairs.errors(&key("2")), None);
        assert_eq!(
            pairs.put(key("1"), StreamType::Data, 'd'),
            Pairing::Both {
                error: 'e',
                data: 'd'
            }
        );
        assert_eq!(
            pairs.put(key("2"), StreamType::Error, 'E'),
            Pairing::Both {
                error: 'E',
                data: 'D'
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_request_id_the_data_stream_follows_the_error_stream() {
        let error = PairKey::of(None, StreamType::Error, 5);
        assert_eq!(error, PairKey::of(None, StreamType::Data, 7));
        assert_ne!(error, PairKey::of(None, StreamType::Data, 9));
        assert_ne!(error, PairKey::of(Some("5"), StreamType::Error, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_streams_are_limited_in_time_and_number() {
        let mut pairs = Pairs::new();
        let limit = Duration::from_secs(30);
        for i in 0..256 {
            assert_eq!(
                pairs.put(PairKey::Stream(i), StreamType::Data, i),
                Pairing::Waits
            );
        }
        assert_eq!(
            pairs.put(PairKey::Stream(999), StreamType::Data, 999),
            Pairing::Refused(999)
        );
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(pairs.overdue(limit).is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pairs.overdue(limit).len(), 256);
        assert_eq!(
            pairs.put(PairKey::Stream(0), StreamType::Error, 0),
            Pairing::Waits
        );
    }
}
