//! Concurrent callers as load.

use std::mem;

use criscope::cri::status::{Code, code_name};
use tokio::task::JoinSet;

use crate::prelude::*;

/// The number of callers, each with its own connection.
const CALLERS: usize = 8;

/// Number of calls by code; `None` if the connection broke.
pub(super) type Counts = BTreeMap<Option<&'static str>, usize>;

/// Calls under way.
pub(super) struct Load {
    callers: JoinSet<Counts>,
    stop: CancellationToken,
    good: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
}

impl Load {
    /// Starts the callers; each makes one call after another.
    pub(super) fn on(socket: &Path) -> Self {
        let mut load = Self {
            callers: JoinSet::new(),
            stop: CancellationToken::new(),
            good: Arc::default(),
            failed: Arc::default(),
            served: Arc::default(),
        };
        for number in 0..CALLERS {
            load.callers.spawn(caller(
                number,
                socket.to_owned(),
                load.stop.clone(),
                [&load.good, &load.failed, &load.served].map(Arc::clone),
            ));
        }
        load
    }

    /// Waits for this number of further successful calls.
    pub(super) async fn wait_good(&self, more: usize) {
        let wanted = self.good.load(Ordering::Relaxed) + more;
        until_true("good answers", async || {
            self.good.load(Ordering::Relaxed) >= wanted
        })
        .await;
    }

    /// Waits until each caller has had a successful call, and thus a connection.
    pub(super) async fn wait_each(&self) {
        until_true("a successful call of each caller", async || {
            self.served.load(Ordering::Relaxed) == CALLERS
        })
        .await;
    }

    /// Waits for this number of further failed calls.
    pub(super) async fn wait_failed(&self, more: usize) {
        let wanted = self.failed.load(Ordering::Relaxed) + more;
        until_true("failing calls", async || {
            self.failed.load(Ordering::Relaxed) >= wanted
        })
        .await;
    }

    /// Lets all calls complete; returns how they ended.
    pub(super) async fn finish(self) -> Counts {
        self.stop.cancel();
        let mut all = Counts::new();
        for counts in self.callers.join_all().await {
            for (end, n) in counts {
                *all.entry(end).or_default() += n;
            }
        }
        all
    }
}

async fn caller(
    number: usize,
    socket: PathBuf,
    stop: CancellationToken,
    [good, failed, served]: [Arc<AtomicUsize>; 3],
) -> Counts {
    let (mut counts, mut is_served) = (Counts::new(), false);
    let client = Client::connect(&socket).await;
    for turn in number.. {
        if stop.is_cancelled() {
            break;
        }
        let got = client.call(call(turn)).await;
        if got.broken.is_some() {
            *counts.entry(None).or_default() += 1;
            failed.fetch_add(1, Ordering::Relaxed);
            // The connection is gone: stop.
            break;
        }
        let code = Code::from_i32(got.code());
        *counts.entry(Some(code_name(code))).or_default() += 1;
        match code {
            Code::Ok => {
                if !mem::replace(&mut is_served, true) {
                    served.fetch_add(1, Ordering::Relaxed);
                }
                good.fetch_add(1, Ordering::Relaxed)
            }
            _ => failed.fetch_add(1, Ordering::Relaxed),
        };
    }
    counts
}

/// A call that a kubelet makes regularly.
fn call(turn: usize) -> Call {
    match turn % 5 {
        0 => Call::plain("Version"),
        1 => Call::plain("ListContainers"),
        2 => Call::plain("ListPodSandbox"),
        3 => Call::image("ListImages", message(b"")),
        _ => Call::runtime(
            "Status",
            encode(&criscope::cri::v1::StatusRequest { verbose: false }),
        ),
    }
}
