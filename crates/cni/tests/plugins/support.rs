//! Polling, directories whose mounts are removed with them, and an observer of plugins.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criscope_cni::{Invocation, PluginObserver, PluginRun};
use nix::mount::{MntFlags, umount2};
use tempfile::TempDir;

/// Much longer than any step takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until there is a value.
pub(super) async fn until<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A temporary directory; mounts in it are unmounted first.
pub(super) struct Scratch(TempDir);

impl Scratch {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("dir"))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| Path::new(point).starts_with(self.path())) {
            let _ = umount2(point, MntFlags::MNT_DETACH);
        }
    }
}

tokio::task_local! {
    static CURRENT: String;
}

/// Records each run as `PLUGIN VERB OUTCOME`, and sets a variable of each plugin to the name of its run.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(Arc<Mutex<Vec<String>>>);

impl Runs {
    pub(super) fn all(&self) -> Vec<String> {
        self.0.lock().expect("runs").clone()
    }
}

impl PluginObserver for Runs {
    fn wrap<'a>(&'a self, invocation: Invocation<'a>, run: PluginRun<'a>) -> PluginRun<'a> {
        let name = format!("{} {}", invocation.plugin, invocation.verb);
        Box::pin(CURRENT.scope(name.clone(), async move {
            let output = run.await;
            let outcome = if output.is_ok() { "ok" } else { "error" };
            self.0
                .lock()
                .expect("runs")
                .push(format!("{name} {outcome}"));
            output
        }))
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("TRACEPARENT", CURRENT.get())]
    }
}
