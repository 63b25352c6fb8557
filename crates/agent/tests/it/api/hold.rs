//! Requests that are held back, so that a test can do something while they are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::{Api, State};

/// Which requests are held back.
#[derive(Debug)]
pub(super) struct HeldRequests {
    line: String,
    waiting: Arc<AtomicUsize>,
    end: watch::Receiver<()>,
}

/// Holds requests back until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    waiting: Arc<AtomicUsize>,
    _end: watch::Sender<()>,
}

impl Hold {
    /// How many requests were held back so far.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl Api {
    /// Holds back requests with this method and path.
    pub(crate) fn hold(&self, line: &str) -> Hold {
        let (sender, end) = watch::channel(());
        let waiting = Arc::new(AtomicUsize::new(0));
        let held = HeldRequests {
            line: line.to_owned(),
            waiting: Arc::clone(&waiting),
            end,
        };
        *self.state.held.lock().expect("held") = Some(held);
        Hold {
            waiting,
            _end: sender,
        }
    }
}

impl State {
    pub(super) async fn wait_if_held(&self, line: &str) {
        let end = {
            let held = self.held.lock().expect("held");
            let Some(held) = held.as_ref().filter(|held| held.line == line) else {
                return;
            };
            held.waiting.fetch_add(1, Ordering::SeqCst);
            held.end.clone()
        };
        let mut end = end;
        // Ends with an error when the hold is dropped.
        let _ = end.changed().await;
    }
}
