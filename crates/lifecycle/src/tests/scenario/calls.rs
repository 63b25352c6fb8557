//! Calls in scenarios: `VERB [OBJECT] BEGIN +DURATION [MORE...]`.
//!
//! | verb | call |
//! |---|---|
//! | `run`, `stop`, `remove` | RunPodSandbox, StopPodSandbox, RemovePodSandbox |
//! | `pull IMAGE` | PullImage |
//! | `create C`, `start C`, `kill C`, `sweep C` | CreateContainer, StartContainer, StopContainer, RemoveContainer |
//! | `probe C`, `hook C` | ExecSync with a timeout of a second, or without one |
//!
//! | more | meaning |
//! |---|---|
//! | `fails CODE TEXT` | ended with an error of the runtime |
//! | `gives-up TEXT` | the runtime answered with DEADLINE_EXCEEDED |
//! | `late`, `cancelled` | ended by the caller's deadline, or by the caller |
//! | `in-flight` | has not ended; the same call may end later |
//! | `deadline TIME` | the deadline of the caller |
//! | `exits CODE` | exit code of the command (ExecSync) |
//! | `grace TIME` | grace period of the pod (CreateContainer) or of the stop (StopContainer) |
//! | `by PROGRAM` | the caller: `crictl`, `other` or the name of a program |
//! | `seen-before TIME` | how long before it the kubelet saw its pod (RunPodSandbox) |
//! | `KIND NAME [doing TEXT] FROM..TO [depth N]` | a process or span at work, KIND as in `WorkKind`, times from the begin |
//! | `step KIND NAME FROM..TO` | a step of the built-in runtime |
//! | `fault KIND TIME` | an injected fault that held the call for so long |
//! | `scanned` | processes were scanned during the call |
//! | `size BYTES` | the size of the request |

use std::sync::Arc;
use std::time::Duration;

use super::words::{Words, named};
use crate::episode_call::EpisodeCall;
use crate::process_scanner::WorkKind;
use crate::tests::script::ScriptedPod;
use criscope_cri::Method;
use criscope_cri::call::{Client, Ending, FaultKind, InjectedFault, Peer};
use criscope_cri::status::{Code, code_name};

/// The call of a step; `None` if its verb is that of another step.
pub(crate) fn read(
    pod: &ScriptedPod,
    verb: &str,
    words: &mut Words,
) -> Result<Option<EpisodeCall>, String> {
    let mut call = match verb {
        "run" => pod.run(words.time()?, words.took()?),
        "stop" => pod.stop(words.time()?, words.took()?),
        "remove" => pod.remove(words.time()?, words.took()?),
        "pull" => {
            let image = words.word("an image")?;
            pod.pull(&image, words.time()?, words.took()?)
        }
        "create" | "start" | "kill" | "sweep" | "probe" | "hook" => {
            let (name, run) = words.container()?;
            let (container, began, took) = ((&*name, run), words.time()?, words.took()?);
            match verb {
                "create" => pod.create(container, began, took),
                "start" => pod.start(container, began, took),
                "kill" => pod.kill(container, began, took),
                "sweep" => pod.sweep(container, began, took),
                "probe" => pod.probe(container, began, took),
                _ => pod.hook(container, began, took),
            }
        }
        _ => return Ok(None),
    };
    while let Some(word) = words.next() {
        call = add(call, &word, words)?;
    }
    Ok(Some(call))
}

/// CreateContainer and StartContainer of `up C BEGIN [+CREATE +START] [grace TIME]`.
pub(crate) fn read_up(pod: &ScriptedPod, words: &mut Words) -> Result<[EpisodeCall; 2], String> {
    let (name, run) = words.container()?;
    let began = words.time()?;
    let create = words.took_or(100)?;
    let start = words.took_or(create)?;
    let mut created = pod.create((&name, run), began, create);
    if words.take("grace") {
        created = created.pod_grace(seconds(words)?);
    }
    words.end()?;
    Ok([created, pod.start((&name, run), began + create, start)])
}

fn add(mut call: EpisodeCall, word: &str, words: &mut Words) -> Result<EpisodeCall, String> {
    Ok(match word {
        "fails" => {
            let code = code(&words.word("a code")?)?;
            call.fails(code, &words.word("a text")?)
        }
        "gives-up" => {
            let mut call = call.fails(Code::DeadlineExceeded, &words.word("a text")?);
            call.outcome_mut().ending = Ending::Deadline;
            call
        }
        "late" => call.late(),
        "cancelled" => call.cancelled(),
        "in-flight" => call.under_way(),
        "deadline" => call.with_deadline(words.length()?),
        "exits" => call.exits(words.number()?),
        "grace" if call.method == Method::CreateContainer => call.pod_grace(seconds(words)?),
        "grace" => call.grace(seconds(words)?),
        "by" => {
            call.peer = Arc::new(peer(&words.word("a program")?));
            call
        }
        "seen-before" => {
            let before = words.length()?;
            call.seen_before(u32::try_from(before).map_err(|error| error.to_string())?)
        }
        "step" => {
            let work = work_kind(&words.word("a kind of work")?)?;
            let name = words.word("a name")?;
            let (from, to) = closed(words)?;
            call.step(work, &name, from, to)
        }
        "fault" => injected(&call, words)?,
        "scanned" => call.scanned(true),
        "size" => {
            call.request_bytes = words.number()?;
            call
        }
        kind => observed(call, kind, words)?,
    })
}

/// The call as one that another program saw at work.
fn observed(call: EpisodeCall, kind: &str, words: &mut Words) -> Result<EpisodeCall, String> {
    let work = work_kind(kind).map_err(|_| format!("unknown word `{kind}`"))?;
    let name = words.word("a name")?;
    let activity = match words.take("doing") {
        true => words.word("a text")?,
        false => String::new(),
    };
    let (from, to) = closed(words)?;
    let mut call = call.seen(work, &name, &activity, from, to);
    if words.take("depth")
        && let Some(last) = call.work.last_mut()
    {
        last.depth = words.number()?;
    }
    Ok(call)
}

fn injected(call: &EpisodeCall, words: &mut Words) -> Result<EpisodeCall, String> {
    let kind = named(&words.word("a kind")?, &FaultKind::ALL, FaultKind::name)?;
    let held = Duration::from_millis(words.length()?);
    let mut record = (**call).clone();
    record.fault = Some(InjectedFault::new(kind, held));
    Ok(EpisodeCall::new(Arc::new(record), Vec::new(), None))
}

/// The caller with this name. A program that is no kind of caller is told by its own name.
fn peer(program: &str) -> Peer {
    let is_kind = Client::ALL.iter().any(|client| client.name() == program);
    Peer {
        client: Client::from_comm(program),
        pid: None,
        comm: (!is_kind).then(|| program.into()),
    }
}

/// A code of gRPC by its name, such as `NOT_FOUND`.
pub(crate) fn code(word: &str) -> Result<Code, String> {
    let mut codes = (0..=16).map(Code::from_i32);
    let found = codes.find(|code| code_name(*code) == word);
    found.ok_or_else(|| format!("`{word}`: no code of gRPC"))
}

fn work_kind(word: &str) -> Result<WorkKind, String> {
    named(word, &WorkKind::ALL, WorkKind::name)
}

fn closed(words: &mut Words) -> Result<(u64, u64), String> {
    let (from, to) = words.offsets()?;
    Ok((from, to.ok_or("the end of the work is missing")?))
}

fn seconds(words: &mut Words) -> Result<u32, String> {
    let seconds = words.length()? / 1000;
    u32::try_from(seconds).map_err(|error| error.to_string())
}
