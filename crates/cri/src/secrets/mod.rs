//! The secrets of requests, so that an error text of a later call can be searched for them. Only keyed hashes of parts of
//! their values, and of paths and devices, are kept, in bounded memory; see `docs/adr/0030-redaction-by-value.md`.

mod fields;
mod forms;
mod table;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use fields::Value;
pub use forms::Mark;

use self::table::Generations;
use super::method::Method;
use super::subject::{PodIdentity, Subject};

/// Letters of a window of the call's own request. A shorter part of a secret is not recognised.
const OWN_WINDOW: usize = 5;

/// Letters of a window of earlier requests. Longer, since with so many windows other words would have shorter ones by
/// chance.
const KEPT_WINDOW: usize = 6;

/// Most windows of one request; a larger one is not remembered. This bounds the time of a call: about 2 ms.
const MOST_WINDOWS: usize = 1 << 16;

/// Largest request that is remembered, in bytes.
const LARGEST: usize = 1 << 20;

/// The secrets of recent requests, and the pods and containers whose secrets are all among them.
#[derive(Debug, Default)]
pub struct Secrets {
    /// With keys of this process, so that values with equal hashes cannot be constructed.
    hasher: RandomState,
    kept: Mutex<Generations>,
}

impl Secrets {
    /// Returns whether requests of this method hold secrets that later calls can quote.
    pub const fn are_in(method: Method) -> bool {
        matches!(
            method,
            Method::RunPodSandbox
                | Method::CreateContainer
                | Method::PullImage
                | Method::UpdateContainerResources
                | Method::ExecSync
                | Method::Exec
        )
    }

    /// Remembers the secrets of a request. `message` is the uncompressed message, or `None` if it could not be read. Without it
    /// some secrets are unknown, so error texts about all earlier pods are then redacted as if nothing were known.
    pub fn remember(&self, method: Method, message: Option<&[u8]>, subject: Option<&Subject>) {
        if !Self::are_in(method) {
            return;
        }
        let mut kept = self.lock();
        let since = kept.newest();
        let mut windows = 0;
        let message = message.filter(|message| message.len() <= LARGEST);
        let result = message.and_then(|message| {
            each_key(method, message, KEPT_WINDOW, &mut |key| {
                windows += 1;
                if windows <= MOST_WINDOWS {
                    kept.insert(self.hash(key));
                }
            })
        });
        if result.is_none() || windows > MOST_WINDOWS {
            return kept.forget_objects();
        }
        if matches!(method, Method::RunPodSandbox | Method::CreateContainer)
            && let Some(object) = subject.and_then(|subject| self.object(subject))
        {
            kept.know(object, since);
        }
    }

    /// For each byte of an error text, whether it quotes a secret; `None` if it could quote secrets that are
    /// not known.
    pub(super) fn find(
        &self,
        text: &str,
        method: Method,
        request: Option<&[u8]>,
        subject: Option<&Subject>,
    ) -> Option<Vec<Mark>> {
        let request = request.filter(|request| request.len() <= LARGEST)?;
        let mut own = HashSet::new();
        each_key(method, request, OWN_WINDOW, &mut |key| {
            own.insert(self.hash(key));
        })?;
        let kept = self.lock();
        let is_known = match method {
            // The request names the pod and all that it may use.
            Method::RunPodSandbox | Method::CreateContainer | Method::PullImage => true,
            Method::StopPodSandbox
            | Method::RemovePodSandbox
            | Method::UpdatePodSandboxResources
            | Method::StartContainer
            | Method::StopContainer
            | Method::RemoveContainer
            | Method::ReopenContainerLog
            | Method::UpdateContainerResources => {
                let object = subject.and_then(|subject| self.object(subject));
                object.is_some_and(|object| kept.knows(object))
            }
            // Commands may print anything.
            _ => false,
        };
        if !is_known {
            return None;
        }
        let mut marks = vec![Mark::None; text.len()];
        forms::mark(
            text,
            OWN_WINDOW,
            &|key| own.contains(&self.hash(Key::Secret(key))),
            &mut marks,
        );
        forms::mark(
            text,
            KEPT_WINDOW,
            &|key| kept.contains(self.hash(Key::Secret(key))),
            &mut marks,
        );
        forms::mark_names(
            text,
            &|name| {
                let hash = self.hash(Key::Named(name));
                own.contains(&hash) || kept.contains(hash)
            },
            &mut marks,
        );
        Some(marks)
    }

    fn hash(&self, key: Key<'_>) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The container of a call, or its sandbox. A container is known by its own request, which has the sandbox's too; a
    /// sandbox as long as all containers that followed it are.
    fn object(&self, subject: &Subject) -> Option<u64> {
        let PodIdentity { uid, attempt, .. } = &**subject.pod.as_ref()?;
        if subject.container.is_none() && subject.container_id.is_some() {
            return None;
        }
        let container = subject
            .container
            .as_ref()
            .map(|container| (&*container.name, container.attempt));
        Some(self.hasher.hash_one((&**uid, attempt, container)))
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is remembered of a value.
#[derive(Clone, Copy, Debug, Hash)]
enum Key<'a> {
    /// A window of a secret; see [`forms`].
    Secret(u64),
    /// A whole path, device or program, which may be shown.
    Named(&'a [u8]),
}

/// Calls `f` with the keys of all values of a request; `None` if it does not decode, or its fields are not known.
fn each_key(
    method: Method,
    message: &[u8],
    length: usize,
    f: &mut impl FnMut(Key<'_>),
) -> Option<()> {
    each_value(method, message, &mut |value| match value {
        Value::Secret(secret) => forms::keys(secret, length, &mut |key| f(Key::Secret(key))),
        Value::Plain(name) if forms::is_name(name) => f(Key::Named(name)),
        Value::Program(name) if forms::is_program(name) => f(Key::Named(name)),
        Value::Plain(_) | Value::Program(_) => {}
    })
}

/// Calls `f` with the value of every text and bytes field of a request; `None` if it does not decode, or its fields are not
/// known.
pub fn each_value<'a>(
    method: Method,
    message: &'a [u8],
    f: &mut impl FnMut(Value<'a>),
) -> Option<()> {
    fields::visit(fields::request_message(method)?, message, f).ok()
}
