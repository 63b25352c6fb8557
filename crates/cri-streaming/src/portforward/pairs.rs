//! Which two streams belong together: the one that carries a connection, and the one that says what is wrong with it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Pairs that may wait for their second half.
const MAX_WAITING: usize = 256;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Error,
    Data,
}

impl Half {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "data" => Some(Self::Data),
            _ => None,
        }
    }
}

/// The name of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The `requestid` of both.
    Request(String),
    /// The id of the error stream.
    Stream(u32),
}

impl Key {
    /// Very old clients give no id; they open the stream of data right after that of errors.
    pub(super) fn of(request: Option<&str>, half: Half, stream: u32) -> Self {
        match (request, half) {
            (Some(request), _) => Self::Request(request.to_owned()),
            (None, Half::Error) => Self::Stream(stream),
            (None, Half::Data) => Self::Stream(stream.wrapping_sub(2)),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(id) => f.write_str(id),
            Self::Stream(id) => id.fmt(f),
        }
    }
}

/// A stream that waits.
struct Waiting<S> {
    half: Half,
    stream: S,
    since: Instant,
}

/// What came of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Paired<S> {
    /// The other one is to come.
    Waits,
    /// Both are there.
    Both { error: S, data: S },
    /// The stream is given back: there is one of its kind, which waits on.
    Double(S, Key),
    /// The stream is given back: too many wait.
    Refused(S),
}

/// The streams that wait.
pub(super) struct Pairs<S> {
    waiting: HashMap<Key, Waiting<S>>,
}

impl<S> Pairs<S> {
    pub(super) fn new() -> Self {
        Self {
            waiting: HashMap::new(),
        }
    }

    pub(super) fn put(&mut self, key: Key, half: Half, stream: S) -> Paired<S> {
        match self.waiting.remove(&key) {
            Some(first) if first.half == half => {
                self.waiting.insert(key.clone(), first);
                Paired::Double(stream, key)
            }
            Some(first) if half == Half::Data => Paired::Both {
                error: first.stream,
                data: stream,
            },
            Some(first) => Paired::Both {
                error: stream,
                data: first.stream,
            },
            None if self.waiting.len() >= MAX_WAITING => Paired::Refused(stream),
            None => {
                let since = Instant::now();
                let waiting = Waiting {
                    half,
                    stream,
                    since,
                };
                self.waiting.insert(key, waiting);
                Paired::Waits
            }
        }
    }

    /// The stream of errors of a pair that waits for its data.
    pub(super) fn errors(&mut self, key: &Key) -> Option<&mut S> {
        let waiting = self.waiting.get_mut(key)?;
        (waiting.half == Half::Error).then_some(&mut waiting.stream)
    }

    /// Those that have waited for so long.
    pub(super) fn overdue(&mut self, limit: Duration) -> Vec<(Half, S)> {
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
    async fn two_halves_make_a_pair_in_any_order() {
        let mut pairs = Pairs::new();
        let key = |id| Key::of(Some(id), Half::Data, 0);
        assert_eq!(pairs.put(key("1"), Half::Error, 'e'), Paired::Waits);
        assert_eq!(pairs.put(key("2"), Half::Data, 'D'), Paired::Waits);
        let double = Paired::Double('x', key("1"));
        assert_eq!(pairs.put(key("1"), Half::Error, 'x'), double);
        assert_eq!(pairs.errors(&key("1")), Some(&mut 'e'));
        assert_eq!(pairs.errors(&key("2")), None);
        assert_eq!(
            pairs.put(key("1"), Half::Data, 'd'),
            Paired::Both {
                error: 'e',
                data: 'd'
            }
        );
        assert_eq!(
            pairs.put(key("2"), Half::Error, 'E'),
            Paired::Both {
                error: 'E',
                data: 'D'
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_id_the_stream_of_data_follows_that_of_errors() {
        let error = Key::of(None, Half::Error, 5);
        assert_eq!(error, Key::of(None, Half::Data, 7));
        assert_ne!(error, Key::of(None, Half::Data, 9));
        assert_ne!(error, Key::of(Some("5"), Half::Error, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn halves_do_not_wait_for_ever_nor_in_any_number() {
        let mut pairs = Pairs::new();
        let limit = Duration::from_secs(30);
        for i in 0..256 {
            assert_eq!(pairs.put(Key::Stream(i), Half::Data, i), Paired::Waits);
        }
        assert_eq!(
            pairs.put(Key::Stream(999), Half::Data, 999),
            Paired::Refused(999)
        );
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(pairs.overdue(limit).is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pairs.overdue(limit).len(), 256);
        assert_eq!(pairs.put(Key::Stream(0), Half::Error, 0), Paired::Waits);
    }
}
