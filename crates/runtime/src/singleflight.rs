//! Lets retries receive the result of the first attempt.
//!
//! A kubelet that cancelled a slow RunPodSandbox retries with the same request. The first attempt continues: the retry joins it,
//! or receives its result, instead of an error that the name is reserved. A delivered result is not returned again: from then on
//! the same request is an error.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use super::call_context::CallContext;
use super::error::{Error, Result};

type Outcome = Option<Result<String>>;

/// Attempts in progress, and undelivered results, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Singleflight {
    tries: Arc<Mutex<HashMap<String, Try>>>,
}

#[derive(Debug)]
struct Try {
    /// Fingerprint of the request: a different request with the same name is not a retry.
    request: u64,
    outcome: watch::Receiver<Outcome>,
}

/// A hash of a request, computed from a form with sorted maps, because their order is random on the wire and in memory.
pub(crate) fn fingerprint(request: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let ordered = serde_json::to_value(request).unwrap_or_default();
    ordered.to_string().hash(&mut hasher);
    hasher.finish()
}

impl Singleflight {
    /// Runs the work in its own task, joins the attempt in progress, or returns the undelivered result of the last one. `exists`
    /// returns whether the created object still exists.
    ///
    /// # Errors
    /// Those of the work; [`Error::Cancelled`] and [`Error::Deadline`] if the caller stops waiting for it.
    pub(crate) async fn run<F>(
        &self,
        name: &str,
        request: u64,
        call: &CallContext,
        exists: impl Fn(&str) -> bool,
        work: F,
    ) -> Result<String>
    where
        F: Future<Output = Result<String>> + Send + 'static,
    {
        let mut outcome = self.join_or_begin(name, request, exists, work);
        let waited = async {
            let done = outcome.wait_for(Option::is_some).await;
            match done.map(|outcome| outcome.clone()) {
                Ok(Some(result)) => result,
                _ => Err(Error::Internal("the work ended without a result".into())),
            }
        };
        let result = call.wait(waited).await;
        let delivered = !call.is_gone();
        if delivered {
            self.tries().remove(name);
        }
        result
    }

    fn join_or_begin<F>(
        &self,
        name: &str,
        request: u64,
        exists: impl Fn(&str) -> bool,
        work: F,
    ) -> watch::Receiver<Outcome>
    where
        F: Future<Output = Result<String>> + Send + 'static,
    {
        let mut tries = self.tries();
        if let Some(earlier) = tries.get(name)
            && earlier.request == request
        {
            let usable = match &*earlier.outcome.borrow() {
                None => earlier.outcome.has_changed().is_ok(),
                Some(Ok(id)) => exists(id),
                Some(Err(_)) => false,
            };
            if usable {
                return earlier.outcome.clone();
            }
        }
        let (tell, outcome) = watch::channel(None);
        tries.insert(
            name.to_owned(),
            Try {
                request,
                outcome: outcome.clone(),
            },
        );
        let (tries, name, own) = (self.clone(), name.to_owned(), outcome.clone());
        tokio::spawn(async move {
            let result = work.await;
            let failed = result.is_err();
            tell.send_replace(Some(result));
            // Only the current waiters receive a failure. Removed here, because a caller that has left cannot.
            if failed {
                tries.forget_this(&name, &own);
            }
        });
        outcome
    }

    /// Offers an object of the previous run, whose id may not have been delivered, to a caller that repeats the request.
    pub(crate) fn offer(&self, name: &str, request: u64, id: &str) {
        // The receiver keeps the value without its sender.
        let (_, outcome) = watch::channel(Some(Ok(id.to_owned())));
        let offered = Try { request, outcome };
        self.tries().insert(name.to_owned(), offered);
    }

    /// Drops the undelivered result of an object that is gone.
    pub(crate) fn forget(&self, name: &str) {
        let mut tries = self.tries();
        if tries
            .get(name)
            .is_some_and(|earlier| earlier.outcome.borrow().is_some())
        {
            tries.remove(name);
        }
    }

    fn forget_this(&self, name: &str, outcome: &watch::Receiver<Outcome>) {
        let mut tries = self.tries();
        if tries
            .get(name)
            .is_some_and(|earlier| earlier.outcome.same_channel(outcome))
        {
            tries.remove(name);
        }
    }

    fn tries(&self) -> std::sync::MutexGuard<'_, HashMap<String, Try>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[test]
    fn the_fingerprint_does_not_depend_on_the_order_of_labels() {
        let labels = |n: usize| (0..n).map(|n| (n.to_string(), n.to_string()));
        let one: HashMap<_, _> = labels(64).collect();
        let other: HashMap<_, _> = labels(64).collect();
        assert_eq!(fingerprint(&one), fingerprint(&other));
        let less: HashMap<_, _> = labels(63).collect();
        assert_ne!(fingerprint(&one), fingerprint(&less));
    }

    #[tokio::test]
    async fn an_offered_object_is_returned_once() {
        let attempts = Singleflight::default();
        attempts.offer("n", 1, "made");
        let work = || async { Ok("new".to_owned()) };
        let call = CallContext::default();
        let there = |_: &str| true;
        let first = attempts.run("n", 1, &call, there, work()).await;
        assert_eq!(first.expect("done"), "made");
        let second = attempts.run("n", 1, &call, there, work()).await;
        assert_eq!(second.expect("done"), "new");
    }

    fn impatient() -> CallContext {
        CallContext::new(
            Some(Instant::now() + Duration::from_secs(1)),
            Default::default(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_gets_what_the_first_try_made_and_only_once() {
        let attempts = Singleflight::default();
        let made = Arc::new(AtomicUsize::new(0));
        let work = || {
            let made = Arc::clone(&made);
            async move {
                sleep(Duration::from_secs(5)).await;
                Ok(format!("id{}", made.fetch_add(1, Ordering::SeqCst)))
            }
        };
        let there = |_: &str| true;
        let first = attempts.run("n", 1, &impatient(), there, work()).await;
        assert!(matches!(first, Err(Error::Deadline(_))));
        // While the attempt is in progress, and after it has ended.
        let second = attempts.run("n", 1, &impatient(), there, work()).await;
        assert!(matches!(second, Err(Error::Deadline(_))));
        sleep(Duration::from_secs(10)).await;
        let third = attempts
            .run("n", 1, &CallContext::default(), there, work())
            .await;
        assert_eq!(third.expect("done"), "id0");
        let fourth = attempts
            .run("n", 1, &CallContext::default(), there, work())
            .await;
        assert_eq!(
            fourth.expect("done"),
            "id1",
            "it was delivered: the work runs again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_without_waiters_is_dropped() {
        let attempts = Singleflight::default();
        let work = async {
            sleep(Duration::from_secs(5)).await;
            Err(Error::invalid("no"))
        };
        let late = attempts.run("n", 1, &impatient(), |_| true, work).await;
        assert!(matches!(late, Err(Error::Deadline(_))));
        assert_eq!(attempts.tries().len(), 1, "it continues");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(attempts.tries().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn another_request_or_a_lost_result_begins_anew() {
        let attempts = Singleflight::default();
        let patient = CallContext::default();
        let work = |id: &'static str| async move {
            sleep(Duration::from_secs(5)).await;
            Ok(id.to_owned())
        };
        let _late = attempts
            .run("n", 1, &impatient(), |_| true, work("a"))
            .await;
        sleep(Duration::from_secs(10)).await;
        let gone = attempts.run("n", 1, &patient, |_| false, work("b"));
        assert_eq!(gone.await.expect("done"), "b");
        let _late = attempts
            .run("n", 1, &impatient(), |_| true, work("c"))
            .await;
        let other = attempts.run("n", 2, &patient, |_| true, work("d"));
        assert_eq!(other.await.expect("done"), "d");
    }
}
