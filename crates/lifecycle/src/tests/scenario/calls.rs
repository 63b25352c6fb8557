//! Calls in scenarios: `VERB [OBJECT] BEGIN +DURATION [MORE...]`.
//!
//! | verb | call |
//! |---|---|
//! | `run`, `stop`, `remove` | RunPodSandbox, StopPodSandbox, RemovePodSandbox |
//! | `pull IMAGE` | PullImage |
//! | `create C`, `start C`, `kill C`, `sweep C` | CreateContainer, StartContainer, StopContainer, RemoveContainer |
//! | `probe C`, `hook C` | ExecSync with a timeout of a second, or without one |
//! | any method, such as `ContainerStatus C` | this method |
//!
//! | more | meaning |
//! |---|---|
//! | `fails CODE TEXT` | ended with an error of the runtime |
//! | `gives-up TEXT` | the runtime answered with DEADLINE_EXCEEDED |
//! | `late`, `cancelled` | ended by the caller's deadline, or by the caller |
//! | `lost` | criscope went down at its end |
//! | `in-flight` | has not ended; the same call may end later |
//! | `deadline TIME` | the deadline of the caller |
//! | `exits CODE` | exit code of the command (ExecSync) |
//! | `grace TIME` | grace period of the pod (CreateContainer) or of the stop (StopContainer) |
//! | `by PROGRAM` | the caller: `crictl`, `other` or the name of a program |
//! | `handler NAME` | the runtime handler (RunPodSandbox) |
//! | `image NAME` | the image (CreateContainer) |
//! | `memory MIB`, `cpu MILLIS`, `mount KIND PATH [command] [read-only] [noexec]`, `user N`, `seccomp KIND`, `read-only-root`, `drops-all`, `port N`, `pre-stop KIND` | what the request says of the container (CreateContainer); memory and cpu also of UpdateContainerResources |
//! | `cpu-limit MILLIS` | the CPU limits of the pod's containers together (RunPodSandbox) |
//! | `seen-before TIME` | how long before it the kubelet saw its pod (RunPodSandbox) |
//! | `KIND NAME [doing TEXT] FROM..TO [depth N]` | a process or span at work, KIND as in `WorkKind`, times from the begin |
//! | `step KIND NAME [doing TEXT] FROM..TO` | a step of the built-in runtime |
//! | `fault KIND TIME` | an injected fault that held the call for so long |
//! | `joined TIME` | waited for an earlier call, given up at this deadline |
//! | `scanned` | processes were scanned during the call |
//! | `size BYTES` | the size of the request |

use std::sync::Arc;
use std::time::Duration;

use super::requests;
use super::words::{self, Words, named};
use crate::episode_call::EpisodeCall;
use crate::process_scanner::WorkKind;
use crate::tests::script::{self, ScriptedPod};
use criscope_cri::Method;
use criscope_cri::call::{CallFacts, Client, Ending, FaultKind, InjectedFault, JoinedCall, Peer};
use criscope_cri::status::{Code, code_name};

/// The calls of these steps, for tests in Rust: `pod NAME`, `sandbox N`, `up ...` and calls. Panics for other steps.
pub(crate) fn read_calls(steps: &str) -> Vec<EpisodeCall> {
    let (mut pod, mut calls) = (script::pod("web"), Vec::new());
    for step in words::split_steps(steps) {
        let read = read_step(&mut pod, step, &mut calls);
        read.unwrap_or_else(|error| panic!("`{step}`: {error}"));
    }
    calls
}

fn read_step(
    pod: &mut ScriptedPod,
    step: &str,
    calls: &mut Vec<EpisodeCall>,
) -> Result<(), String> {
    let mut words = Words::new(step, 0)?;
    let verb = words.word("a step")?;
    if let Some(next) = read_pod(pod, &verb, &mut words)? {
        *pod = next;
    } else if verb == "up" {
        calls.extend(read_up(pod, &mut words)?);
    } else {
        let call = read(pod, &verb, &mut words)?;
        calls.push(call.ok_or_else(|| format!("unknown step `{verb}`"))?);
    }
    Ok(())
}

/// The pod that `pod NAME`, `pod NAME/UID` or `sandbox N` means; `None` if the verb is that of another step.
pub(crate) fn read_pod(
    pod: &ScriptedPod,
    verb: &str,
    words: &mut Words,
) -> Result<Option<ScriptedPod>, String> {
    let next = match verb {
        "pod" => {
            let name = words.word("a name")?;
            match name.split_once('/') {
                Some((name, uid)) => script::pod(name).with_uid(uid),
                None => script::pod(&name),
            }
        }
        "sandbox" => pod.attempt(words.number()?),
        _ => return Ok(None),
    };
    words.end()?;
    Ok(Some(next))
}

/// The short verbs and their methods.
const VERBS: [(&str, Method); 10] = [
    ("run", Method::RunPodSandbox),
    ("stop", Method::StopPodSandbox),
    ("remove", Method::RemovePodSandbox),
    ("pull", Method::PullImage),
    ("create", Method::CreateContainer),
    ("start", Method::StartContainer),
    ("kill", Method::StopContainer),
    ("sweep", Method::RemoveContainer),
    ("probe", Method::ExecSync),
    ("hook", Method::ExecSync),
];

/// The call of a step; `None` if its verb is that of another step.
pub(crate) fn read(
    pod: &ScriptedPod,
    verb: &str,
    words: &mut Words,
) -> Result<Option<EpisodeCall>, String> {
    let methods = Method::ALL
        .into_iter()
        .map(|method| (method.name(), method));
    let mut verbs = VERBS.into_iter().chain(methods);
    let Some((_, method)) = verbs.find(|(word, _)| *word == verb) else {
        return Ok(None);
    };
    let mut call = match method {
        Method::RunPodSandbox => pod.run(words.time()?, words.took()?),
        Method::PullImage | Method::ImageStatus | Method::RemoveImage => {
            let image = words.word("an image")?;
            let mut call = pod.pull(&image, words.time()?, words.took()?);
            call.record_mut().method = method;
            call
        }
        Method::RestorePod => {
            let mut call = pod.run(words.time()?, words.took()?);
            call.record_mut().method = method;
            call
        }
        _ if method.name().contains("Container")
            || matches!(method, Method::ExecSync | Method::Exec) =>
        {
            let (name, run) = words.container()?;
            let (container, began, took) = ((&*name, run), words.time()?, words.took()?);
            match verb {
                "probe" => pod.probe(container, began, took),
                "hook" => pod.hook(container, began, took),
                _ => pod.container_call(method, container, began, took),
            }
        }
        _ => pod.call(method, words.time()?, words.took()?),
    };
    while let Some(word) = words.next() {
        call = add(call, &word, words)?;
    }
    Ok(Some(call))
}

/// CreateContainer and StartContainer of `up C BEGIN [+CREATE +START] [MORE...]`; more is said by the request.
pub(crate) fn read_up(pod: &ScriptedPod, words: &mut Words) -> Result<[EpisodeCall; 2], String> {
    let (name, run) = words.container()?;
    let began = words.time()?;
    let create = words.took_or(100)?;
    let start = words.took_or(create)?;
    let mut created = pod.create((&name, run), began, create);
    while let Some(word) = words.next() {
        created = add(created, &word, words)?;
    }
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
            call.record_mut().outcome_mut().ending = Ending::Deadline;
            call
        }
        "handler" => {
            call.record_mut().handler = Some(words.word("a handler")?.into());
            call
        }
        "late" => call.late(),
        "cancelled" => call.cancelled(),
        "lost" => {
            let at = call.ended_at();
            call.lost_at(at)
        }
        "in-flight" => call.under_way(),
        "deadline" => call.with_deadline(words.length()?),
        "exits" => call.exits(words.number()?),
        "grace" if call.method == Method::CreateContainer => call.pod_grace(seconds(words)?),
        "memory" | "cpu" if call.method == Method::UpdateContainerResources => {
            let mut limits = call.facts.new_limits().unwrap_or_default();
            match word {
                "memory" => limits.memory = words.number::<u64>()? << 20,
                _ => limits.cpu_millis = words.number()?,
            }
            call.record_mut().facts = CallFacts::Limits {
                cpu_millis: limits.cpu_millis,
                memory: limits.memory,
            };
            call
        }
        _ if call.method == Method::CreateContainer && requests::is_word(word) => {
            let mut request = Err(String::new());
            let call = call.requests(|known| request = requests::add(known, word, words));
            request?;
            call
        }
        "grace" => call.grace(seconds(words)?),
        "by" => {
            call.record_mut().peer = Arc::new(peer(&words.word("a program")?));
            call
        }
        "image" => {
            call.record_mut().image = Some(words.word("an image")?.into());
            call
        }
        "seen-before" => {
            let before = words.length()?;
            call.seen_before(u32::try_from(before).map_err(|error| error.to_string())?)
        }
        "cpu-limit" => call.pod_cpu_limit(words.number()?),
        "step" => {
            let work = work_kind(&words.word("a kind of work")?)?;
            let name = words.word("a name")?;
            let activity = words.text_after("doing")?.unwrap_or_default();
            let (from, to) = closed(words)?;
            call.step(work, &name, &activity, from, to)
        }
        "fault" => injected(&call, words)?,
        "joined" => {
            let deadline = Duration::from_millis(words.length()?);
            call.record_mut().joined = Some(JoinedCall::new(deadline));
            call
        }
        "scanned" => call.scanned(true),
        "size" => {
            call.record_mut().request_bytes = words.number()?;
            call
        }
        kind => observed(call, kind, words)?,
    })
}

/// The call as one that another program saw at work.
fn observed(call: EpisodeCall, kind: &str, words: &mut Words) -> Result<EpisodeCall, String> {
    let work = work_kind(kind).map_err(|_| format!("unknown word `{kind}`"))?;
    let name = words.word("a name")?;
    let activity = words.text_after("doing")?.unwrap_or_default();
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

/// The caller with this name: `kubelet`, `crictl`, `other`, or another program, which keeps its name.
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
