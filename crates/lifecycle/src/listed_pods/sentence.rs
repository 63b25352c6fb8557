//! The sentence on a listed pod, its state and its next step.

use std::fmt::Write as _;

use super::{ListedExit, ListedPod, ListedRun};
use crate::diagnosis::{NextStep, PodPath, command_word};
use crate::episode_store::EpisodeStore;
use crate::view::PodState;
use criscope_cri::lists::ListedState;
use criscope_cri::subject::ExitReason;
use criscope_cri::units::spoken;
use criscope_cri::units::times::UnixMicros;

/// Why criscope has no calls of a listed pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnseenStart {
    /// The sandbox is older than everything that criscope has seen.
    BeforeCriscope,
    /// The sandbox was made while criscope was down.
    WhileDown,
    /// Its episodes may have been evicted.
    Forgotten,
    /// The calls took another way, such as the runtime's own socket.
    PassedBy,
}

impl UnseenStart {
    fn of_pod(pod: &ListedPod, store: &EpisodeStore) -> Self {
        if pod.created < store.watched_since() {
            return Self::BeforeCriscope;
        }
        let facts = store.node_since(pod.created);
        let mut downtimes = facts.iter().filter(|fact| fact.is_downtime());
        if downtimes.any(|fact| fact.from <= pod.created) {
            Self::WhileDown
        } else if store.forgotten() > 0 {
            Self::Forgotten
        } else {
            Self::PassedBy
        }
    }

    /// The clause on a pod.
    const fn spoken(self) -> &'static str {
        match self {
            Self::BeforeCriscope => "the pod was up before criscope came (its start was not seen)",
            Self::WhileDown => "the pod came up while criscope was down (its start was not seen)",
            Self::Forgotten => "the start of the pod is not in memory any more (story.episodes)",
            Self::PassedBy => "the pod was started without criscope (its start was not seen)",
        }
    }
}

/// What is said of a listed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedVerdict {
    pub(crate) headline: String,
    pub(crate) state: PodState,
    /// Begin of that state.
    pub(crate) since: UnixMicros,
    pub(crate) next: Option<String>,
}

impl ListedVerdict {
    /// The verdict on a pod of this store.
    pub(crate) fn new(pod: &ListedPod, store: &EpisodeStore, now: UnixMicros) -> Self {
        let unseen = UnseenStart::of_pod(pod, store).spoken();
        if !pod.is_ready {
            return stopped(pod, unseen, now);
        }
        let failed = pod.containers.iter().filter(|run| run.has_failed());
        // A container that is down is worse than one that ended later and is up again.
        if let Some(run) = failed.max_by_key(|run| run.exit.as_ref().map(|exit| exit.at)) {
            return down(pod, run, unseen, now);
        }
        let mut runs = pod.containers.iter();
        if runs.any(|run| run.state == ListedState::Running) {
            return running(pod, unseen, now);
        }
        let mut runs = pod.containers.iter();
        match runs.find(|run| run.state == ListedState::Created) {
            Some(run) => not_started(pod, run, unseen, now),
            None if pod.containers.is_empty() => without_container(pod, unseen, now),
            None => completed(pod, unseen, now),
        }
    }
}

fn running(pod: &ListedPod, unseen: &str, now: UnixMicros) -> ListedVerdict {
    let time = spoken(now.since(pod.created));
    let mut headline = format!("{unseen}; running for {time}");
    let restarted = pod
        .containers
        .iter()
        .filter(|run| run.container.attempt > 0);
    // The one that restarted last is the one that matters.
    if let Some(run) = restarted.max_by_key(|run| run.created) {
        let name = &run.container.name;
        let last = spoken(now.since(run.created));
        let times = match run.container.attempt {
            1 => "once".to_owned(),
            n => format!("{n} times"),
        };
        _ = write!(headline, ", {name} restarted {times}, last {last} ago");
    }
    ListedVerdict {
        headline,
        state: PodState::Ok,
        since: pod.created,
        next: None,
    }
}

fn down(pod: &ListedPod, run: &ListedRun, unseen: &str, now: UnixMicros) -> ListedVerdict {
    let name = &run.container.name;
    let ended = run.exit.as_ref().map(|exit| exit.at);
    let how = run.exit.as_ref().map_or_else(
        || "is in a state that the runtime does not know".to_owned(),
        |exit| {
            let since = spoken(now.since(exit.at));
            format!("has been down for {since}: {}", exit_words(exit))
        },
    );
    let restarts = match run.container.attempt {
        0 => String::new(),
        1 => " after 1 restart".to_owned(),
        n => format!(" after {n} restarts"),
    };
    ListedVerdict {
        headline: format!("{name} {how}{restarts}; {unseen}"),
        state: PodState::Failed,
        since: ended.unwrap_or(pod.created),
        next: logs(pod, name),
    }
}

fn not_started(pod: &ListedPod, run: &ListedRun, unseen: &str, now: UnixMicros) -> ListedVerdict {
    let time = spoken(now.since(run.created));
    let name = &run.container.name;
    ListedVerdict {
        headline: format!("{name} was created {time} ago and was not started; {unseen}"),
        state: PodState::Starting,
        since: run.created,
        next: describe(pod),
    }
}

fn without_container(pod: &ListedPod, unseen: &str, now: UnixMicros) -> ListedVerdict {
    let time = spoken(now.since(pod.created));
    ListedVerdict {
        headline: format!("the sandbox has been up for {time} without a container; {unseen}"),
        state: PodState::Starting,
        since: pod.created,
        next: describe(pod),
    }
}

fn completed(pod: &ListedPod, unseen: &str, now: UnixMicros) -> ListedVerdict {
    let exits = pod.containers.iter().filter_map(|run| run.exit.as_ref());
    let Some(last) = exits.max_by_key(|exit| exit.at) else {
        return ListedVerdict {
            headline: format!("every container has ended; {unseen}"),
            state: PodState::Completed,
            since: pod.created,
            next: None,
        };
    };
    let time = spoken(now.since(last.at));
    ListedVerdict {
        headline: format!("completed {time} ago with exit code 0; {unseen}"),
        state: PodState::Completed,
        since: last.at,
        next: None,
    }
}

fn stopped(pod: &ListedPod, unseen: &str, now: UnixMicros) -> ListedVerdict {
    let exits = { pod.containers.iter() }.filter_map(|run| Some((run, run.exit.as_ref()?)));
    let last = exits.max_by_key(|(_, exit)| (exit.code != 0, exit.at));
    let ended = pod.ended.or(last.map(|(_, exit)| exit.at));
    let when = ended.map(|at| format!(" for {}", spoken(now.since(at))));
    let how =
        last.map(|(run, exit)| format!(": {} ended, {}", run.container.name, exit_words(exit)));
    ListedVerdict {
        headline: format!(
            "the pod has been stopped{}{}; {unseen}",
            when.unwrap_or_default(),
            how.unwrap_or_default()
        ),
        state: PodState::Gone,
        since: ended.unwrap_or(pod.created),
        next: None,
    }
}

fn describe(pod: &ListedPod) -> Option<String> {
    let path = PodPath::from_pod(&pod.pod)?;
    Some(NextStep::DescribePod(path).to_string())
}

fn logs(pod: &ListedPod, container: &str) -> Option<String> {
    let step = NextStep::ReadLogs {
        pod: PodPath::from_pod(&pod.pod)?,
        container: command_word(container)?,
        previous: false,
    };
    Some(step.to_string())
}

fn exit_words(exit: &ListedExit) -> String {
    match exit.reason {
        ExitReason::OomKilled => format!("OOMKilled (exit code {})", exit.code),
        ExitReason::Evicted => format!("evicted (exit code {})", exit.code),
        ExitReason::Completed | ExitReason::Error | ExitReason::Unknown | ExitReason::Other => {
            format!("exit code {}", exit.code)
        }
    }
}
