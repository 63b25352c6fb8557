//! Calls that go on after their caller gave up, until the kubelet repeats them.
//!
//! A call has one owner: first the caller that waits for it, then [`KeptCalls`], then the retry. Dropping it ends it at the
//! backend. So its answer cannot be given to two.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::same::is_same;
use crate::call::{Call, Sealed};
use crate::cri::subject::{ContainerIdentity, PodIdentity};
use crate::cri::{Method, Named as _};
use crate::grpc::{BoxError, Response};

/// Most kept calls of a backend.
const MAX_KEPT_CALLS: usize = 64;

/// The largest request that is kept, in bytes. The kubelet's have some kilobytes.
const MAX_REQUEST_BYTES: usize = 256 << 10;

/// How long a call is kept without a caller. A kubelet tries again 10 to 16 seconds after an error.
const UNCLAIMED_FOR: Duration = Duration::from_secs(120);

/// How long a call may go on after the deadline of its first caller, retries included.
pub(super) const CONTINUES_FOR: Duration = Duration::from_secs(15 * 60);

/// Most ids of objects that were taken away and may be that of a kept call.
const MAX_REMOVED_IDS: usize = 16;

crate::cri::named! {
    /// How a kept call ceased to be kept. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub(crate) enum KeptCallEnd {
        /// The retry came and waits for it.
        Joined = "joined",
        /// No retry came in time.
        Unclaimed = "unclaimed",
        /// It failed before a retry came.
        Failed = "failed",
        /// A request for the same name came that is not the same.
        OtherRequest = "other_request",
        /// Its sandbox or container was used, stopped or removed.
        SubjectChanged = "subject_changed",
        /// Too many calls were kept already.
        NoRoom = "no_room",
    }
}

/// What the runtime reserves the name of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ObjectName {
    pod: Arc<PodIdentity>,
    /// `None` for the sandbox.
    container: Option<Arc<ContainerIdentity>>,
}

/// A request that can be joined later: of a kubelet, with a deadline, for a sandbox or a container.
#[derive(Debug)]
pub(super) struct JoinableRequest {
    method: Method,
    name: ObjectName,
    message: Sealed,
    /// The sandbox of the container.
    sandbox_id: Option<Arc<str>>,
    pub(super) deadline: Duration,
}

impl JoinableRequest {
    /// The request of this call; `None` if it cannot be joined.
    pub(super) fn from_call(call: &Call) -> Option<Self> {
        let is_container = match call.method {
            Method::RunPodSandbox => false,
            Method::CreateContainer => true,
            _ => return None,
        };
        let (deadline, subject) = (call.deadline?, call.subject.get()?);
        let message = call.message.get()?;
        if !call.peer.is_kubelet() || message.bytes().len() > MAX_REQUEST_BYTES {
            return None;
        }
        let pod = Arc::clone(subject.pod.as_ref()?);
        let (mut container, mut sandbox_id) = (None, None);
        if is_container {
            container = Some(Arc::clone(subject.container.as_ref()?));
            sandbox_id = Some(Arc::clone(subject.sandbox_id.as_ref()?));
        }
        Some(Self {
            method: call.method,
            name: ObjectName { pod, container },
            message: message.clone(),
            sandbox_id,
            deadline,
        })
    }

    fn is_repeated_by(&self, retry: &Self) -> bool {
        let uid = &self.name.pod.uid;
        let container = self.name.container.as_ref().map_or("", |c| &*c.name);
        let termination_dir = format!("/pods/{uid}/containers/{container}/");
        let (earlier, retry_bytes) = (self.message.bytes(), retry.message.bytes());
        self.method == retry.method && is_same(self.method, &termination_dir, earlier, retry_bytes)
    }
}

/// A call at the backend, with a task of its own.
#[derive(Debug)]
pub(super) struct UpstreamCall {
    pub(super) request: JoinableRequest,
    /// Ends the call when it is dropped.
    pub(super) answer: AbortOnDropHandle<Result<Response, BoxError>>,
    /// The id of the sandbox or container, as soon as it is answered.
    pub(super) made: Arc<OnceLock<Arc<str>>>,
    /// When it must have ended.
    pub(super) until: Instant,
    /// Objects that were taken away while it was kept and its id was not known.
    pub(super) removed: Vec<Arc<str>>,
}

impl UpstreamCall {
    /// Returns whether the object that it made was taken away while it was kept.
    pub(super) fn is_removed(&self) -> bool {
        let made = self.made.get();
        made.is_some_and(|id| self.removed.contains(id))
    }
}

#[derive(Debug)]
struct KeptCall {
    upstream: UpstreamCall,
    /// Tells it from a later one with the same name.
    number: u64,
}

impl KeptCall {
    /// Why a retry cannot have the answer; `None` if it can.
    fn refuses(&self, retry: &JoinableRequest) -> Option<KeptCallEnd> {
        if self.upstream.is_removed() {
            return Some(KeptCallEnd::SubjectChanged);
        }
        if self.upstream.made.get().is_none() && self.upstream.answer.is_finished() {
            return Some(KeptCallEnd::Failed);
        }
        let repeats = self.upstream.request.is_repeated_by(retry);
        (!repeats).then_some(KeptCallEnd::OtherRequest)
    }

    /// Returns whether another call changes or uses what this one makes.
    fn is_changed_by(&mut self, call: &Call) -> bool {
        let Some(subject) = call.subject.get() else {
            return false;
        };
        let (sandbox, container) = (subject.sandbox_id.as_ref(), subject.container_id.as_ref());
        let request = &self.upstream.request;
        let removes_sandbox = matches!(
            call.method,
            Method::StopPodSandbox | Method::RemovePodSandbox
        );
        if removes_sandbox && sandbox.is_some() && sandbox == request.sandbox_id.as_ref() {
            return true;
        }
        let is_container = request.name.container.is_some();
        let named = if is_container { container } else { sandbox };
        let (Some(named), made) = (named, self.upstream.made.get()) else {
            return false;
        };
        let pod = subject.pod.as_ref();
        let may_be_ours = pod.is_none_or(|pod| pod.uid == request.name.pod.uid);
        match made {
            Some(made) => named == made,
            None if may_be_ours && call.method.takes_away() => {
                let removed = &mut self.upstream.removed;
                if !removed.contains(named) {
                    removed.push(Arc::clone(named));
                }
                removed.len() > MAX_REMOVED_IDS
            }
            None => false,
        }
    }
}

/// The kept calls of one backend.
#[derive(Debug, Default)]
pub(crate) struct KeptCalls {
    calls: Mutex<HashMap<ObjectName, KeptCall>>,
    /// Their number, so that other calls need no lock.
    len: AtomicUsize,
    last_number: AtomicU64,
    ended: [AtomicU64; KeptCallEnd::ALL.len()],
}

impl KeptCalls {
    /// The number of kept calls.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// How many ended this way.
    pub(crate) fn ended(&self, end: KeptCallEnd) -> u64 {
        self.ended[end.index()].load(Ordering::Relaxed)
    }

    /// Takes the call that this request repeats. A call that is in the way of another request is ended.
    pub(super) fn take(&self, retry: &JoinableRequest) -> Option<UpstreamCall> {
        let kept = {
            let mut calls = self.lock();
            let kept = calls.remove(&retry.name)?;
            self.len.store(calls.len(), Ordering::Relaxed);
            kept
        };
        let refusal = kept.refuses(retry);
        self.count(refusal.unwrap_or(KeptCallEnd::Joined));
        refusal.is_none().then_some(kept.upstream)
    }

    /// Keeps a call whose caller gave up, for a while.
    pub(super) fn keep(self: &Arc<Self>, upstream: UpstreamCall) {
        let until = upstream.until.min(Instant::now() + UNCLAIMED_FOR);
        // Without it nothing would end the call.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        let name = upstream.request.name.clone();
        {
            let mut calls = self.lock();
            if calls.len() >= MAX_KEPT_CALLS || calls.contains_key(&name) {
                drop(calls);
                return self.count(KeptCallEnd::NoRoom);
            }
            let kept = KeptCall { upstream, number };
            calls.insert(name.clone(), kept);
            self.len.store(calls.len(), Ordering::Relaxed);
        }
        let kept_calls = Arc::downgrade(self);
        runtime.spawn(async move {
            sleep_until(until).await;
            if let Some(kept_calls) = kept_calls.upgrade() {
                kept_calls.end_where(KeptCallEnd::Unclaimed, |kept| kept.number == number);
            }
        });
    }

    /// Ends the calls that make what another call changes or uses.
    pub(super) fn subject_changes(&self, call: &Call) {
        if self.len() > 0 {
            self.end_where(KeptCallEnd::SubjectChanged, |kept| kept.is_changed_by(call));
        }
    }

    fn end_where(&self, end: KeptCallEnd, mut is_over: impl FnMut(&mut KeptCall) -> bool) {
        let mut calls = self.lock();
        let ended = calls.extract_if(|_, kept| is_over(kept));
        let ended: Vec<_> = ended.collect();
        self.len.store(calls.len(), Ordering::Relaxed);
        drop(calls);
        ended.iter().for_each(|_| self.count(end));
    }

    fn count(&self, end: KeptCallEnd) {
        self.ended[end.index()].fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectName, KeptCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
