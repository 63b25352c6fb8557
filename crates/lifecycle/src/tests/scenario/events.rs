//! Events in scenarios that are no calls of a pod.
//!
//! | step | meaning |
//! |---|---|
//! | `exit C CODE FROM..TO [MORE...]` | a container ended; more: `oom`, `unknown`, `error`, `evicted TEXT`, `event`, `oom-at TIME`, `oom-kills N`, `oom-unknown` (nobody counted), `signal N` (the wait status: 0 for its own exit code), `id ID` |
//! | `oom C TIME [kills N]` | the kernel killed a process of the container for lack of memory; N: the runtime's count |
//! | `sandbox-end TIME [exit CODE] [container] [memory\|processes]` | the first process of the sandbox ended; container: that of a sandbox container; the limit that was reached |
//! | `sync BEGIN +DURATION [fails TEXT]`, `terminating BEGIN +DURATION` | syncPod, syncTerminatingPod of the kubelet |
//! | `no-image IMAGE TIME [fails TEXT]`, `found-image IMAGE TIME` | the kubelet looked for an image and did not find it, or the lookup failed; or found it |
//! | `fact KIND [of BACKEND] FROM..[TO] [TEXT]` | a fact about the node; kinds: [`fact`] |
//! | `pressure TIME cpu\|memory\|io WAITED` | total time that tasks waited for a resource until then |
//! | `deleted TIME [ignored]` | the directory of the pod is gone, which changes something or is ignored |
//! | `kept TIME [no-more]` | the directory of the pod is still there after its stop, or gone |
//! | `expect NAME...` | the containers of the pod in the kubelet's checkpoint |
//! | `runtime NAME [of BACKEND] [driver TEXT]` | the name of the runtime behind a backend, and the cgroup driver that criscope answered in its place |
//! | `boot TIME`, `watch-since TIME` | when the node booted; since when calls are seen |

use std::sync::Arc;

use super::journal::ScenarioJournal;
use super::words::{Words, named};
use crate::episode_store::{EpisodeStore, ExitChange, ExitRecord, ReachedLimit, SandboxEnd};
use crate::journal::JournalLine;
use crate::kubelet::images::{ImageLookup, LookupResult};
use crate::kubelet::syncs::KubeletSpan;
use crate::node::{BackendState, NodeFact, NodeFactKind, PressureSample};
use crate::tests::script::{ScriptedPod, at};
use criscope_cri::subject::{ContainerIdentity, ExitReason};

/// Applies the event of a step. Returns whether its word is that of an event.
pub(super) fn apply(
    store: &mut EpisodeStore,
    journal: &mut ScenarioJournal,
    pod: &ScriptedPod,
    word: &str,
    words: &mut Words,
) -> Result<bool, String> {
    match word {
        "exit" => note_exit(store, journal, pod, words)?,
        "oom" => {
            let (name, attempt) = words.container()?;
            let container = ContainerIdentity {
                name: name.into(),
                attempt,
            };
            let time = at(words.time()?);
            let kills = words.take("kills").then(|| words.number()).transpose()?;
            journal.write(&JournalLine::oom(&pod.0, &container, time, kills));
            store.note_oom(&pod.0, &container, time, kills);
        }
        "sandbox-end" => {
            let end = sandbox_end(words)?;
            journal.write(&JournalLine::sandbox_end(&pod.0, &end));
            store.note_sandbox_end(&pod.0, end);
        }
        "sync" => {
            let (began, took) = (words.time()?, words.took()?);
            let span = match words.text_after("fails")? {
                Some(text) => pod.sync_fails(began, took, &text),
                None => pod.syncs(began, took),
            };
            note_sync(store, journal, span);
        }
        "terminating" => {
            let span = pod.terminates(words.time()?, words.took()?);
            note_sync(store, journal, span);
        }
        "no-image" | "found-image" => {
            let (image, time) = (words.word("an image")?, at(words.time()?));
            let result = match words.text_after("fails")? {
                Some(error) => LookupResult::Failed(error.into()),
                None if word == "found-image" => LookupResult::Found,
                None => LookupResult::Missing,
            };
            let lookup = ImageLookup::new(&image, time, result);
            journal.note_image_lookup(store, &lookup);
        }
        "fact" => {
            let fact = fact(words)?;
            journal.write(&JournalLine::node(&fact));
            store.note_fact(fact);
        }
        "pressure" => {
            let time = at(words.time()?);
            let resource = words.word("a resource")?;
            let waited = 1000 * words.length()?;
            let some = ["cpu", "memory", "io"].map(|name| waited * u64::from(name == resource));
            store.note_pressure(PressureSample { at: time, some });
        }
        "deleted" => {
            let is_news = store.note_deleted(&pod.0, at(words.time()?));
            if is_news == words.take("ignored") {
                return Err(format!("the store says that this is news: {is_news}"));
            }
        }
        "kept" => {
            let time = at(words.time()?);
            let is_gone = words.take("no-more");
            journal.write(&JournalLine::kept(&pod.0, time, is_gone));
            if is_gone {
                store.note_gone_after_stop(&pod.0, time);
            } else {
                store.note_found_after_stop(&pod.0, time);
            }
        }
        "expect" => {
            let names = std::iter::from_fn(|| words.next()).map(String::into_boxed_str);
            let names = Arc::from_iter(names);
            journal.write(&JournalLine::containers(&pod.0, &names));
            store.expect(&pod.0, names);
        }
        "runtime" => store.programs.set_backends(&[runtime(words)?]),
        "boot" => store.set_boot(at(words.time()?)),
        "watch-since" => store.watch_since(at(words.time()?)),
        _ => return Ok(false),
    }
    words.end()?;
    Ok(true)
}

fn note_sync(store: &mut EpisodeStore, journal: &mut ScenarioJournal, span: KubeletSpan) {
    let pod = span.pod.clone();
    for sync in store.note_sync(span) {
        journal.write(&JournalLine::sync(&pod, &sync));
    }
}

fn note_exit(
    store: &mut EpisodeStore,
    journal: &mut ScenarioJournal,
    pod: &ScriptedPod,
    words: &mut Words,
) -> Result<(), String> {
    let (name, run) = words.container()?;
    let code = words.number()?;
    let (from, to) = words.range()?;
    let to = to.ok_or("the end of the run is missing")?;
    let mut exit = pod.exit((&name, run), code, from, to);
    let mut id = format!("{}/{name}/{run}", pod.sandbox());
    while let Some(word) = words.next() {
        match &*word {
            "oom" => exit.reason = ExitReason::OomKilled,
            "unknown" => exit.reason = ExitReason::Unknown,
            "error" => exit.reason = ExitReason::Error,
            "evicted" => exit = evicted(exit, words)?,
            "event" => exit.by_event = true,
            "oom-at" => exit.oom_at = Some(at(words.time()?)),
            "oom-unknown" => exit.is_oom_uncounted = true,
            "oom-kills" => exit.oom_kills = words.number()?,
            "signal" => exit.signal = Some(words.number()?),
            "id" => id = words.word("an id")?,
            _ => return Err(format!("unknown word `{word}`")),
        }
    }
    if store.note_exit(&pod.0, Some(&id), exit.clone()) != ExitChange::Nothing {
        journal.write(&JournalLine::exit(&pod.0, Some(&id), &exit));
    }
    Ok(())
}

/// The exit of an evicted container. `evicted -` is an eviction without a reason.
fn evicted(exit: ExitRecord, words: &mut Words) -> Result<ExitRecord, String> {
    let by = words.word("a text")?;
    let exit = ExitRecord {
        reason: ExitReason::Evicted,
        ..exit
    };
    Ok(exit.evicted_by((by != "-").then(|| by.into())))
}

fn sandbox_end(words: &mut Words) -> Result<SandboxEnd, String> {
    let time = at(words.time()?);
    if words.take("exit") {
        return Ok(SandboxEnd::new(time, Some(words.number()?)));
    }
    if !words.take("container") {
        return Ok(SandboxEnd::new(time, None));
    }
    let limit = if words.take("memory") {
        Some(ReachedLimit::Memory)
    } else {
        words.take("processes").then_some(ReachedLimit::Processes)
    };
    Ok(SandboxEnd::from_container(time, limit))
}

/// A backend and its runtime.
fn runtime(words: &mut Words) -> Result<BackendState, String> {
    let runtime = words.word("a runtime")?;
    let name = words.text_after("of")?;
    Ok(BackendState {
        name: name.unwrap_or_else(|| "main".to_owned()).into(),
        runtime: Some(runtime.into()),
        answered_driver: words.text_after("driver")?.map(Into::into),
        ..BackendState::default()
    })
}

/// A fact about the node.
fn fact(words: &mut Words) -> Result<NodeFact, String> {
    const KINDS: [&str; 10] = [
        "backend-down",
        "backend-hangs",
        "network-unready",
        "image-fs-full",
        "no-kubelet",
        "kubelet-silent",
        "criscope-down",
        "criscope-bypassed",
        "criscope-stalled",
        "node-restarted",
    ];
    let kind = named(&words.word("a kind of fact")?, &KINDS, |kind| kind)?;
    let backend = words.text_after("of")?;
    let backend = backend.unwrap_or_else(|| "main".to_owned());
    let kind = match kind {
        "backend-down" => NodeFactKind::BackendDown { backend },
        "backend-hangs" => NodeFactKind::BackendHangs { backend },
        "network-unready" => NodeFactKind::NotReady {
            backend,
            condition: "NetworkReady".to_owned(),
        },
        "image-fs-full" => NodeFactKind::ImageFsFull { backend },
        "no-kubelet" => NodeFactKind::NoKubelet,
        "kubelet-silent" => NodeFactKind::KubeletSilent,
        "criscope-down" => NodeFactKind::CriscopeDown,
        "criscope-bypassed" => NodeFactKind::CriscopeBypassed,
        "criscope-stalled" => NodeFactKind::CriscopeStalled,
        _ => NodeFactKind::NodeRestarted {
            booted: at(words.time()?),
        },
    };
    let (from, to) = words.range()?;
    let reason = words.next().unwrap_or_default();
    Ok(NodeFact {
        to: to.map(at),
        ..NodeFact::new(kind, at(from), &reason)
    })
}
