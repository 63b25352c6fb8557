//! Every key there is, in one table: where it stands, what it takes, its default, whether SIGHUP reloads it, and what
//! it does. The reader, the check for unknown keys, the list of what a reload changes and `docs/CONFIG.md` are all made
//! from it.

mod keys;
mod parts;
mod runtime;
mod streaming;

use super::value::Kind;

pub(crate) use self::keys::*;
pub(crate) use self::parts::*;
pub(crate) use self::runtime::*;
pub(crate) use self::streaming::*;

/// Makes a constant of each key, and a list of all of them.
macro_rules! table {
    ($($name:ident: $kind:ty, $default:ty = $key:expr;)*) => {
        $(pub(crate) const $name: Key<$kind, $default> = $key;)*
        /// Every key of this file, in the order of the reference.
        pub(super) const LIST: &[&dyn Described] = &[$(&$name),*];
    };
}
use table;

/// Every key.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn Described> {
    let lists = [keys::LIST, runtime::LIST, parts::LIST, streaming::LIST];
    lists.into_iter().flatten().copied()
}

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// On SIGHUP.
    Live,
    /// On the next start.
    Restart,
}

/// One key.
pub(crate) struct Key<K, D> {
    /// The table it stands in; `NAME` stands for any name, `[]` for an array of tables.
    pub(crate) section: &'static str,
    /// Its name in that table.
    pub(crate) name: &'static str,
    /// What it takes.
    pub(crate) kind: K,
    /// What holds if it is not given.
    pub(crate) default: D,
    /// When a change takes effect.
    pub(crate) reload: Reload,
    /// What it does, for the reference.
    pub(crate) help: &'static str,
}

/// A value that holds if the key is not given.
pub(crate) struct Is<T>(pub(crate) fn() -> T);
/// What is done if the key is not given, in words.
pub(crate) struct Unset(pub(crate) &'static str);
/// The key must be given.
pub(crate) struct Required;

/// What holds if a key is not given, for the reference.
pub(crate) trait Fallback<K> {
    fn show(&self, kind: &K) -> String;
}

impl<K: Kind> Fallback<K> for Is<K::Value> {
    fn show(&self, kind: &K) -> String {
        format!("`{}`", kind.show(&(self.0)()))
    }
}

impl<K> Fallback<K> for Unset {
    fn show(&self, _: &K) -> String {
        self.0.to_owned()
    }
}

impl<K> Fallback<K> for Required {
    fn show(&self, _: &K) -> String {
        "required".to_owned()
    }
}

/// A key of any type.
pub(crate) trait Described: Sync {
    fn section(&self) -> &'static str;
    fn name(&self) -> &'static str;
    fn words(&self) -> String;
    fn fallback(&self) -> String;
    fn reload(&self) -> Reload;
    fn help(&self) -> &'static str;
}

impl<K: Kind + Sync, D: Fallback<K> + Sync> Described for Key<K, D> {
    fn section(&self) -> &'static str {
        self.section
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn words(&self) -> String {
        self.kind.words()
    }

    fn fallback(&self) -> String {
        self.default.show(&self.kind)
    }

    fn reload(&self) -> Reload {
        self.reload
    }

    fn help(&self) -> &'static str {
        self.help
    }
}

/// What a section is for, in the order of the reference.
pub(crate) const SECTIONS: &[(&str, &str)] = &[
    ("server", "The socket that the kubelet talks to."),
    (
        "admin",
        "The HTTP endpoint for metrics, health and the live pages.",
    ),
    (
        "backends.NAME",
        "What serves calls: runtimes that they are passed on to, and the built-in one. With none at all, and no `--upstream`, there is the built-in runtime alone, under the name `builtin`. NAME is a label in metrics and logs: 1 to 32 of `a-z`, `0-9` and `-`.",
    ),
    (
        "routing",
        "Which backend serves which call. Not needed with one backend.",
    ),
    (
        "routing.rules[]",
        "A rule by runtime handler, written `[[routing.rules]]`. The first that matches wins.",
    ),
    ("telemetry.log", "The log."),
    ("telemetry.otlp", "Where spans are sent."),
    (
        "telemetry.sampling",
        "Which calls become spans. Calls that failed, were cancelled, stuck (half of the deadline used up) or slow always do, and so does a call whose caller sampled it.",
    ),
    (
        "telemetry.sampling.methods[]",
        "Other settings for one call, written `[[telemetry.sampling.methods]]`.",
    ),
    (
        "story",
        "The stories of pods: why a pod was slow, or never up.",
    ),
    (
        "sampler",
        "A look at the node's processes while a call takes long: which CNI plugin, or the OCI runtime, is at work. It reads `/proc` only, and of the environment of CNI plugins only `CNI_COMMAND`, `CNI_CONTAINERID` and the pod in `CNI_ARGS`.",
    ),
    (
        "receiver",
        "Takes the runtime's own spans, hangs them into the stories and passes them on to `telemetry.otlp.endpoint`. Set the runtime's OTLP/gRPC endpoint to this address.",
    ),
    (
        "recorder",
        "The flight recorder: the last calls that ended, without payloads.",
    ),
    (
        "runtime",
        "The built-in runtime. Read if a backend is `builtin`, and only checked if none is. Nothing here is reloaded, because a restart of criscope touches no pod.",
    ),
    (
        "runtime.handlers.NAME",
        "An OCI runtime (runc, crun, or another with their command line) under the name by which a RuntimeClass asks for it. Without any there are `runc` and `crun`, those of them that are on `PATH`.",
    ),
    ("runtime.cni", "The networks of pods, by CNI plugins."),
    (
        "runtime.images",
        "Images: where they come from, where they lie, and what they may take.",
    ),
    (
        "streaming",
        "Exec, attach and port-forward: the server behind the URLs that those calls return. It speaks SPDY and WebSocket.",
    ),
    (
        "telemetry.identity",
        "How many objects are remembered to name the pod of a call that carries only an id. The oldest are forgotten first.",
    ),
];

/// Kinds of backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindOfBackend {
    Upstream,
    Builtin,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_key_stands_in_a_described_section_once() {
        let mut seen = HashSet::new();
        for key in all() {
            assert!(
                SECTIONS
                    .iter()
                    .any(|(section, _)| *section == key.section()),
                "{}",
                key.section()
            );
            assert!(seen.insert((key.section(), key.name())), "{}", key.name());
            assert!(key.help().ends_with('.'), "{}", key.name());
        }
        for (section, _) in SECTIONS {
            assert!(all().any(|key| key.section() == *section), "{section}");
        }
    }
}
