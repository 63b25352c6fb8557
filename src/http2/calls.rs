//! The calls of a server's connection, carried by its own task: a call needs no task of its own, and what it needs to be
//! polled is used again by the next.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;

use super::BoxError;
use super::core::Shared;
use super::error::Reason;
use super::stream::{Key, keep};

/// Calls that can go on.
#[derive(Debug, Default)]
pub(super) struct Ready(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    keys: Vec<Key>,
    task: Option<Waker>,
    /// The task runs, or is about to.
    is_awake: bool,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is there into an empty list. The task will look again before it sleeps.
    pub(super) fn take(&self, cx: &Context<'_>, into: &mut Vec<Key>) {
        let mut queue = self.lock();
        keep(&mut queue.task, cx.waker());
        queue.is_awake = true;
        std::mem::swap(&mut queue.keys, into);
    }

    /// The task sleeps; gives whether it should not.
    pub(super) fn asleep(&self) -> bool {
        let mut queue = self.lock();
        queue.is_awake = false;
        !queue.keys.is_empty()
    }
}

/// Says which call can go on.
#[derive(Debug)]
struct CallWaker {
    key: Key,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut queue = self.ready.lock();
        queue.keys.push(self.key);
        if !std::mem::replace(&mut queue.is_awake, true)
            && let Some(task) = &queue.task
        {
            task.wake_by_ref();
        }
    }
}

pin_project! {
    /// How far a call is.
    #[project = WorkProjection]
    enum Work<F, B> {
        Idle,
        Calling { #[pin] future: F },
        Answering { #[pin] body: B, rest: Rest },
    }
}

/// What is to be sent before the body is asked for more.
struct Rest {
    head: Option<(StatusCode, HeaderMap)>,
    data: Option<Bytes>,
    is_last: bool,
}

/// A place for a call.
pub(super) struct Call<F, B> {
    work: Pin<Box<Work<F, B>>>,
    wakes: Arc<CallWaker>,
    waker: Waker,
}

impl<F, B> Call<F, B> {
    pub(super) fn new(key: Key, ready: &Arc<Ready>) -> Self {
        let wakes = Arc::new(CallWaker {
            key,
            is_queued: AtomicBool::new(false),
            ready: Arc::clone(ready),
        });
        Self {
            work: Box::pin(Work::Idle),
            waker: Arc::clone(&wakes).into(),
            wakes,
        }
    }

    pub(super) fn start(&mut self, future: F) {
        self.work.set(Work::Calling { future });
    }

    /// Forgets the call; gives whether there was one.
    pub(super) fn stop(&mut self) -> bool {
        let was_idle = matches!(*self.work, Work::Idle);
        if !was_idle {
            self.work.set(Work::Idle);
        }
        !was_idle
    }
}

impl<F, B> Call<F, B>
where
    F: Future<Output = Result<Response<B>, BoxError>>,
    B: Body<Data = Bytes, Error = BoxError>,
{
    /// Goes on as far as it can. Ready once everything is sent.
    pub(super) fn poll(&mut self, shared: &Shared) -> Poll<()> {
        self.wakes.is_queued.store(false, Ordering::Release);
        let key = self.wakes.key;
        let mut cx = Context::from_waker(&self.waker);
        if let WorkProjection::Calling { future } = self.work.as_mut().project() {
            match std::task::ready!(future.poll(&mut cx)) {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let rest = Rest {
                        head: Some((head.status, head.headers)),
                        data: None,
                        is_last: false,
                    };
                    self.work.set(Work::Answering { body, rest });
                }
                Err(error) => {
                    reset(shared, key, &error);
                    return Poll::Ready(());
                }
            }
        }
        match self.work.as_mut().project() {
            WorkProjection::Answering { body, rest } => rest.poll(&mut cx, shared, key, body),
            // A wake-up for a call that is over.
            _ => Poll::Pending,
        }
    }
}

impl Rest {
    fn poll<B>(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        key: Key,
        mut body: Pin<&mut B>,
    ) -> Poll<()>
    where
        B: Body<Data = Bytes, Error = BoxError>,
    {
        if let Some((status, headers)) = &self.head {
            let is_end = body.is_end_stream();
            let mut core = shared.lock();
            std::task::ready!(core.poll_room(cx, key));
            core.respond(key, *status, headers, is_end);
            self.head = None;
            if is_end {
                return Poll::Ready(());
            }
        }
        loop {
            if let Some(data) = &mut self.data {
                let sent = shared.lock().poll_data(cx, key, data, self.is_last);
                // If the stream broke, nobody is there to be told.
                if std::task::ready!(sent).is_err() || self.is_last {
                    return Poll::Ready(());
                }
                self.data = None;
            }
            let frame = match std::task::ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    reset(shared, key, &error);
                    return Poll::Ready(());
                }
                None => {
                    self.data = Some(Bytes::new());
                    self.is_last = true;
                    continue;
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    self.data = Some(data);
                    self.is_last = body.is_end_stream();
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        shared.lock().trailers(key, &trailers);
                        return Poll::Ready(());
                    }
                }
            }
        }
    }
}

/// Ends the stream as whatever lies below was ended.
fn reset(shared: &Shared, key: Key, error: &BoxError) {
    let reason = Reason::of(&**error).unwrap_or(Reason::INTERNAL_ERROR);
    shared.lock().reset(key, reason);
}
