//! Steps about the kubelet's own work: syncs, hooks, pulls and kills.

use super::context::command_word;
use super::{NextStep, StepContext};
use crate::diagnosis::kubelet::{ContainerHook, ContainerStop, HookKind, KubeletCause};
use crate::diagnosis::syncs::FailingSync;
use crate::kubelet::images::MissingImage;
use crate::kubelet::sync_error::SyncError;
use crate::node::NodePrograms;
use criscope_cri::subject::PodIdentity;

impl FailingSync<'_> {
    /// The step for a pod that no call has named.
    pub(crate) fn next_step(&self, pod: &PodIdentity, programs: &NodePrograms) -> Option<NextStep> {
        let context = StepContext {
            pod,
            episodes: &[],
            programs,
            is_gone: false,
        };
        context.about_sync_error(self.sync.error.as_ref()?)
    }
}

impl StepContext<'_> {
    pub(super) fn about_kubelet(&self, cause: &KubeletCause<'_>) -> Option<NextStep> {
        match cause {
            // The start goes on: its wait is over.
            KubeletCause::BeforeFirstCall { up, .. } => (!up).then(|| self.describe())?,
            KubeletCause::BeforeStop { fact, .. } => self.about_fact(fact.as_ref()?.fact),
            KubeletCause::FailingSync(fails) => self.about_sync_error(fails.sync.error.as_ref()?),
            KubeletCause::PullQueue { .. } => Some(NextStep::PullInParallel),
            KubeletCause::HookInFlight { hook, .. } => self.check_hook(hook),
            KubeletCause::PostStart { hook, .. } => match hook.result {
                Some(result) if result.has_failed() => {
                    let path = self.container_path(hook.container)?;
                    Some(NextStep::RunPostStartHook { path })
                }
                _ => self.check_hook(hook),
            },
            KubeletCause::ContainerStopped { stop, .. } => self.about_slow_stop(stop),
            KubeletCause::ContainerKilled { reason, stop, .. } => {
                self.about_kill(stop.container, *reason)
            }
            KubeletCause::KillLoop(kills) if kills.is_over => None,
            KubeletCause::KillLoop(kills) => self.about_kill(kills.container, kills.reason),
        }
    }

    /// The longer part of a stop: its hook, or the program.
    fn about_slow_stop(&self, stop: &ContainerStop<'_>) -> Option<NextStep> {
        match &stop.pre_stop {
            Some(hook) if hook.took > stop.took => self.check_hook(hook),
            _ => self.about_killed(stop),
        }
    }

    fn check_hook(&self, hook: &ContainerHook<'_>) -> Option<NextStep> {
        let container = command_word(hook.container)?;
        let hook = match hook.kind {
            HookKind::PostStart => "postStart hook",
            HookKind::PreStop => "preStop hook",
            HookKind::Unknown => "hook",
        };
        Some(NextStep::CheckHook { container, hook })
    }

    /// An error of a sync that no call shows.
    pub(super) fn about_sync_error(&self, error: &SyncError) -> Option<NextStep> {
        let object = error.missing_object();
        let object = object.and_then(|(kind, name)| {
            Some(NextStep::GetObject {
                kind,
                namespace: command_word(&self.pod.namespace)?,
                name: command_word(name)?,
            })
        });
        object
            .or_else(|| {
                let container = error.container().filter(|_| error.is_about_root())?;
                Some(NextStep::RunAsOtherUser {
                    container: command_word(container)?,
                })
            })
            .or_else(|| self.describe())
    }

    /// An image that the kubelet does not pull. Its events say why.
    pub(super) fn about_missing_image(&self, image: &MissingImage) -> Option<NextStep> {
        match image.error {
            Some(_) => Some(NextStep::CorrectImageName {
                image: command_word(&image.image)?,
            }),
            None => self.describe(),
        }
    }
}
