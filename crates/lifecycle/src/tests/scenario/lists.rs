//! Lists of the runtime in scenarios.
//!
//! `listed TIME [stopped] [C STATE...]`: the runtime lists the pod, whose sandbox was made at this time, and nothing else. The states of
//! its containers: `created TIME`, `running TIME`, `unknown TIME`, `exited CODE FROM..TO [oom]`, `exited ? FROM..` without a status.
//! `listed nothing`: the runtime lists no pod.

use std::sync::Arc;

use super::words::Words;
use crate::episode_store::EpisodeStore;
use crate::tests::script::{ScriptedPod, at};
use criscope_cri::lists::{ListedContainer, ListedSandbox, ListedState, RuntimeLists};
use criscope_cri::subject::{ContainerExit, ContainerIdentity, ContainerState, ExitReason};
use criscope_cri::units::times::UnixMicros;

/// Applies the lists of a step, and the status of the containers for which the store asks.
pub(super) fn apply(
    store: &mut EpisodeStore,
    pod: &ScriptedPod,
    words: &mut Words,
) -> Result<(), String> {
    // Each pod has a runtime of its own, so that a list replaces only this one.
    let backend = pod.0.uid.as_ref().into();
    let mut lists = RuntimeLists::default();
    if words.take("nothing") {
        store.set_listed(&backend, lists);
        return Ok(());
    }
    let created = at(words.time()?);
    lists.sandboxes.push(ListedSandbox {
        id: pod.sandbox(),
        pod: Arc::clone(&pod.0),
        is_ready: !words.take("stopped"),
        created,
    });
    let mut exits = Vec::new();
    while !words.is_empty() {
        let (container, exit) = read_container(pod, words)?;
        exits.extend(exit.map(|exit| (Arc::clone(&container.id), exit)));
        lists.containers.push(container);
    }
    let wanted = store.set_listed(&backend, lists);
    for (id, state) in exits {
        if wanted.contains(&id) {
            store.note_listed_status(&id, state);
        }
    }
    Ok(())
}

fn read_container(
    pod: &ScriptedPod,
    words: &mut Words,
) -> Result<(ListedContainer, Option<ContainerState>), String> {
    let (name, attempt) = words.container()?;
    let id = format!("{}/{name}/{attempt}", pod.sandbox());
    let container = ContainerIdentity {
        name: name.into(),
        attempt,
    };
    let mut listed = ListedContainer {
        id: id.into(),
        sandbox_id: pod.sandbox(),
        container: container.into(),
        state: ListedState::Exited,
        created: UnixMicros::EPOCH,
    };
    let state = words.word("a state")?;
    listed.state = match &*state {
        "created" => ListedState::Created,
        "running" => ListedState::Running,
        "unknown" => ListedState::Unknown,
        "exited" => {
            let code = words.word("an exit code")?;
            let (from, to) = words.range()?;
            listed.created = at(from);
            let exit = to.map(|to| exit(&code, to, words)).transpose()?;
            let state = exit.map(|exit| ContainerState {
                started_at: nanos(from),
                exit: Some(exit),
            });
            return Ok((listed, state));
        }
        state => return Err(format!("`{state}`: no state of a container")),
    };
    listed.created = at(words.time()?);
    Ok((listed, None))
}

fn exit(code: &str, to: u64, words: &mut Words) -> Result<ContainerExit, String> {
    let code = code.parse().map_err(|_| format!("`{code}`: no code"))?;
    let reason = match code {
        _ if words.take("oom") => ExitReason::OomKilled,
        0 => ExitReason::Completed,
        _ => ExitReason::Error,
    };
    Ok(ContainerExit {
        at: nanos(to),
        code,
        reason,
    })
}

fn nanos(ms: u64) -> i64 {
    at(ms).as_micros().cast_signed() * 1000
}
