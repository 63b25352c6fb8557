//! The names that steps are filled in with.

use super::NextStep;
use crate::diagnosis::failure::error_message;
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::node::NodePrograms;
use criscope_cri::subject::PodIdentity;

/// The pod of a diagnosis, and its node.
pub(crate) struct StepContext<'a> {
    pub(crate) pod: &'a PodIdentity,
    /// All episodes of the pod.
    pub(crate) episodes: &'a [&'a Episode],
    pub(crate) programs: &'a NodePrograms,
    /// True if the pod was stopped, so that its containers and their output are gone.
    pub(crate) is_gone: bool,
}

/// Namespace and name of a pod, as words of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodPath {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl StepContext<'_> {
    /// The pod as words of a command.
    pub(super) fn path(&self) -> Option<PodPath> {
        PodPath::from_pod(self.pod)
    }

    /// `NAMESPACE/POD/CONTAINER`, as `criscope exec` takes it.
    pub(super) fn container_path(&self, container: &str) -> Option<String> {
        let PodIdentity {
            namespace, name, ..
        } = self.pod;
        command_word(&format!("{namespace}/{name}/{container}"))
    }

    pub(super) fn describe(&self) -> Option<NextStep> {
        self.path().map(NextStep::DescribePod)
    }

    /// The output of the last run of a container, or of the run before the current one.
    pub(super) fn logs(&self, container: &str, previous: bool) -> Option<NextStep> {
        Some(NextStep::ReadLogs {
            pod: self.path()?,
            container: command_word(container)?,
            previous,
        })
    }

    /// Returns whether a container was started after its run of this attempt.
    pub(super) fn runs_again(&self, container: &str, attempt: u32) -> bool {
        let mut calls = self.episodes.iter().flat_map(|episode| &episode.calls);
        calls.any(|call| {
            let run = call.container.as_deref();
            call.has_started_container(container) && run.is_some_and(|run| run.attempt > attempt)
        })
    }

    /// The newest image of a container. An id says nothing to people.
    pub(super) fn image(&self, container: &str) -> Option<String> {
        let calls = self.episodes.iter().flat_map(|episode| &episode.calls);
        let own = calls.filter(|call| call.container_name() == Some(container));
        let images = own.filter_map(|call| Some((call.began, call.image.as_deref()?)));
        let (_, image) = images.max_by_key(|(began, _)| *began)?;
        command_word(image).filter(|image| !image.starts_with("sha256:"))
    }

    /// The unit of the runtime that a call was sent to.
    pub(super) fn runtime_unit(&self, call: &EpisodeCall) -> String {
        self.programs.runtime_unit(backend(call)).to_owned()
    }

    /// The name of the runtime that a call was sent to.
    pub(super) fn runtime(&self, call: &EpisodeCall) -> String {
        match self.programs.runtime(backend(call)) {
            "runtime" => "the runtime".to_owned(),
            name => name.to_owned(),
        }
    }

    /// The log of the runtime that a call was sent to.
    pub(super) fn runtime_log(&self, call: &EpisodeCall) -> NextStep {
        NextStep::ReadRuntimeLog {
            unit: self.runtime_unit(call),
        }
    }
}

impl PodPath {
    /// The path of a pod; `None` if no command can name it.
    pub(crate) fn from_pod(pod: &PodIdentity) -> Option<Self> {
        Some(Self {
            namespace: command_word(&pod.namespace)?,
            name: command_word(&pod.name)?,
        })
    }
}

/// The backend of a call.
pub(super) fn backend(call: &EpisodeCall) -> Option<&str> {
    call.route.as_ref().map(|route| &*route.backend)
}

/// Returns whether the error text of a call has these words, in any case.
pub(super) fn says(call: &EpisodeCall, words: &str) -> bool {
    error_message(call).to_ascii_lowercase().contains(words)
}

/// A name as a word of a shell command, in quotes if it needs them; `None` if it would be taken for an option or ends the command. Names
/// of Kubernetes need no quotes, but callers other than the kubelet may use any.
pub(crate) fn command_word(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with('-') || name.contains(breaks_command) {
        return None;
    }
    if name.chars().all(is_plain) {
        return Some(name.to_owned());
    }
    Some(format!("'{}'", name.replace('\'', "'\\''")))
}

/// Returns whether a character would end a command, in a shell or where pages show it.
fn breaks_command(c: char) -> bool {
    c.is_control() || c == '`'
}

/// Returns whether a shell takes a character as it is.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_./:@+".contains(c)
}
