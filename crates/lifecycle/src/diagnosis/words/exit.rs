//! How containers ended.

use std::time::Duration;

use super::request::{hidden_by, memory_limit, rights, seccomp, size, volume};
use super::{duration, times};
use crate::diagnosis::reasons::one_of;
use crate::diagnosis::sandbox::SandboxDeath;
use crate::episode_store::{ContainerOomKills, ExitRecord, ReachedLimit, SIGKILL_EXIT_CODE};
use crate::node::restarted;
use criscope_cri::container_request::ContainerRequest;
use criscope_cri::subject::ExitReason;
use criscope_cri::units::since;

/// A program that ended before this time has most likely not begun its work.
const EARLY_EXIT: Duration = Duration::from_secs(1);

/// The exit code of a process that a seccomp profile ended.
const SIGSYS_EXIT_CODE: i32 = 159;

/// How a container ended.
pub(super) fn ended(exit: &ExitRecord) -> String {
    let code = code(exit);
    let after = after(exit);
    if let Some(booted) = exit.node_restarted {
        return format!("ended{after}: {}", restarted(booted));
    }
    match exit.reason {
        _ if exit.is_out_of_memory() => {
            let limit = memory_limit(exit.request.as_deref());
            format!("was OOMKilled{after} (exit code {code}{limit})")
        }
        ExitReason::Evicted => {
            let code = code_in_brackets(exit);
            format!("was {}{after} ({code})", evicted(exit))
        }
        _ if exit.stop_requested => format!("was stopped{after} ({})", code_in_brackets(exit)),
        _ => format!(
            "ended with exit code {code}{after}{}{}",
            ended_by(exit),
            hint(exit)
        ),
    }
}

fn evicted(exit: &ExitRecord) -> &str {
    exit.evicted.as_deref().unwrap_or("evicted")
}

/// How long a container had run, if its runtime reports when it was started, as a suffix.
pub(super) fn after(exit: &ExitRecord) -> String {
    if exit.ran > Duration::from_micros(1) {
        format!(" after {}", duration(exit.ran))
    } else {
        String::new()
    }
}

/// The end of a container that came before something else, as a suffix.
pub(super) fn ended_before(exit: &ExitRecord, before: Duration) -> String {
    let name = &exit.container;
    let how = if exit.is_out_of_memory() {
        format!("been OOMKilled (exit code {})", code(exit))
    } else {
        format!("ended with exit code {}", code(exit))
    };
    match before.as_secs() {
        0 => format!("; {name} had {how} just before"),
        _ => format!("; {name} had {how} {} before", duration(before)),
    }
}

/// A hint at the reason of a failed exit, as a suffix. The reason of a program that ended at once is only in the container's log, which
/// is not read: shells write it there, and runc for a program of another architecture or without its dynamic linker.
pub(super) fn hint(exit: &ExitRecord) -> String {
    let hint = match exit.code {
        _ if exit.stop_requested || exit.reason == ExitReason::OomKilled => "",
        // criscope ran and counted then, so the node was up.
        _ if exit.reason == ExitReason::Unknown && !exit.is_oom_uncounted => {
            "; the runtime did not see how: its shim died"
        }
        _ if exit.reason == ExitReason::Unknown => {
            "; the runtime did not see how: its shim died, or the node went down"
        }
        _ if exit.ran >= EARLY_EXIT => "",
        126 => ": the command cannot be executed; its log has the reason",
        127 => ": the command or a library of it is missing; its log has the reason",
        // Unless the runtime did not report when it was started: then it may have run for hours.
        1..=125 if !exit.ran.is_zero() => "; its log may have the reason",
        _ => "",
    };
    let evidence = exit.request.as_deref().and_then(|request| match exit.code {
        _ if exit.stop_requested || exit.ran >= EARLY_EXIT => None,
        SIGSYS_EXIT_CODE => seccomp(request),
        1..=127 => early_exit(request, exit.code),
        _ => None,
    });
    let evidence = evidence.map_or(String::new(), |evidence| format!("; {evidence}"));
    format!("{hint}{evidence}")
}

/// What the request says that may have ended a program at once.
fn early_exit(request: &ContainerRequest, code: i32) -> Option<String> {
    // A program that ended with a code of its own was there.
    let hiding = match code {
        126 | 127 => request.hiding_volume(),
        _ => request.system_volume(),
    };
    if let Some(mount) = hiding {
        return Some(hidden_by(mount));
    }
    let mut held = request.mounts.iter().filter(|mount| mount.holds_command);
    if let Some(mount) = held.next().filter(|_| matches!(code, 126 | 127)) {
        return Some(format!("its command comes from {}", volume(mount)));
    }
    match (code, request.forbidden_port) {
        (126, _) => rights(request),
        (1..=125, Some(port)) => Some(format!(
            "only root may open its port {port}, unless the runtime lets every user"
        )),
        _ => None,
    }
}

/// An exit code, and the signal that it stands for by the convention of shells and runtimes.
pub(super) fn code(exit: &ExitRecord) -> String {
    // The sentence goes on with the signal, or the code is the program's own.
    if exit.is_out_of_memory() || is_unexplained_kill(exit) || exit.signal == Some(0) {
        exit.code.to_string()
    } else {
        exit_code(exit.code)
    }
}

/// Returns whether a container ended with the code of SIGKILL for no known reason. A program may also exit with that code.
fn is_unexplained_kill(exit: &ExitRecord) -> bool {
    (exit.code == SIGKILL_EXIT_CODE || exit.signal.is_some())
        && exit.reason == ExitReason::Error
        && !exit.stop_requested
        && exit.oom_kills == 0
}

/// An exit code within brackets: `exit code 143, SIGTERM`.
fn code_in_brackets(exit: &ExitRecord) -> String {
    let code = code(exit).replace(" (", ", ").replace(')', "");
    format!("exit code {code}")
}

fn exit_code(code: i32) -> String {
    match signal_name(code - SIGNAL_EXIT_CODES) {
        Some(signal) => format!("{code} ({signal})"),
        None => code.to_string(),
    }
}

/// Shells and runtimes add the number of the signal to this for a program that a signal ended.
const SIGNAL_EXIT_CODES: i32 = 128;

/// The name of a signal by which programs end.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// Who ended a container, as a suffix: who evicted it, or the OOM kills at the time of a failed exit without another reason.
pub(super) fn ended_by(exit: &ExitRecord) -> String {
    if exit.reason == ExitReason::Evicted {
        let by = exit.evicted.as_deref();
        return by.map(|by| format!(", {by}")).unwrap_or_default();
    }
    if exit.is_out_of_memory() {
        return String::new();
    }
    if let Some(before) = after_oom(exit) {
        return before;
    }
    if let Some(signal) = exit.signal {
        return by_wait_status(exit, signal).unwrap_or_default();
    }
    match (exit.oom_kills, exit.code) {
        (0, 137) if exit.is_oom_uncounted => uncounted_kill(exit),
        (0, 137) => ": SIGKILL from another process, or its own exit code".to_owned(),
        (1, 137) => ", while the kernel OOM-killed a process of this node".to_owned(),
        (n, 137) => format!(", while the kernel OOM-killed {n} processes of this node"),
        // The process ended by itself: that of another container was killed.
        _ => String::new(),
    }
}

/// Possible senders of SIGKILL while the kernel's OOM kills were not counted, as a suffix.
fn uncounted_kill(exit: &ExitRecord) -> String {
    let request = exit.request.as_deref();
    let limit = request.and_then(ContainerRequest::memory_limit);
    let limit = limit.map_or(String::new(), |bytes| format!(", limit {}", size(bytes)));
    let list = one_of(&[
        format!("SIGKILL from the kernel (OOM{limit})"),
        "SIGKILL from another process".to_owned(),
        "its own exit code".to_owned(),
    ]);
    format!(": {list}")
}

/// What the wait status says of the end of a program, as a suffix.
fn by_wait_status(exit: &ExitRecord, signal: i32) -> Option<String> {
    if signal == 0 {
        let alike = signal_name(exit.code - SIGNAL_EXIT_CODES)?;
        return Some(format!(
            ": its own exit code, as a shell has when {alike} ends its command"
        ));
    }
    let name = signal_name(signal)?;
    // Other signals are mostly a program's own fault.
    let is_sent = matches!(
        name,
        "SIGHUP" | "SIGINT" | "SIGQUIT" | "SIGKILL" | "SIGTERM"
    );
    Some(if is_sent {
        format!(", by {name} that no CRI call asked for")
    } else {
        format!(", by {name}")
    })
}

/// An OOM kill of another process of the container before its exit, as a suffix.
fn after_oom(exit: &ExitRecord) -> Option<String> {
    let limit = exit
        .request
        .as_deref()
        .and_then(ContainerRequest::memory_limit);
    let limit = limit.map_or(String::new(), |bytes| format!(" (limit {})", size(bytes)));
    let killed = format!("after one of its processes was OOM-killed{limit}");
    match exit.oom_at.map(|oom_at| exit.at.since(oom_at)) {
        Some(later) if later.as_secs() > 0 => Some(format!(", {} {killed}", duration(later))),
        Some(_) => Some(format!(", {killed}")),
        None => (exit.reason == ExitReason::OomKilled).then(|| format!(", {killed}")),
    }
}

/// The OOM kills in a container that runs on. `ago`: the age of the last kill, in words.
pub(super) fn oom_kills(kills: &ContainerOomKills, ago: &str) -> String {
    let name = &kills.container.name;
    let limit = memory_limit(kills.request.as_deref());
    match (kills.times, kills.last.since(kills.first)) {
        (1, _) => format!("a process of {name} was OOM-killed ({ago}{limit})"),
        (n, window) if window < EARLY_EXIT => {
            format!("{n} processes of {name} were OOM-killed ({ago}{limit})")
        }
        (n, window) => format!(
            "processes of {name} were OOM-killed {} in {} (the last {ago}{limit})",
            times(n as usize),
            duration(window)
        ),
    }
}

/// How a sandbox died whose shim ended.
pub(super) const LOST_SHIM: &str =
    "its shim ended, and everything in the sandbox with it; no call asked for that";

/// How a sandbox died.
pub(super) fn sandbox_death(death: SandboxDeath<'_>) -> String {
    if death.with_shim {
        return LOST_SHIM.to_owned();
    }
    if death.end.is_container {
        let limit = match death.end.limit {
            Some(ReachedLimit::Memory) => " after the kernel OOM-killed a process",
            Some(ReachedLimit::Processes) => " after the pod reached its limit of processes",
            None => "",
        };
        return format!("its sandbox container ended{limit}; no call asked for that");
    }
    if death.is_with_containers {
        return "all of it ended at once (exit code 137), perhaps with its shim; no call asked for that"
            .to_owned();
    }
    let Some(code) = death.end.code.map(exit_code) else {
        return "the init of its shared PID namespace ended; no call asked for that".to_owned();
    };
    let shim = match death.end.code {
        Some(SIGKILL_EXIT_CODE) if death.is_alone => ", perhaps with its shim",
        _ => "",
    };
    format!("its pause process ended with exit code {code}{shim}; no call asked for that")
}

/// An age in words: `12 s ago`.
pub(super) fn ago_of(time: Duration) -> String {
    match time.as_secs() {
        0 => "just now".to_owned(),
        _ => since(time),
    }
}
