//! Threads that change their namespaces. They end afterwards: a thread that returned to a pool would run later work in the
//! network of a pod.

use std::fs::File;
use std::thread::Builder;

use futures_channel::oneshot;

use super::{Error, Kind};

/// Runs `work` on a new thread and waits for it. Dropping the future does not stop it.
///
/// # Errors
/// [`Error::Thread`] if the thread cannot be started or `work` panics.
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

/// Runs `work` in the namespace that `open` opens, both on a new thread. `work` must end on its own, because it cannot be
/// cancelled.
///
/// # Errors
/// The error of `open`, or of entering the namespace.
pub async fn run_in<T: Send + 'static>(
    open: impl FnOnce() -> Result<File, Error> + Send + 'static,
    kind: Kind,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    run("in-namespace", move || enter(open, kind).map(|()| work())).await?
}

/// Runs `work` in one namespace after the other, all on the same new thread. One that cannot be opened or entered does not
/// keep it from the others.
///
/// # Errors
/// [`Error::Thread`]; of a single one as [`run_in`].
pub async fn run_in_each<T: Send + 'static>(
    opens: Vec<impl FnOnce() -> Result<File, Error> + Send + 'static>,
    kind: Kind,
    work: impl Fn() -> T + Send + 'static,
) -> Result<Vec<Result<T, Error>>, Error> {
    run("in-namespace", move || {
        let results = opens
            .into_iter()
            .map(|open| enter(open, kind).map(|()| work()));
        results.collect()
    })
    .await
}

fn enter(open: impl FnOnce() -> Result<File, Error>, kind: Kind) -> Result<(), Error> {
    let namespace = open()?;
    nix::sched::setns(&namespace, kind.flag()).map_err(|error| Error::Io {
        action: "enter",
        path: kind.name().into(),
        source: error.into(),
    })
}
