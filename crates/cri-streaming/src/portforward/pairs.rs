//! Pairs the streams of port-forward: each connection has a data stream and an error stream.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of streams that wait for their counterpart.
const MAX_WAITING: usize = 256;

/// The type of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortStreamType {
    Error,
    Data,
}

impl PortStreamType {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "data" => Some(Self::Data),
            _ => None,
        }
    }
}

/// The key of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum StreamPairKey {
    /// The `requestid` of both.
    Request(String),
    /// The id of the error stream.
    Stream(u32),
}

impl StreamPairKey {
    /// Returns the key. Very old clients send no id; they open the data stream right after the error stream.
    pub(super) fn from_headers(request: Option<&str>, half: PortStreamType, stream: u32) -> Self {
        match (request, half) {
            (Some(request), _) => Self::Request(request.to_owned()),
            (None, PortStreamType::Error) => Self::Stream(stream),
            (None, PortStreamType::Data) => Self::Stream(stream.wrapping_sub(2)),
        }
    }
}

impl fmt::Display for StreamPairKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(id) => f.write_str(id),
            Self::Stream(id) => id.fmt(f),
        }
    }
}

/// A stream that waits for its counterpart.
struct WaitingStream<S> {
    half: PortStreamType,
    stream: S,
    since: Instant,
}

/// The result of adding a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PairResult<S> {
    /// The counterpart has not arrived yet.
    Waits,
    /// The pair is complete.
    Both { error: S, data: S },
    /// The stream is returned: one of the same type with this key is already waiting, and continues to wait.
    Double(S, StreamPairKey),
    /// The stream is returned: too many are waiting.
    Refused(S),
}

/// The streams that wait for their counterpart.
pub(super) struct StreamPairs<S> {
    waiting: HashMap<StreamPairKey, WaitingStream<S>>,
}

impl<S> StreamPairs<S> {
    pub(super) fn new() -> Self {
        Self {
            waiting: HashMap::new(),
        }
    }

    pub(super) fn put(
        &mut self,
        key: StreamPairKey,
        half: PortStreamType,
        stream: S,
    ) -> PairResult<S> {
        match self.waiting.remove(&key) {
            Some(first) if first.half == half => {
                self.waiting.insert(key.clone(), first);
                PairResult::Double(stream, key)
            }
            Some(first) if half == PortStreamType::Data => PairResult::Both {
                error: first.stream,
                data: stream,
            },
            Some(first) => PairResult::Both {
                error: stream,
                data: first.stream,
            },
            None if self.waiting.len() >= MAX_WAITING => PairResult::Refused(stream),
            None => {
                let since = Instant::now();
                let waiting = WaitingStream {
                    half,
                    stream,
                    since,
                };
                self.waiting.insert(key, waiting);
                PairResult::Waits
            }
        }
    }

    /// Returns the error stream of a pair that waits for its data stream.
    pub(super) fn errors(&mut self, key: &StreamPairKey) -> Option<&mut S> {
        let waiting = self.waiting.get_mut(key)?;
        (waiting.half == PortStreamType::Error).then_some(&mut waiting.stream)
    }

    /// Removes the streams that have waited for this long.
    pub(super) fn overdue(&mut self, limit: Duration) -> Vec<(PortStreamType, S)> {
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
        let mut pairs = StreamPairs::new();
        let key = |id| StreamPairKey::from_headers(Some(id), PortStreamType::Data, 0);
        assert_eq!(
            pairs.put(key("1"), PortStreamType::Error, 'e'),
            PairResult::Waits
        );
        assert_eq!(
            pairs.put(key("2"), PortStreamType::Data, 'D'),
            PairResult::Waits
        );
        let double = PairResult::Double('x', key("1"));
        assert_eq!(pairs.put(key("1"), PortStreamType::Error, 'x'), double);
        assert_eq!(pairs.errors(&key("1")), Some(&mut 'e'));
        assert_eq!(pairs.errors(&key("2")), None);
        assert_eq!(
            pairs.put(key("1"), PortStreamType::Data, 'd'),
            PairResult::Both {
                error: 'e',
                data: 'd'
            }
        );
        assert_eq!(
            pairs.put(key("2"), PortStreamType::Error, 'E'),
            PairResult::Both {
                error: 'E',
                data: 'D'
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_request_id_the_data_stream_follows_the_error_stream() {
        let error = StreamPairKey::from_headers(None, PortStreamType::Error, 5);
        assert_eq!(
            error,
            StreamPairKey::from_headers(None, PortStreamType::Data, 7)
        );
        assert_ne!(
            error,
            StreamPairKey::from_headers(None, PortStreamType::Data, 9)
        );
        assert_ne!(
            error,
            StreamPairKey::from_headers(Some("5"), PortStreamType::Error, 5)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_streams_are_limited_in_time_and_number() {
        let mut pairs = StreamPairs::new();
        let limit = Duration::from_secs(30);
        for i in 0..256 {
            assert_eq!(
                pairs.put(StreamPairKey::Stream(i), PortStreamType::Data, i),
                PairResult::Waits
            );
        }
        assert_eq!(
            pairs.put(StreamPairKey::Stream(999), PortStreamType::Data, 999),
            PairResult::Refused(999)
        );
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(pairs.overdue(limit).is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pairs.overdue(limit).len(), 256);
        assert_eq!(
            pairs.put(StreamPairKey::Stream(0), PortStreamType::Error, 0),
            PairResult::Waits
        );
    }
}
