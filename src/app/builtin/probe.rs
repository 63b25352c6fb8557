//! Asks OCI runtimes for their version and features.
//!
//! Each program is asked once, and all of them at the same time: one that hangs delays a start or a reload by its timeout, however
//! many handlers use it.

use futures_util::future::join_all;

use crate::runtime::oci::OciRuntime;
use crate::runtime::oci::version::Version;

/// The answers of an OCI runtime, `None` where it has not answered.
#[derive(Clone, Debug, Default)]
pub(super) struct OciRuntimeAnswers {
    pub(super) version: Option<Version>,
    pub(super) features: Option<serde_json::Value>,
}

/// Asks the OCI runtimes; returns the answers in the same order, empty ones for `None`.
pub(super) async fn ask_all(runtimes: &[Option<OciRuntime>]) -> Vec<OciRuntimeAnswers> {
    let mut programs: Vec<OciRuntime> = Vec::new();
    for runtime in runtimes.iter().flatten() {
        match programs.iter_mut().find(|other| is_same(other, runtime)) {
            Some(program) => program.limit = program.limit.max(runtime.limit),
            None => programs.push(runtime.clone()),
        }
    }
    let answers = join_all(programs.iter().map(ask)).await;
    runtimes
        .iter()
        .map(|runtime| {
            let runtime = runtime.as_ref()?;
            let at = programs.iter().position(|other| is_same(other, runtime))?;
            answers.get(at).cloned()
        })
        .map(Option::unwrap_or_default)
        .collect()
}

/// Returns whether both give the same answers: neither the state directory nor the timeout matters.
fn is_same(one: &OciRuntime, other: &OciRuntime) -> bool {
    one.path == other.path
        && one.options == other.options
        && one.systemd_cgroup == other.systemd_cgroup
}

async fn ask(runtime: &OciRuntime) -> OciRuntimeAnswers {
    let (version, features) = tokio::join!(runtime.version(), runtime.features());
    OciRuntimeAnswers {
        version: version.ok(),
        features: features.ok(),
    }
}
