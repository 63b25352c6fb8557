//! Waiters for the exits of execs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use criscope_shim::protocol::{Exit, Target};

/// The waiters by exec; `None` once the shim is gone.
type Awaited = Option<HashMap<Target, oneshot::Sender<Exit>>>;

/// All waiters for exits of execs. Delivery never blocks and never drops an exit, regardless of their number.
#[derive(Clone, Debug)]
pub(super) struct ExitWaiters(Arc<Mutex<Awaited>>);

impl ExitWaiters {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(HashMap::new()))))
    }

    /// Registers the only waiter for the exit of an exec.
    pub(super) fn waiter(&self, target: Target) -> ExitWaiter {
        let (tell, told) = oneshot::channel();
        if let Some(awaited) = &mut *self.lock() {
            awaited.insert(target.clone(), tell);
        }
        ExitWaiter {
            endings: self.clone(),
            target,
            told,
        }
    }

    pub(super) fn tell(&self, exit: &Exit) {
        let mut awaited = self.lock();
        let tell = awaited.as_mut();
        if let Some(tell) = tell.and_then(|awaited| awaited.remove(&exit.target)) {
            // The waiter may have been dropped concurrently.
            let _gone = tell.send(exit.clone());
        }
    }

    /// Closes all waiters: the shim is gone.
    pub(super) fn close(&self) {
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Awaited> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter for the exit of one exec, which is delivered only once.
#[derive(Debug)]
pub struct ExitWaiter {
    endings: ExitWaiters,
    target: Target,
    told: oneshot::Receiver<Exit>,
}

impl ExitWaiter {
    /// Waits for the exit; `None` if the shim is lost first. Cancel safe. The exit is returned only once.
    pub async fn told(&mut self) -> Option<Exit> {
        (&mut self.told).await.ok()
    }
}

impl Drop for ExitWaiter {
    fn drop(&mut self) {
        if let Some(awaited) = &mut *self.endings.lock() {
            awaited.remove(&self.target);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixListener;
    use tokio::time::timeout;

    use super::*;
    use crate::shim_client::Shim;
    use crate::shim_client::frames::Frames;
    use crate::testing::PATIENCE;
    use criscope_shim::SOCKET;
    use criscope_shim::protocol::{self, Answer, Empty, Event, Request};

    fn target(exec: &str) -> Target {
        Target {
            container: "c".to_owned(),
            exec: exec.to_owned(),
        }
    }

    /// Simulates a shim that reports these exits on a `Forget` request, and disconnects on a `Shutdown`.
    async fn play(listener: UnixListener, ends: Vec<Exit>) {
        let (mut read, mut write) = listener
            .accept()
            .await
            .expect("a connection")
            .0
            .into_split();
        let mut frames = Frames::new(&mut read, 512);
        let mut hello = Vec::new();
        protocol::encode_event(&Event::Hello(protocol::Hello::own()), &mut hello);
        write.write_all(&hello).await.expect("written");
        while let Some(frame) = frames.next().await {
            let (number, request) = protocol::decode_request(&frame).expect("a request");
            let mut out = Vec::new();
            match request.expect("a known request") {
                Request::Forget(_) => {
                    for exit in &ends {
                        protocol::encode_event(&Event::Exit(exit.clone()), &mut out);
                    }
                }
                Request::Shutdown(_) => return,
                _ => {}
            }
            protocol::encode_answer(number, &Answer::Done(Empty {}), &mut out);
            write.write_all(&out).await.expect("written");
        }
    }

    #[tokio::test]
    async fn an_exit_is_delivered_among_any_number_of_others() {
        let exit = |exec: &str, code| Exit {
            target: target(exec),
            code,
            ..Exit::default()
        };
        let dir = tempfile::tempdir().expect("dir");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("bind");
        let mut ends = vec![exit("ours", 7)];
        ends.extend((0..1000).map(|number| exit(&number.to_string(), 0)));
        tokio::spawn(play(listener, ends));
        let shim = Shim::connect(dir.path()).await.expect("connect");
        let mut ours = shim.ending(target("ours"));
        let mut running = shim.ending(target("running"));
        // The wait is polled and continued later.
        let early = timeout(Duration::ZERO, ours.told()).await;
        assert!(early.is_err(), "{early:?}");
        shim.forget(target("any")).await.expect("answered");
        let late = timeout(PATIENCE, ours.told()).await;
        assert_eq!(late.expect("told").map(|exit| exit.code), Some(7));
        let _gone = shim.shutdown(false).await;
        assert_eq!(running.told().await, None);
        assert_eq!(shim.ending(target("new")).told().await, None);
    }
}
