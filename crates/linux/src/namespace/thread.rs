//! Threads that change their namespaces. They end afterwards: one that came back to a pool would carry the next work
//! into a stranger's network.

use std::fs::File;
use std::thread::Builder;

use tokio::sync::oneshot;

use super::{Error, Kind};

/// Runs `work` on a thread of its own and waits for it. A caller that goes away does not stop it.
///
/// # Errors
/// [`Error::Thread`] if there is no thread to be had or `work` panics.
pub async fn run<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let (answer, wait) = oneshot::channel();
    Builder::new()
        .name(name.to_owned())
        .stack_size(256 * 1024)
        .spawn(move || {
            let _ = answer.send(work());
        })
        .map_err(|error| Error::Thread {
            name,
            why: error.to_string(),
        })?;
    wait.await.map_err(|_| Error::Thread {
        name,
        why: "it ended early".to_owned(),
    })
}

/// Runs `work` in the namespace that `open` opens, both on a thread of its own. `work` must end by itself: nothing can stop
/// it.
///
/// # Errors
/// That of `open`; also when the thread may not enter.
pub async fn run_in<T: Send + 'static>(
    open: impl FnOnce() -> Result<File, Error> + Send + 'static,
    kind: Kind,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    run("in-namespace", move || {
        let namespace = open()?;
        nix::sched::setns(&namespace, kind.flag()).map_err(|error| Error::Io {
            action: "enter",
            path: kind.name().into(),
            source: error.into(),
        })?;
        drop(namespace);
        Ok(work())
    })
    .await?
}
