//! How containers ended.

use std::time::Duration;

use super::duration;
use crate::diagnosis::sandbox::SandboxDeath;
use crate::episode_store::{ContainerOomKills, ExitRecord, ReachedLimit};
use crate::node::restarted;
use criscope_cri::call::Peer;
use criscope_cri::subject::ExitReason;
use criscope_cri::units::since;

/// A program that ended before this time has most likely not begun its work.
const EARLY_EXIT: Duration = Duration::from_secs(1);

/// How a container ended.
pub(super) fn ended(exit: &ExitRecord) -> String {
    let code = code(exit);
    let after = after(exit);
    if let Some(booted) = exit.node_restarted {
        return format!("ended{after}: {}", restarted(booted));
    }
    match exit.reason {
        _ if exit.is_out_of_memory() => {
            format!("was killed for lack of memory{after} (exit code {code})")
        }
        ExitReason::Evicted => format!("was {}{after} (exit code {code})", evicted(exit)),
        _ if exit.stop_requested => format!("was stopped{after} (exit code {code})"),
        _ => format!(
            "ended with exit code {code}{after}{}{}",
            ended_by(exit),
            hint(exit)
        ),
    }
}

/// How a container ended that this caller stopped.
pub(super) fn stopped_by(exit: &ExitRecord, peer: &Peer) -> String {
    let (by, after, code) = (peer.in_words(), after(exit), code(exit));
    format!("was stopped by {by}{after}, exit code {code}")
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

/// A hint at the reason of a failed exit, as a suffix. The reason of a program that ended at once is only in the container's log, which
/// is not read: shells write it there, and runc for a program of another architecture or without its dynamic linker.
pub(super) fn hint(exit: &ExitRecord) -> &'static str {
    match exit.code {
        _ if exit.stop_requested || exit.reason == ExitReason::OomKilled => "",
        _ if exit.reason == ExitReason::Unknown => {
            ": the runtime did not see how, as when its shim dies or the node goes down"
        }
        _ if exit.ran >= EARLY_EXIT => "",
        126 => ", as when its command cannot be executed: its log has the reason",
        127 => ", as when its command or a library of it is missing: its log has the reason",
        // Unless the runtime did not report when it was started: then it may have run for hours.
        1..=125 if !exit.ran.is_zero() => "; its log may have the reason",
        _ => "",
    }
}

/// An exit code, and the signal that it stands for by the convention of shells and runtimes.
pub(super) fn code(exit: &ExitRecord) -> String {
    if exit.is_out_of_memory() {
        exit.code.to_string()
    } else {
        exit_code(exit.code)
    }
}

fn exit_code(code: i32) -> String {
    let signal = match code {
        130 => "SIGINT",
        131 => "SIGQUIT",
        132 => "SIGILL",
        133 => "SIGTRAP",
        134 => "SIGABRT",
        135 => "SIGBUS",
        136 => "SIGFPE",
        137 => "SIGKILL",
        139 => "SIGSEGV",
        141 => "SIGPIPE",
        143 => "SIGTERM",
        159 => "SIGSYS",
        _ => return code.to_string(),
    };
    format!("{code} ({signal})")
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
    match (exit.oom_kills, exit.code) {
        (0, 137) => ", sent by an unknown process".to_owned(),
        (1, 137) => ", when the kernel killed a process of this node for lack of memory".to_owned(),
        (n, 137) => {
            format!(", when the kernel killed {n} processes of this node for lack of memory")
        }
        // The process ended by itself: that of another container was killed.
        _ => String::new(),
    }
}

/// An OOM kill of another process of the container before its exit, as a suffix.
fn after_oom(exit: &ExitRecord) -> Option<String> {
    let killed = "after the kernel killed a process of it for lack of memory";
    match exit.oom_at.map(|oom_at| exit.at.since(oom_at)) {
        Some(later) if later.as_secs() > 0 => Some(format!(", {} {killed}", duration(later))),
        Some(_) => Some(format!(", {killed}")),
        None => (exit.reason == ExitReason::OomKilled).then(|| format!(", {killed}")),
    }
}

/// The OOM kills in a container that runs on. `ago`: the age of the last kill, in words.
pub(super) fn oom_kills(kills: &ContainerOomKills, ago: &str) -> String {
    let name = &kills.container.name;
    match (kills.times, kills.last.since(kills.first)) {
        (1, _) => {
            format!("the kernel killed a process of container {name} for lack of memory ({ago})")
        }
        (n, window) if window < EARLY_EXIT => {
            format!(
                "the kernel killed {n} processes of container {name} for lack of memory ({ago})"
            )
        }
        (n, window) => format!(
            "the kernel killed a process of container {name} for lack of memory {n} times in {}, the last {ago}",
            duration(window)
        ),
    }
}

/// How a sandbox died.
pub(super) fn sandbox_death(death: SandboxDeath<'_>) -> String {
    if death.with_shim {
        return "its shim ended, and with it everything in the sandbox; no call had stopped it"
            .to_owned();
    }
    if death.end.is_container {
        let limit = match death.end.limit {
            Some(ReachedLimit::Memory) => " after the kernel killed a process for lack of memory",
            Some(ReachedLimit::Processes) => " after the pod reached its limit of processes",
            None => "",
        };
        return format!("its sandbox container ended{limit}, and no call had stopped it");
    }
    let Some(code) = death.end.code.map(exit_code) else {
        return "the init of its shared PID namespace ended, and no call had stopped it".to_owned();
    };
    format!("its first process (pause) ended with exit code {code}, and no call had stopped it")
}

/// An age in words: `12 s ago`.
pub(super) fn ago_of(time: Duration) -> String {
    match time.as_secs() {
        0 => "just now".to_owned(),
        _ => since(time),
    }
}
