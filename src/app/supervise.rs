//! Tasks of the side thread that are started again after a panic. Otherwise a defect would end the probe of a backend or the
//! rates for the life of the process, without a sign of it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::sleep;

/// Pause before a task begins anew.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Runs a task until it ends without a panic. The message of a panic is not logged, since it may quote secrets.
pub(super) async fn supervised<F: Future<Output = ()>>(name: &'static str, task: impl Fn() -> F) {
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        tracing::error!(
            target: "criscope::app",
            event = "task.panic",
            task = name,
            "a background task panicked and is restarted"
        );
        sleep(RESTART_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_begins_anew_after_a_panic() {
        let runs = Cell::new(0);
        let task = || async {
            runs.set(runs.get() + 1);
            assert!(runs.get() > 2, "on purpose");
        };
        supervised("test", task).await;
        assert_eq!(runs.get(), 3);
    }
}
