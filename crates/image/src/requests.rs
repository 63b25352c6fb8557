//! How far the requests of a step are: which server was asked, and when the last byte came. The step that a task is in is task-local, since
//! requests are made far below it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::observer::ActiveStep;

/// Receives how far the requests of a step are. All methods are called in the path of pulls, so they must not block.
pub trait RequestProgress: fmt::Debug + Send + Sync {
    /// A request goes to this server: host and port, and where they redirect to.
    fn asked(&self, server: &str);

    /// Bytes of an answer have arrived. The bytes of a layer that an earlier pull has kept count, too.
    fn received(&self, bytes: u64);

    /// The number of bytes that will arrive, if it is known.
    fn expects(&self, bytes: u64);
}

tokio::task_local! {
    static CURRENT: Option<Arc<dyn RequestProgress>>;
}

/// Runs `work` so that its requests are those of a step.
pub(crate) fn within<F: Future>(
    step: &dyn ActiveStep,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    CURRENT.scope(step.requests(), work)
}

pub(crate) fn asked(server: &str) {
    with_current(|progress| progress.asked(server));
}

pub(crate) fn received(bytes: u64) {
    with_current(|progress| progress.received(bytes));
}

pub(crate) fn expects(bytes: u64) {
    with_current(|progress| progress.expects(bytes));
}

fn with_current(note: impl FnOnce(&dyn RequestProgress)) {
    // Requests without a step are those of programs that do not observe.
    let _ = CURRENT.try_with(|current| current.as_deref().map(note));
}
