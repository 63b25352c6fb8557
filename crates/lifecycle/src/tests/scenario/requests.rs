//! What the request for a container says, in scenarios.

use super::words::{Words, named};
use criscope_cri::container_request::{
    ContainerRequest, HookHandler, MountedVolume, SeccompKind, VolumeKind,
};

const WORDS: [&str; 9] = [
    "memory",
    "cpu",
    "mount",
    "user",
    "seccomp",
    "read-only-root",
    "drops-all",
    "port",
    "pre-stop",
];

/// Returns whether a word says something of a request.
pub(super) fn is_word(word: &str) -> bool {
    WORDS.contains(&word)
}

/// Adds what a word and those after it say.
pub(super) fn add(
    request: &mut ContainerRequest,
    word: &str,
    words: &mut Words,
) -> Result<(), String> {
    match word {
        "memory" => request.memory = Some(words.number::<u64>()? << 20),
        "cpu" => request.cpu_millis = Some(words.number()?),
        "mount" => {
            let kind = words.word("a kind of volume")?;
            request.mounts.push(MountedVolume {
                kind: named(&kind, &VolumeKind::ALL, VolumeKind::name)?,
                path: words.word("a path")?.into(),
                holds_command: words.take("command"),
                read_only: words.take("read-only"),
                no_exec: words.take("noexec"),
            });
        }
        "user" => request.user = Some(words.number()?),
        "seccomp" => {
            let kind = words.word("a kind of profile")?;
            request.seccomp = Some(named(&kind, &SeccompKind::ALL, SeccompKind::name)?);
        }
        "read-only-root" => request.read_only_root = true,
        "drops-all" => request.drops_all_capabilities = true,
        "port" => request.forbidden_port = Some(words.number()?),
        _ => {
            let kind = words.word("a kind of hook")?;
            request.pre_stop = Some(named(&kind, &HookHandler::ALL, HookHandler::name)?);
        }
    }
    Ok(())
}
